"""Sweeps: search, confirm, score, publish; one method's run, or one for each of several methods under one leaderboard."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial
from rich.console import Console

from distilbench.cluster.nodes import nodes_line
from distilbench.cluster.resources import TrialResources, ray_cluster, trial_resources, wait_for_idle
from distilbench.cluster.run_copy import RunCopy, run_copy
from distilbench.codes import CompetitionKey
from distilbench.commands.afford import LEAST_S, afford, steps_before, with_steps
from distilbench.commands.corpus import load_corpus
from distilbench.commands.run import (
    check_encoders,
    one_writer,
    publish,
    report_folder,
    run_name,
)
from distilbench.commands.spaces import fitted_to_corpus, space_and_corpus, space_notes, space_of
from distilbench.commands.sweep_config import GROWS, of_students_added, sweep_config
from distilbench.commands.turns import Member, found_before, in_turn
from distilbench.data.corpus import Corpus
from distilbench.data.needs import Needs
from distilbench.errors import InputError
from distilbench.methods import get_method, method_names
from distilbench.methods.method import Method
from distilbench.methods.parts.wanted import wanted_by
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.progress import progress
from distilbench.prepare.stage import Made, prepare_corpus
from distilbench.progress.clock import Clock
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.reporting.closing import closing_lines
from distilbench.reporting.live_page import LivePage
from distilbench.reporting.runs import read_runs
from distilbench.search import earlier
from distilbench.search.confirm import chosen_trials, confirmation_jobs, worth_confirming, write_confirmed
from distilbench.search.fit import adapted
from distilbench.search.moving import RESTED
from distilbench.search.objectives import directions
from distilbench.search.run import Search, discard_checkpoints, run_trials
from distilbench.search.samplers import make_sampler
from distilbench.search.space import SearchSpace, check_setting, read_yaml
from distilbench.search.stopping import stopping_for, waits_at_rungs
from distilbench.search.study import TAKEN, finished_trials, starts_after, starts_for
from distilbench.search.study_place import check_place, claim_place, database_url
from distilbench.search.suggestions import default_lag
from distilbench.search.trial import trial_folder
from distilbench.settings.sweep import SweepSettings
from distilbench.stage_times import StageTimes, Took, keep, timed_stage
from distilbench.storage.files import bound_config, claim_folder, config_differences, write_json
from distilbench.storage.scratch import local_folder
from distilbench.trials.scoring import remove_encoded
from distilbench.trials.training_copy import remove_encoded_there
from distilbench.watchers import INTERRUPTED, SweepPlan, Watcher

if TYPE_CHECKING:
    from distilbench.trials.costs import StudentCost
    from distilbench.trials.rows import RowScorer

ROW_S = "row seconds"
"""User attribute of the study: how long the scoring of one encoder took."""
PROBE_S = 20.0
"""What measuring how fast trainings are takes, with the start of its workers."""
NO_MODELS = r"(^|/)(students|trials|confirm|predictions|before-\d+)/"
"""What of an earlier run is not read from storage to learn from it."""


def sweep(settings: SweepSettings, console: Console) -> Path:
    """Run or continue a sweep; the path of its leaderboard.

    Raises:
        InputError: bad input, found before anything is written; or storage is gone, and the same command goes on later.
    """
    clock = Clock(settings.time_budget)
    members, run = sweep_members(settings, console)
    several = len(members) > 1
    report = report_folder(settings, run)
    with one_writer(run), run_copy(settings.remote, settings.artifacts, run, report, console) as copy:
        for member in members:
            check_place(member.run, settings.study)
        for member in members:
            aside = _claim(settings, member, console)
            if copy and aside:
                copy.forget_trainings(member.run)
        if copy:
            copy.start()
        with ray_cluster(settings.address, settings.cpus, settings.dashboard):
            if line := nodes_line(settings.share.grow_to):
                console.print(line, markup=False)
            # One preparation for all: rows of one leaderboard are of one corpus.
            methods = [(get_method(member.space.method), member.space.possible) for member in members]
            keep(run, Took(stage="start", seconds=time.time() - clock.began))
            with timed_stage(run, "prepare", len(members[0].corpus.sentences)):
                wanted = wanted_by(methods)
                if any(_trains_own(member.run, get_method(member.space.method)) for member in members):
                    wanted = replace(wanted, students=tuple(dict.fromkeys([None, *wanted.students])))
                inputs = prepare_corpus(settings, members[0].corpus, wanted, console)
            begun: dict[Path, None] = {}
            for member, share, turn in in_turn(members, clock):
                if turn:
                    console.print(f"\n{member.space.method} ({turn})")
                begun[member.run] = None
                member.missing.clear()
                live = LivePage(report, run.name, list(begun))
                try:
                    _Sweep(settings, member, inputs, share, live, console, copy, members).carry_out()
                except NoStudent as error:
                    if not several:
                        raise
                    member.missing.append(str(error))
        with timed_stage(run, "report"):
            records = read_runs([member.run for member in members])
            page = _publish(settings, members, inputs.corpus, run, records)
        for line in closing_lines(records, run):
            console.print(line, markup=False, highlight=False)
        for line in dict.fromkeys(line for member in members for line in member.missing):
            console.print(line, markup=False, highlight=False)
        return page


def sweep_members(settings: SweepSettings, console: Console) -> tuple[list[Member], Path]:
    """The methods' spaces, their corpus, and the folder of the whole."""
    if settings.study is not None:
        database_url(settings.study)  # refused before anything is read
    all_methods = not settings.methods
    is_folder = settings.space is not None and settings.space.is_dir()
    names = list(settings.methods) or [name for name in method_names() if _has_space(settings, name)]
    if all_methods:  # heads take seconds: what they leave of their time is that of the methods after them
        names.sort(key=lambda name: get_method(name).trains_encoder)
    for option, file in (("--space", None if is_folder else settings.space), ("--enqueue", settings.enqueue)):
        if file is not None and (all_methods or len(names) > 1):
            raise InputError(f"{option} {file}: it is of one method; expected one --method with it")
    if settings.trials is not None and settings.trials < len(names):
        raise InputError(
            f"--trials {settings.trials}: {len(names)} methods share them, and each needs one; expected --trials "
            f"{len(names)} or more, or --method with {settings.trials} of {', '.join(names)}"
        )
    several = all_methods or len(names) > 1
    spaces_and_corpora: list[tuple[SearchSpace, Corpus]] = []
    needs, corpora = Needs(), dict[Needs, Corpus]()
    for name in names:
        try:
            method = get_method(name)
            check_encoders(settings)
            of_model = [o for o in ("latency", "model_bytes") if o in settings.objectives]
            if settings.given is not None and of_model and not method.trains_encoder:
                raise InputError(
                    f"--objectives {of_model[0]}: a head of {name} costs what the teacher costs, and --teacher-vectors has "
                    "no teacher"
                )
            fitted_space = space_and_corpus(settings, name, Console(quiet=True) if several else console, corpora)
            both = needs | method.needs(fitted_space[0].possible)
            if len(set(both.pair_tasks)) > 1:
                tasks = " and ".join(dict.fromkeys(both.pair_tasks))
                raise InputError(f"--method {name}: with the methods before it there are several pair tasks ({tasks})")
        except InputError as error:
            if not all_methods:
                raise
            console.print(f"{name} is left out: {error}", markup=False)
        else:
            spaces_and_corpora.append(fitted_space)
            needs = both
    if not spaces_and_corpora:
        raise InputError("--method all: none of the methods can be swept on these data")
    spaces, corpus = [space for space, _ in spaces_and_corpora], spaces_and_corpora[0][1]
    if several:
        spaces_and_corpora.clear()  # two of a large corpus need not be in memory
        corpora.clear()
        corpus = load_corpus(settings, needs, console)
        for number, space in enumerate(spaces):
            shipped = space_of(settings, space.method).shipped
            try:
                spaces[number] = fitted_to_corpus(settings, space, corpus, shipped=shipped)
            except InputError as error:
                raise InputError(f"--method {space.method}: {error}") from None
    name = run_name(settings, "all" if all_methods else "+".join(names), corpus)
    members = []
    for space, trials in zip(spaces, _shares(settings, spaces), strict=True):
        chosen = _chosen(settings, space, trials)
        folder = settings.runs / name / space.method if several else settings.runs / name
        member = Member(chosen, corpus, folder, f"{name}/{space.method}" if several else name)
        member.enqueued = _enqueued_settings(settings, chosen)
        member.notes = space_notes(space)
        for note in member.notes:
            console.print(note, markup=False)
        members.append(member)
    return members, settings.runs / name


