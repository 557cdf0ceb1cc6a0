"""One method's run in a sweep, stage by stage: costs, references, search, confirmation, scores."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from optuna.trial import FrozenTrial
from rich.console import Console

from distilbench.cluster.resources import trial_resources, wait_for_idle
from distilbench.cluster.run_copy import RunCopy
from distilbench.codes import USUAL_FAMILIES, CompetitionKey
from distilbench.commands.sweep_plan import MethodRun
from distilbench.errors import InputError
from distilbench.events import INTERRUPTED, Event
from distilbench.methods import get_method
from distilbench.prepare.pool import progress
from distilbench.prepare.prepared import Artifacts, Prepared, load_prepared
from distilbench.progress.clock import Clock
from distilbench.progress.tally import Tally
from distilbench.records import EncoderCost, TrialRecord, read_trials
from distilbench.reporting.page import LivePage
from distilbench.search.confirm import chosen_trials, confirmation_jobs, write_confirmed
from distilbench.search.objectives import directions
from distilbench.search.run_trials import SearchPlace, discard_checkpoints, run_trials
from distilbench.search.search_plan import Search
from distilbench.search.starts import saved_settings, starts_for
from distilbench.search.stopping import waits_at_rungs
from distilbench.search.study import best_per_group, finished_trials, open_study, study_url
from distilbench.search.suggestions import default_max_pending
from distilbench.search.trial import trial_folder
from distilbench.settings.sweep import SweepSettings
from distilbench.stage_times import StageTimes, read_timings, timed_stage
from distilbench.trials.scoring import Scoring, remove_encoded

if TYPE_CHECKING:
    from distilbench.trials.rows import RowScorer


class NoStudent(InputError):
    """None of a method's trials got far enough to give a student."""


class Around(NamedTuple):
    """The console and page of a sweep, and the storage that its runs are copied to."""

    console: Console
    page: LivePage
    copy: RunCopy | None = None


