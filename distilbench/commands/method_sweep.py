"""One method's run in a sweep, stage by stage: references, search, confirmation, scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from optuna.trial import FrozenTrial
from rich.console import Console

from distilbench.cluster.resources import trial_resources, wait_for_idle
from distilbench.cluster.run_copy import RunCopy
from distilbench.codes import CompetitionKey
from distilbench.commands.schedule_methods import MethodRun, points_found_before
from distilbench.errors import InputError
from distilbench.events import INTERRUPTED, Event
from distilbench.methods import get_method
from distilbench.prepare.artifacts import Artifacts
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.progress import progress
from distilbench.progress.clock import Clock
from distilbench.progress.tally import SweepPlan, Tally
from distilbench.records import EncoderCost, TrialRecord, read_records
from distilbench.reporting.live_page import LivePage
from distilbench.search.confirm import chosen_trials, confirmation_jobs, worth_confirming, write_confirmed
from distilbench.search.front_patience import EXHAUSTED
from distilbench.search.objectives import directions
from distilbench.search.run_trials import SearchPlace, discard_checkpoints, run_trials
from distilbench.search.search_plan import Search
from distilbench.search.starts import saved_settings, starts_for
from distilbench.search.stopping import waits_at_rungs
from distilbench.search.study import finished_trials, open_study, study_url
from distilbench.search.suggestions import default_max_pending
from distilbench.search.trial import trial_folder
from distilbench.settings.sweep import SweepSettings
from distilbench.stage_times import StageTimes, timed_stage
from distilbench.trials.scoring import Scoring, remove_encoded

if TYPE_CHECKING:
    from distilbench.trials.rows import Finishing, RowScorer

STOPPING = {
    "halving": "successive halving",
    "asha": "ASHA",
    "median": "median stopping",
    "none": "no early stopping",
}
ROW_S = "row seconds"
"""User attribute of the study: how long the scoring of one encoder took."""


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
        self.settings, self.member, self.inputs, self.clock = settings, member, inputs, clock
        self.console, self.page, self.copy = around
        self.sibling_runs = {other.name: other.run for other in members if other is not member}
        self.baseline_points = points_found_before(member, members, settings.objectives)
        self.run, self.space, self.prepared = member.run, member.space, member.run / "prepared"
        method = get_method(self.space.method)
        self.widths = self.space.judged_widths(method.judged_widths)
        """Every width that a student is judged at."""
        self.groups = self.space.groups(method.judged_widths)
        """Every group of which a student is chosen."""

    def carry_out(self) -> None:
        """Carry out every stage after the preparation; leaves the member's scores and notes."""
        self.inputs.save(self.prepared)
        ready = load_prepared(self.prepared.resolve())
        self.resources = trial_resources(self.settings.share)
        self.costs = self._costs(ready)
        if self.copy:
            self.copy.share(self.run.resolve(), self.prepared)
        board = self._references(ready)
        search = self._plan_search()
        self._estimate()
        how = f"{STOPPING[self.space.budget.stopping]}, suggested {search.max_pending} apart"
        self.console.print(f"{search.wanted} trials by {self.space.searcher}; {self.resources.explanation}; {how}")
        self.tally = self._start_tally(search)
        try:
            self._search(search)
            self._confirm(search, board)
        except KeyboardInterrupt:
            self.tally.stage(INTERRUPTED)
            raise
        finally:
            self.tally.close()

    def _references(self, ready: Prepared) -> RowScorer:
        """Score the teacher, the baselines and FAISS's codes; the scorer goes on with the students."""
        from distilbench.trials.rows import RowScorer

        settings, inputs, member = self.settings, self.inputs, self.member
        scoring = Scoring(self.run, ready, inputs.corpus, settings.scored_tasks(inputs.corpus.selection))
        board = RowScorer(scoring, member.name, settings.quantisations, self.console, self.costs, self.sibling_runs)
        sensible = [size for size in self.space.bytes_competed if 2 * size <= ready.vectors.width]  # more is int4's
        sizes = settings.faiss_baselines or sensible
        references = 1 + 2 * len(self.widths) + len(sizes)
        with (
            self.clock.scoring(rows=references),
            timed_stage(self.run, "references", references),
            progress("Teacher and baselines", references, "encoders") as advance,
        ):
            member.scores += board.references(self.widths, settings.seed, inputs.scores, advance)
            member.scores += board.peers(sizes, settings.seed, advance)
        return board

    def _costs(self, ready: Prepared) -> dict[str, EncoderCost]:
        """Measure the cost of every kind of student, if that is wanted, before trials make the machine busy."""
        from distilbench.trials.cost_bench import kind_of, measure_costs
        from distilbench.trials.costs import write_costs
        from distilbench.trials.rows import BASELINES

        settings, space = self.settings, self.space
        of_model = {"latency", "model_bytes"} & set(settings.objectives)
        if not (settings.measure_speed or of_model or len(space.students) > 1):
            return {}
        method = get_method(space.method)
        kinds = [kind_of(method_name, {"output_dim": d}) for method_name in BASELINES for d in self.widths]
        kinds = [kind for kind in kinds if kind.params["output_dim"] <= ready.vectors.width]
        kinds += [kind_of(space.method, params) for params in space.examples(method.costly)]
        with timed_stage(self.run, "costs", len(kinds)):
            costs = measure_costs(kinds, ready, self.inputs.corpus.sentences, settings.artifacts, self.console)
        write_costs(self.prepared, costs)
        return costs

    def _after_search(self) -> tuple[int, int]:
        """The number of encoders to score after the search, and of trainings that confirm its trials."""
        confirm = self.space.budget.confirm
        sizes = max(len(self.space.dimensions), len(self.space.bytes_competed)) * max(1, len(self.space.students))
        # When the time is over, the best may still wait, and is itself trained to its end.
        trainings = confirm.seeds if waits_at_rungs(self.space.budget) else confirm.seeds - 1
        return len(self.groups) * confirm.top * confirm.seeds, sizes * confirm.top * trainings

    def _plan_search(self) -> Search:
        """The plan of the search; the study is made, or opened."""
        settings, space, run = self.settings, self.space, self.run
        self.study = open_study(study_url(run), self.member.name, directions(settings.objectives))
        if "max_pending" not in self.study.user_attrs:  # suggestions depend on it: later drivers keep the first one's
            self.study.set_user_attr("max_pending", default_max_pending(self.resources.concurrency))
        starts = starts_for(
            space,
            space.budget.trials,
            settings.seed,
            [*self.member.enqueued, *saved_settings(run)],
            share_dimensions=len(settings.objectives) == 1,
        )
        trials = min(space.budget.trials, len(starts)) if space.searcher == "grid" else space.budget.trials
        return Search(
            name=self.member.name,
            space=space,
            objectives=settings.objectives,
            wanted=trials,
            starts=starts,
            max_pending=int(self.study.user_attrs["max_pending"]),
            seed=settings.seed,
            select=str(self.inputs.corpus.selection),
            baseline_points=self.baseline_points,
        )

    def _estimate(self) -> None:
        """Tell the clock what drivers before this one have measured."""
        recorded_row_s = self.study.user_attrs.get(ROW_S, 0.0)
        self.clock.row_s = max(self.clock.row_s, recorded_row_s)
        if self.clock.row_s > recorded_row_s:
            self.study.set_user_attr(ROW_S, self.clock.row_s)
        for record in self._recorded():
            self.clock.finished(record)

    def _recorded(self) -> list[TrialRecord]:
        return [r for r in read_records(self.run / "trials.jsonl") if isinstance(r, TrialRecord)]

    def _start_tally(self, search: Search) -> Tally:
        from distilbench.progress.console import on_console
        from distilbench.progress.file import ProgressFile
        from distilbench.progress.loggers import make_loggers

        end = self.clock.search_end(0)
        plan = SweepPlan(
            run=self.run,
            method=self.space.method,
            trials=search.wanted,
            resources=self.resources.explanation,
            deadline=end if math.isfinite(end) else None,
            earlier=tuple(self._recorded()),
        )
        self.console.print(f"A page to reload while it runs: {self.page.report / 'index.html'}", markup=False)
        tally = Tally(plan)
        tally.listeners += [on_console(tally, self.console), ProgressFile(tally), self.page]
        tally.listeners += [StageTimes(self.run, self.resources.concurrency), *([self.copy] if self.copy else [])]
        tally.listeners += make_loggers(self.settings.log_to, self.run, self.member.name)
        return tally

    def _search(self, search: Search) -> None:
        self.tally.stage("search")
        for number in open_trials(self.study.get_trials(deepcopy=False)):
            remove_encoded(trial_folder(self.run, number))  # of an earlier driver, which took the student as it was
        rows, trainings = self._after_search()
        self.clock.steps_of = self.space.budget.steps_of

        def deadline() -> float:
            if self.copy and self.copy.lost:
                return 0.0
            return self.clock.search_end(rows, trainings / self.resources.concurrency)

        def note_time(event: Event) -> None:
            if event.record and not event.record.confirms:
                self.clock.finished(event.record)

        self.tally.listeners.append(note_time)
        place = SearchPlace(self.run, self.prepared, self.resources, deadline, bool(self.costs))
        run_trials(self.study, search, place, self.tally)

    def _confirm(self, search: Search, board: RowScorer) -> None:
        space, member, trials = self.space, self.member, self.study.get_trials(deepcopy=False)
        self._note_end(search)
        found = chosen_trials(trials, self.groups, space.budget.confirm.top, waiting=waits_at_rungs(space.budget))
        chosen = worth_confirming(found, search, self.costs)
        if not found:
            self._note_no_student(trials)
            self.tally.stage("done")
            return
        if len(chosen) < len(found):
            left = "; ".join(str(group) for group in found if group not in chosen)
            member.notes.append(f"{search.name}: not confirmed, since another is better and costs no more: {left}.")
        self.tally.stage("confirm")
        wait_for_idle(self.resources)
        jobs = confirmation_jobs(self.run, search, chosen)
        confirmed = board.students(jobs, self.prepared.resolve(), self.resources, self._finishing(len(jobs)))
        member.scores += confirmed.records
        member.unconfirmed = bool(confirmed.unfinished)
        for job, why in ((outcome.job.candidate, outcome.failed) for outcome in confirmed.failed):
            self._missing(f"trial {job.trial} failed with seed {job.seed}: {why}.")
        if member.unconfirmed:
            self._missing(f"time was over for {len(confirmed.unfinished)} of {len(jobs)} confirmations.")
        scored = {record.group for record in confirmed.records}
        self._without_student([g for g in self.groups if g not in found], "none of its trials was completed")
        self._without_student(
            [g for g in self.groups if g in chosen and g not in scored], "its best trial was not scored"
        )
        write_confirmed(self.run, search, chosen)
        keep = {t.number for ranked in chosen.values() for t in ranked} | set(open_trials(trials))
        discard_checkpoints(self.run, keep)
        self.tally.stage("done")

    def _note_end(self, search: Search) -> None:
        """Note why the search has fewer trials than it was to have."""
        ended = len(finished_trials(self.study))
        exhausted = ended == self.study.user_attrs.get(EXHAUSTED)
        self.member.cut_off = ended < search.wanted and not exhausted
        if self.member.cut_off:
            self._missing(f"time was over after {ended} of {search.wanted} trials.")
        elif ended < search.wanted:
            note = f"{search.name}: {ended} of {search.wanted} trials, since no more moved the front."
            self.member.notes.append(note)

    def _missing(self, line: str) -> None:
        self.member.missing.append(f"{self.member.name}: {line}")

    def _note_no_student(self, trials: Sequence[FrozenTrial]) -> None:
        reasons = sorted({str(t.user_attrs.get("reason")) for t in trials if t.user_attrs.get("reason")})
        why = "; ".join(reasons[:3]) or "time was over"
        if not self.member.cut_off:
            raise NoStudent(f"{self.run}: none of {len(trials)} trials was completed: {why}")
        self._missing(f"no student, since none of {len(trials)} trials got far enough: {why}.")

    def _finishing(self, jobs: int) -> Finishing:
        """When the confirmation of so many jobs ends; the tally is told of it."""
        from distilbench.trials.rows import Finishing

        ends, tally = (self.clock.training_end(jobs), self.clock.scoring_end), self.tally
        return Finishing(*ends, tally.finished, lambda: tally.stage("score"), tally.counted)

    def _without_student(self, groups: Sequence[CompetitionKey], why: str) -> None:
        """Note the groups without a student on the leaderboard."""
        what, between = ("student and bytes", "; ") if self.space.students else ("bytes", ", ")
        if groups:
            self._missing(f"no student of {what} per vector {between.join(map(str, groups))}: {why}.")


def open_trials(trials: Sequence[FrozenTrial]) -> list[int]:
    """Numbers of the trials that were interrupted."""
    return [t.number for t in trials if not t.state.is_finished()]