def _has_space(settings: SweepSettings, method: str) -> bool:
    try:
        return bool(space_of(settings, method))
    except InputError:
        return False


def _shares(settings: SweepSettings, spaces: Sequence[SearchSpace]) -> list[int]:
    """Trials of each method: its space's number, or an equal share of --trials, the first ones taking what is left over."""
    if settings.trials is None:
        return [space.budget.trials for space in spaces]
    each, over = divmod(settings.trials, len(spaces))
    return [each + (number < over) for number in range(len(spaces))]


def _chosen(settings: SweepSettings, space: SearchSpace, trials: int) -> SearchSpace:
    """The space with what the command says instead of it."""
    for name in ("transfer", "enough"):
        if getattr(settings, name) and len(settings.objectives) > 1:
            raise InputError(f"--{name}: it is for one objective; expected --objectives quality alone with it")
    confirm = {"top": settings.top, "seeds": settings.confirm_seeds}
    confirmation = space.budget.confirm.model_copy(update={k: v for k, v in confirm.items() if v is not None})
    chosen = space.model_copy(update={"searcher": settings.searcher or space.searcher})
    stopping = stopping_for(chosen, len(settings.objectives), settings.stopping)
    budget = {"trials": trials, "stopping": stopping, "confirm": confirmation}
    chosen = chosen.model_copy(update={"budget": space.budget.model_copy(update=budget)})
    make_sampler(chosen, settings.seed, trials, len(settings.objectives))  # refuses what it cannot do
    return chosen