class MethodSweep:
    """One method's run, from preparation to its scores."""

    def __init__(
        self,
        settings: SweepSettings,
        member: MethodRun,
        members: Sequence[MethodRun],
        inputs: Artifacts,
        clock: Clock,
        around: Around,
    ) -> None:
        self.settings, self.member, self.members, self.inputs, self.clock = settings, member, members, inputs, clock
        self.console, self.page, self.copy = around
        self.run, self.space, self.prepared = member.run, member.space, member.run / "prepared"
        self.widths = self.space.judged_widths
        """Every width that a student is judged at."""
        self.groups = self.space.groups
        """Every group of which a student is chosen."""

    def carry_out(self) -> None:
        """Carry out every stage from the preparation to the students' scores: rows are in the run's files then, notes in the
        member. `score_references` comes after that of all methods.
        """
        self.inputs.save(self.prepared)
        ready = load_prepared(self.prepared.resolve())
        share = (self.settings.cpus_per_trial, self.settings.gpus_per_trial, self.settings.workers)
        self.resources = trial_resources(*share, self.settings.nodes_to_come)
        self.costs = self._costs(ready)
        if self.copy:
            self.copy.share(self.run.resolve(), self.prepared)
        self.board = self._row_scorer(ready)
        search = self._plan_search()
        for record in self._recorded():  # by drivers before this one
            self.clock.finished(record)
        self.console.print(
            f"{search.wanted} trials by {self.space.searcher}; {self.resources.explanation}; "
            f"stopping: {self.space.budget.stopping}, suggested {search.max_pending} apart"
        )
        self.tally = self._start_tally(search)
        try:
            self._search(search)
            self._confirm(search)
        except KeyboardInterrupt:
            self.tally.stage(INTERRUPTED)
            raise
        finally:
            self.tally.close()

    def _costs(self, ready: Prepared) -> dict[str, EncoderCost]:
        """Measure the cost of every kind of student before trials make the machine busy."""
        from distilbench.trials.costs import measure_costs, with_baselines

        settings, space = self.settings, self.space
        trained = ((space.method, params) for params in space.examples(get_method(space.method).costly))
        students = with_baselines(trained, self.widths, ready.vectors.width)
        with timed_stage(self.run, "costs", len(students)):
            return measure_costs(students, ready, self.inputs.corpus.sentences, settings.artifacts, self.console)

    def _row_scorer(self, ready: Prepared) -> RowScorer:
        """Score the teacher, and return what scores all else. A teacher that cannot be scored is refused here."""
        from distilbench.trials.rows import RowScorer

        settings, inputs, member = self.settings, self.inputs, self.member
        siblings = {other.name: other.run for other in self.members if other is not member}
        scoring = Scoring(self.run, ready, inputs.corpus, settings.scored_tasks(inputs.corpus.selection))
        board = RowScorer(scoring, member.name, settings.quantisations, self.console, self.costs, siblings)
        with self.clock.scoring(), timed_stage(self.run, "teacher", 1):
            next(board.references([], settings.seed))
        # A driver that continues the run scores it no more, so the first one's time is what is known.
        timed = [timing.seconds for timing in read_timings(self.run) if timing.stage == "teacher"]
        self.clock.row_s = max(self.clock.row_s, *timed, 0.0)
        self.clock.late_rows = len(self.widths)  # PCA at each
        return board

    def score_references(self, clock: Clock) -> None:
        """Score what students are compared with, while the sweep's `clock` has time; what is missing then is noted."""
        settings, width = self.settings, self.board.prepared.vectors.width
        sensible = [size for size in self.space.code_settings if 2 * size <= width]  # more is int4's
        if settings.faiss_baselines is None:
            peers = self.board.peers(sensible, USUAL_FAMILIES)
        else:
            peers = self.board.peers(settings.faiss_baselines)
        scores, widths = self.inputs.scores, [d for d in self.widths if d <= width]
        first = 1 + bool(scores) + 2 * len(widths)
        count = first + len(peers)
        ends = clock.late_end, clock.peers_end
        with (
            timed_stage(self.run, "references", count),
            progress("Teacher and baselines", count, "encoders") as advance,
        ):
            for done, _ in enumerate(self.board.references(widths, settings.seed, scores, peers), start=1):
                advance(1)
                if done < count and time.time() >= ends[done >= first]:
                    self._missing(f"time was over before all baselines were scored: {count - done} are missing.")
                    break

    def _plan_search(self) -> Search:
        settings, space, run = self.settings, self.space, self.run
        self.study = open_study(study_url(run), self.member.name, directions(settings.objectives))
        if "max_pending" not in self.study.user_attrs:  # suggestions depend on it: later drivers keep the first one's
            self.study.set_user_attr("max_pending", default_max_pending(self.resources.concurrency))
        starts = starts_for(
            space,
            space.budget.trials,
            [*self.member.enqueued, *saved_settings(run)],
            share_dimensions=len(settings.objectives) == 1,
        )
        trials = min(space.budget.trials, len(starts)) if space.is_grid else space.budget.trials
        return Search(
            name=self.member.name,
            space=space,
            objectives=settings.objectives,
            wanted=trials,
            starts=starts,
            max_pending=int(self.study.user_attrs["max_pending"]),
            seed=settings.seed,
            select=str(self.inputs.corpus.selection),
        )

    def _recorded(self) -> list[TrialRecord]:
        return read_trials(self.run / "trials.jsonl")

    def _start_tally(self, search: Search) -> Tally:
        from distilbench.progress.console import ProgressFile, on_console

        end = self.clock.search_end(0)
        self.console.print(f"A page to reload while it runs: {self.page.report / 'index.html'}", markup=False)
        tally = Tally(
            self.run,
            self.space.method,
            search.wanted,
            resources=self.resources.explanation,
            deadline=end if math.isfinite(end) else None,
            earlier=self._recorded(),
        )
        tally.listeners += [on_console(tally, self.console), ProgressFile(tally), self.page]
        tally.listeners += [StageTimes(self.run, self.resources.concurrency), *([self.copy] if self.copy else [])]
        return tally

    def _search(self, search: Search) -> None:
        self.tally.stage("search")
        for number in open_trials(self.study.get_trials(deepcopy=False)):
            remove_encoded(trial_folder(self.run, number))  # of an earlier driver, which took the student as it was
        budget = self.space.budget
        self.clock.steps_of = budget.steps_of
        sizes = max(len(self.space.dimensions), len(self.space.code_settings)) * max(1, len(self.space.students))
        # When the time is over, the best may still wait, and is itself trained to its end.
        each = budget.confirm.seeds if waits_at_rungs(budget) else budget.confirm.seeds - 1
        trainings = sizes * budget.confirm.top * each / self.resources.concurrency
        rows = len(self.groups) * budget.confirm.top * budget.confirm.seeds

        def deadline() -> float:
            if self.copy and self.copy.owner.lost:
                return 0.0
            end = self.clock.search_end(rows, trainings)
            return end if time.time() < end or self._serves_each_size() else self.clock.first_end(rows, trainings)

        def note_time(event: Event) -> None:
            if event.record and not event.record.confirms:
                self.clock.finished(event.record)

        self.tally.listeners.append(note_time)
        place = SearchPlace(self.run, self.prepared, self.resources, deadline, self.costs)
        run_trials(self.study, search, place, self.tally)

    def _serves_each_size(self) -> bool:
        """Whether there is a student of every number of bytes."""
        found = best_per_group(finished_trials(self.study))
        return {group.bytes for group in self.groups} <= {group.bytes for group in found}

    def _confirm(self, search: Search) -> None:
        """Train the best trials with more seeds, and score them; what is missing then is noted."""
        from distilbench.trials.rows import Finishing

        budget, member, trials = self.space.budget, self.member, self.study.get_trials(deepcopy=False)
        self.clock.keep_half()
        self._note_end(search)
        chosen = chosen_trials(trials, self.groups, budget.confirm.top, waiting=waits_at_rungs(budget))
        if not chosen:
            self._note_no_student(trials)
            self.tally.stage("done")
            return
        self.tally.stage("confirm")
        wait_for_idle(self.resources)
        jobs, tally = confirmation_jobs(self.run, search, chosen), self.tally
        ends = self.clock.training_end(len(jobs)), self.clock.scoring_end
        finishing = Finishing(*ends, tally.finished, lambda: tally.stage("score"), tally.counted)
        confirmed = self.board.students(jobs, self.prepared.resolve(), self.resources, finishing)
        member.unconfirmed = bool(confirmed.unfinished)
        for outcome in confirmed.failed:
            candidate = outcome.job.candidate
            self._missing(f"trial {candidate.trial} failed with seed {candidate.seed}: {outcome.failed}.")
        if member.unconfirmed:
            self._missing(f"time was over for {len(confirmed.unfinished)} of {len(jobs)} confirmations.")
        scored = {record.group for record in confirmed.records}
        self._without_student([g for g in self.groups if g not in chosen], "none of its trials was completed")
        unscored = [g for g in self.groups if g in chosen and g not in scored]
        self._without_student(unscored, "its best trial was not scored")
        write_confirmed(self.run, search, chosen)
        discard_checkpoints(self.run, {t.number for top in chosen.values() for t in top} | set(open_trials(trials)))
        self.tally.stage("done")

    def _note_end(self, search: Search) -> None:
        """Note why the search has fewer trials than it was to have."""
        ended = len(finished_trials(self.study))
        self.member.cut_off = ended < search.wanted
        if self.member.cut_off:
            self._missing(f"time was over after {ended} of {search.wanted} trials.")

    def _note_no_student(self, trials: Sequence[FrozenTrial]) -> None:
        reasons = sorted({str(t.user_attrs.get("reason")) for t in trials if t.user_attrs.get("reason")})
        why = "; ".join(reasons[:3]) or "time was over"
        if not self.member.cut_off:
            raise NoStudent(f"{self.run}: none of {len(trials)} trials was completed: {why}")
        self._missing(f"no student, since none of {len(trials)} trials got far enough: {why}.")

    def _without_student(self, groups: Sequence[CompetitionKey], why: str) -> None:
        what, between = ("student and bytes", "; ") if self.space.students else ("bytes", ", ")
        if groups:
            self._missing(f"no student of {what} per vector {between.join(map(str, groups))}: {why}.")

    def _missing(self, line: str) -> None:
        self.member.missing.append(f"{self.member.name}: {line}")


def open_trials(trials: Sequence[FrozenTrial]) -> list[int]:
    """Numbers of the trials that were interrupted."""
    return [t.number for t in trials if not t.state.is_finished()]