def _enqueued_settings(settings: SweepSettings, space: SearchSpace) -> list[dict[str, Any]]:
    if settings.enqueue is None:
        return []
    settings_read = read_yaml(settings.enqueue)
    if not isinstance(settings_read, list):
        raise InputError(f"{settings.enqueue}: expected a list of settings, such as - {{lr: 0.001}}")
    fields = {f.alias or n: f for n, f in get_method(space.method).params_type.model_fields.items()}
    for number, setting in enumerate(settings_read, start=1):
        check_setting(settings.enqueue, f"setting {number}", setting, space.asked or space.parameters, fields)
    return [left for setting in settings_read if (left := adapted(setting, space) if space.asked else setting)]


def wants_costs(settings: SweepSettings, space: SearchSpace) -> bool:
    """Whether what a student costs to embed with is asked for, or students of several kinds are compared."""
    compared = len(space.students) > 1
    return settings.speed or compared or bool({"latency", "model_bytes"} & set(settings.objectives))


def _trains_own(run: Path, method: type[Method]) -> bool:
    """Whether a run has trials that name no student, and so have trained that of its settings."""
    trials = (r for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord))
    return method.trains_encoder and any(r.params.get("student") is None for r in trials)


def _claim(settings: SweepSettings, member: Member, console: Console) -> bool:
    """Bind the run's folder to these settings; with --extend, also where it was bound to others.

    Whether its trials were set aside.
    """
    run, set_aside = member.run, False
    if steps := steps_before(run, member.space):  # the time was short when it was begun
        member.asked_steps, member.space = member.space.budget.steps, with_steps(member.space, steps)
    config = sweep_config(settings, member.space, member.corpus, member.enqueued, member.asked_steps)
    bound = bound_config(run)
    if settings.extend and bound is not None:
        differing = {key for key, _ in config_differences(bound, config)} - GROWS - {"earlier"}
        added = of_students_added(differing, bound, config)
        if not differing or not earlier.is_begun(run):
            config["earlier"] = bound.get("earlier")
        elif differing - added <= earlier.SEARCH_KEYS - {"seed"}:
            config["earlier"] = bound.get("earlier")
            earlier.carry_over(run, member.space, directions(settings.objectives))
            console.print(f"{run}: the search goes on with its trials, in the new space", markup=False)
        else:
            aside, set_aside = earlier.set_aside(run, member.space), True
            console.print(
                f"{run}: with other settings ({', '.join(sorted(differing))}) its values do not compare: they are in "
                f"{aside.name}, and its best settings are tried first",
                markup=False,
            )
        write_json(run / "config.json", config)
    elif settings.extend and any(run.glob("before-*")):  # killed after what was there had been set aside
        write_json(run / "config.json", config)
        set_aside = True
    elif settings.warm_start is not None and not (run / earlier.FILE).exists():  # also where it was killed before
        source = local_folder(settings.warm_start, "--warm-start", leave_out=NO_MODELS)
        source = source / member.space.method if (source / member.space.method).is_dir() else source
        taken_over = earlier.take_over(source, config, member.space)
        claim_folder(run, config, may_change=GROWS)
        earlier.keep_earlier(run, taken_over)
        what = f"{len(taken_over.history)} trials of {source} are known to the searcher"
        if taken_over.settings:
            what = f"{source} measured something else, so {len(taken_over.settings)} of its settings are tried first"
        console.print(what, markup=False)
    else:
        hint = ", or continue them as they are with --extend"
        claim_folder(run, config, may_change=GROWS, hint=hint)
    return set_aside


class NoStudent(InputError):
    """None of a method's trials got far enough to give a student."""


class _Sweep:
    """One method's run, from preparation to its scores."""

    def __init__(
        self,
        settings: SweepSettings,
        member: Member,
        inputs: Made,
        clock: Clock,
        page: LivePage,
        console: Console,
        copy: RunCopy | None = None,
        members: Sequence[Member] = (),
    ) -> None:
        self.settings, self.member, self.inputs, self.clock, self.console = settings, member, inputs, clock, console
        self.page, self.copy = page, copy
        self.beside = {other.name: other.run for other in members if other is not member}
        """The runs of the other methods."""
        self.found_before = found_before(member, members, settings.objectives)
        self.run, self.space = member.run, member.space
        self.ended_since = ""
        """Why the search ended before its last trial, where that was not the time."""
        self.widths = self.space.judged_widths(get_method(self.space.method).judged_widths)
        """Every width that a student is judged at."""
        self.groups = self.space.groups(get_method(self.space.method).judged_widths)
        """Every group of which a student is chosen."""

    def carry_out(self) -> None:
        """Every stage after the preparation; leaves the member's scores and notes.

        Raises:
            NoStudent: no trial was completed, and not for want of time.
        """
        from distilbench.trials.rows import RowScorer

        settings, member, inputs, run, space = self.settings, self.member, self.inputs, self.run, self.space
        prepared = run / "prepared"
        inputs.save(prepared, settings)
        ready = load_prepared(prepared.resolve())
        resources = trial_resources(settings.share)
        self.costs = costs = self._costs(ready, prepared)
        self.place = self.copy.place(run.resolve(), prepared) if self.copy else None
        board = RowScorer(
            run,
            member.name,
            ready,
            inputs.corpus,
            settings.quantisations,
            self.console,
            self.place,
            settings.scored_tasks(inputs.corpus.selection),
            costs,
            self.beside,
        )
        sensible = [size for size in space.bytes_competed if 2 * size <= ready.vectors.width]  # more is int4's
        peers = settings.peers or sensible
        references = 1 + 2 * len(self.widths) + len(peers)
        with (
            self.clock.scoring(rows=references),
            timed_stage(run, "references", references),
            progress("Teacher and baselines", references, "encoders") as advance,
        ):
            member.scores += board.references(self.widths, settings.seed, inputs.scores, advance)
            member.scores += board.peers(peers, settings.seed, advance)
        self._afford(resources)
        search = self.search(resources)
        self._estimate()
        self.console.print(f"{search.wanted} trials by {space.searcher}; {resources.explanation}; {self._how(search)}")
        watchers = self._watchers(search, resources)
        try:
            self._search(search, resources, watchers, costs=bool(costs))
            self._confirm(search, resources, watchers, board, prepared)
        except KeyboardInterrupt:
            self._stage(watchers, INTERRUPTED)
            raise
        finally:
            for watcher in watchers:
                watcher.close()

    def _costs(self, ready: Prepared, prepared: Path) -> dict[str, StudentCost]:
        """What every kind of student costs, where that is wanted: measured before trials make the machine busy."""
        from distilbench.trials.cost_bench import kind_of, measure_costs
        from distilbench.trials.rows import BASELINES

        if not wants_costs(self.settings, self.space):
            return {}
        method = get_method(self.space.method)
        kinds = [kind_of(method_name, {"output_dim": d}) for method_name in BASELINES for d in self.widths]
        kinds = [kind for kind in kinds if kind.params["output_dim"] <= ready.vectors.width]
        kinds += [kind_of(self.space.method, params) for params in self.space.examples(method.costly)]
        texts, store = self.inputs.corpus.sentences, self.settings.artifacts
        with timed_stage(self.run, "costs", len(kinds)):
            return measure_costs(kinds, ready, texts, prepared, store, self.console)

    def _how(self, search: Search) -> str:
        stopping = {
            "halving": "successive halving",
            "asha": "ASHA",
            "median": "median stopping",
            "none": "no early stopping",
        }[self.space.budget.stopping]
        apart = f"suggested {search.lag} apart" if search.lag else "suggested from all that is known"
        return f"{stopping}, {apart}"

    def _afford(self, resources: TrialResources) -> None:
        """Shorten the trials of a search that begins, where they do not fit into the time."""
        rows, trainings = self._after_search()
        began, end = time.time(), self.clock.search_end(rows)
        begun = self.member.asked_steps or self.settings.warm_start or earlier.is_begun(self.run)
        if begun or math.isinf(end) or end - began < LEAST_S:
            return
        space = self.space
        self.space, told = afford(
            space, self.run, resources, self.place, self.settings.seed, end - began - PROBE_S, trainings
        )
        if told:
            self.console.print(told, markup=False)
        if self.space is not space:
            self.member.space, self.member.asked_steps = self.space, space.budget.steps
            self.member.notes.append(f"{told}.")

    def _after_search(self) -> tuple[int, int]:
        """How many encoders are scored after the search, and how many trainings confirm its trials."""
        confirm = self.space.budget.confirm
        sizes = max(len(self.space.dimensions), len(self.space.bytes_competed)) * max(1, len(self.space.students))
        # When the time is over, the best may still wait, and is itself trained to its end.
        trainings = confirm.seeds if waits_at_rungs(self.space.budget) else confirm.seeds - 1
        return len(self.groups) * confirm.top * confirm.seeds, sizes * confirm.top * trainings

    def search(self, resources: TrialResources) -> Search:
        """The plan of the search; the study is made, or opened."""
        settings, space, run = self.settings, self.space, self.run
        place = claim_place(run, settings.study, self.member.name)
        self.study = place.open(directions(settings.objectives))
        study_lag = self.study.user_attrs.get("lag")
        lag = settings.lag if settings.lag is not None else default_lag(resources.concurrency)
        if study_lag is None:
            self.study.set_user_attr("lag", lag)
        elif settings.lag not in (None, study_lag):
            raise InputError(
                f"--lag {settings.lag}: {run} was begun with {study_lag}; expected the same, or another --name"
            )
        else:
            lag = int(study_lag)
        earlier_trials = earlier.kept_earlier(run)
        starts = starts_for(
            space,
            space.budget.trials,
            settings.seed,
            [*self.member.enqueued, *earlier_trials.settings],
            share_dimensions=len(settings.objectives) == 1,
        )
        trials = space.budget.trials
        if space.searcher == "grid":
            restored = self.study.get_trials(deepcopy=False)[: self.study.user_attrs.get(TAKEN, 0)]
            trials = min(trials, len(starts_after(starts, restored)))
        history = earlier.as_frozen(earlier_trials.history, space, len(settings.objectives))
        found = (starts, lag, settings.seed, history, str(self.inputs.corpus.selection), self.found_before)
        ends = (settings.transfer, settings.enough)
        return Search(self.member.name, space, settings.objectives, trials, *found, *ends)

    def _estimate(self) -> None:
        """What drivers before this one have measured, where this one has nothing to measure."""
        recorded_row_s = self.study.user_attrs.get(ROW_S, 0.0)
        self.clock.row_s = max(self.clock.row_s, recorded_row_s)
        if self.clock.row_s > recorded_row_s:
            self.study.set_user_attr(ROW_S, self.clock.row_s)
        for record in self._recorded():
            self.clock.finished(record)

    def _recorded(self) -> list[TrialRecord]:
        return [r for r in read_records(self.run / "trials.jsonl") if isinstance(r, TrialRecord)]

    def _watchers(self, search: Search, resources: TrialResources) -> list[Watcher]:
        from distilbench.progress.live import on_console
        from distilbench.progress.progress_file import ProgressFile
        from distilbench.progress.ray_metrics import RayMetrics
        from distilbench.progress.run_log import LoggedSearch
        from distilbench.progress.tally import Tally

        end, budget = self.clock.search_end(0), self.space.budget
        plan = SweepPlan(
            run=self.run,
            method=self.space.method,
            trials=search.wanted,
            resources=resources.explanation,
            deadline=end if math.isfinite(end) else None,
            halved=(budget.rungs, budget.eta) if waits_at_rungs(budget) else None,
            earlier=tuple(self._recorded()),
        )
        self.console.print(f"A page to reload while it runs: {self.page.report / 'index.html'}", markup=False)
        times = StageTimes(self.run, resources.concurrency)
        copying: list[Watcher] = [self.copy] if self.copy else []
        tally = Tally(plan)
        shown: list[Watcher] = [on_console(tally, self.console), ProgressFile(tally), RayMetrics(tally)]
        shown.append(LoggedSearch(tally))
        return [tally, *shown, self.page, times, *copying]

    def _search(self, search: Search, resources: TrialResources, watchers: Sequence[Watcher], *, costs: bool) -> None:
        settings = self.settings
        self._stage(watchers, "search")
        for number in open_trials(self.study.get_trials(deepcopy=False)):
            remove_encoded(trial_folder(self.run, number))  # of an earlier driver, which took the student as it was
            if self.copy:
                remove_encoded_there(self.copy.remote_of(trial_folder(self.run, number)))
        rows, trainings = self._after_search()
        self.clock.steps_of = self.space.budget.steps_of

        def deadline() -> float:
            if self.copy and self.copy.lost:
                return 0.0
            return self.clock.search_end(rows, trainings / resources.concurrency)

        callbacks: list[Any] = []
        if settings.mlflow or settings.wandb:
            from distilbench.progress.loggers import callbacks as make_callbacks

            callbacks = make_callbacks(settings.mlflow, settings.wandb, self.member.name)
        self.ended_since = run_trials(
            self.run,
            self.run / "prepared",
            self.study,
            search,
            resources,
            [*watchers, self.clock],
            deadline=deadline,
            costs=costs,
            callbacks=callbacks,
            place=self.place,
            forget=self.copy.forget if self.copy else lambda folder: None,
        )

    def _confirm(
        self,
        search: Search,
        resources: TrialResources,
        watchers: Sequence[Watcher],
        board: RowScorer,
        prepared: Path,
    ) -> None:
        space, member, trials = self.space, self.member, self.study.get_trials(deepcopy=False)
        ended = len(finished_trials(self.study))
        rested = ended == self.study.user_attrs.get(RESTED) or bool(self.ended_since)
        member.cut_off = ended < search.wanted and not rested
        if self.ended_since and ended < search.wanted:
            member.missing.append(
                f"{search.name}: the search ended after {ended} of {search.wanted} trials: {self.ended_since}."
            )
        if member.cut_off:
            member.missing.append(f"{search.name}: time was over after {ended} of {search.wanted} trials.")
        elif ended < search.wanted:
            member.notes.append(f"{search.name}: {ended} of {search.wanted} trials, since no more moved the front.")
        found = chosen_trials(trials, self.groups, space.budget.confirm.top, waiting=waits_at_rungs(space.budget))
        chosen = worth_confirming(found, search, self.costs)
        if not found:
            reasons = sorted({str(t.user_attrs.get("reason")) for t in trials if t.user_attrs.get("reason")})
            why = "; ".join(reasons[:3]) or "time was over"
            if not member.cut_off:
                raise NoStudent(f"{self.run}: none of {len(trials)} trials was completed: {why}")
            member.missing.append(
                f"{search.name}: no student, since none of {len(trials)} trials got far enough: {why}."
            )
            self._stage(watchers, "done")
            return
        if len(chosen) < len(found):
            left = "; ".join(str(group) for group in found if group not in chosen)
            member.notes.append(f"{search.name}: not confirmed, since another is better and costs no more: {left}.")
        self._stage(watchers, "confirm")
        wait_for_idle(resources)
        jobs = confirmation_jobs(self.run, search, chosen)

        def on_record(record: TrialRecord) -> None:
            for watcher in watchers:
                watcher.finished(record)

        def on_counted(done: int, total: int) -> None:
            for watcher in watchers:
                watcher.counted(done, total)

        confirmed = board.students(
            jobs,
            prepared.resolve(),
            resources,
            train_until=self.clock.training_end(len(jobs)),
            score_until=self.clock.scoring_end,
            on_record=on_record,
            on_scoring=lambda: self._stage(watchers, "score"),
            on_counted=on_counted,
        )
        member.scores += confirmed.records
        for outcome in confirmed.failed:
            candidate = outcome.job.candidate
            member.missing.append(
                f"{search.name}: trial {candidate.trial} failed with seed {candidate.seed}: {outcome.failed}."
            )
        member.unconfirmed = bool(confirmed.unfinished)
        if member.unconfirmed:
            member.missing.append(
                f"{search.name}: time was over for {len(confirmed.unfinished)} of {len(jobs)} confirmations."
            )
        member.missing += self._without_student(search.name, chosen, found, confirmed.records)
        write_confirmed(self.run, search, chosen)
        keep = {t.number for dim_trials in chosen.values() for t in dim_trials} | set(open_trials(trials))
        discard_checkpoints(self.run, keep)
        if self.copy:
            self.copy.keep_trainings(self.run, {trial_folder(self.run, number).name for number in keep})
        self._stage(watchers, "done")

    def _without_student(
        self,
        name: str,
        chosen: Collection[CompetitionKey],
        found: Collection[CompetitionKey],
        records: Sequence[ScoreRecord],
    ) -> Iterator[str]:
        """Why a number of bytes has no student on the leaderboard."""
        what = ("student and " if self.space.students else "") + ("bytes per vector")
        scored = {record.group for record in records}
        untrained = [str(group) for group in self.groups if group not in found]
        unscored = [str(group) for group in self.groups if group in chosen and group not in scored]
        between = "; " if self.space.students else ", "
        if untrained:
            yield f"{name}: no student of {what} {between.join(untrained)}: none of its trials was completed."
        if unscored:
            yield f"{name}: no student of {what} {between.join(unscored)}: its best trial was not scored."

    def _stage(self, watchers: Sequence[Watcher], name: str) -> None:
        for watcher in watchers:
            watcher.stage(name)


def open_trials(trials: Sequence[FrozenTrial]) -> list[int]:
    """Numbers of the trials that were interrupted."""
    return [t.number for t in trials if not t.state.is_finished()]


def _publish(
    settings: SweepSettings,
    members: Sequence[Member],
    corpus: Corpus,
    run: Path,
    records: Sequence[ScoreRecord | TrialRecord],
) -> Path:
    folders = [member.run for member in members]
    notes = list(dict.fromkeys(note for member in members for note in (*member.notes, *member.missing)))
    return publish(settings, corpus, run, records, notes, folders=folders)
