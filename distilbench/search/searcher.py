"""Ray Tune's view of the study: suggestions come from it, results go to it, and it decides which trials go on.

Ray's own OptunaSearch tells Optuna that a trial stopped early is COMPLETE and leaves failed ones RUNNING; this one tells
PRUNED and FAIL truly, and continues the trials that a killed driver left RUNNING.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from distilbench.choices import QUALITY
from distilbench.codes import CompetitionKey, competition_key, stored_bytes
from distilbench.records import result_rung
from distilbench.search.front_patience import EXHAUSTED
from distilbench.search.search_plan import Search
from distilbench.search.stopping import make_verdicts, stopping_reason, waits_at_rungs
from distilbench.search.study import (
    LAST,
    MACHINE,
    PARAMS,
    STEPS,
    as_rung,
    begin_trial,
    judged_rungs,
    rung_key,
    trial_group,
    trial_params,
    trial_rungs,
)
from distilbench.search.suggestions import Suggestions
from distilbench.storage.files import write_json
from distilbench.storage.retry import StorageGone, retry_io

RETRIES, EXCUSED = 3, 60
"""Workers that a trial may lose at work; and before they begin (Ray gives work to a dead node for up to a minute), or with
their nodes."""

ALIKE = 5
"""Trials that may fail by the same error one after the other: it is then no matter of their hyper-parameters."""
UNEXPECTED = re.compile(r"\w+(Error|Exception): ")
"""How the reason of a failure begins that is neither of a collapse nor of bad input (`describe_error`)."""


class Events(Protocol):
    """Listens to a search while it runs."""

    def started(self, number: int, params: dict[str, Any]) -> None:
        """A trial begins, or goes on."""

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        """It has trained another slice."""

    def waiting(self, number: int) -> None:
        """It waits for its verdict, and its worker takes another trial."""

    def finished(self, trial: FrozenTrial) -> None:
        """It was told to the study."""


@dataclass
class _Live:
    """A trial between its beginning and its end in the study."""

    trial: optuna.Trial
    number: int
    params: dict[str, Any]
    rungs: dict[int, dict[str, Any]] = field(default_factory=dict)
    stored: int = -1
    """The last rung that the study has; rung 0 is the start, at which no verdict is made."""
    step: int = 0
    """The last step that was heard of, those included that were trained before a verdict came."""
    reported: set[int] = field(default_factory=set)
    """The rungs whose value Optuna has, which takes it once."""
    last: int | None = None
    """Its last rung, once it is there."""
    failed: str = ""
    ended: bool = False
    """Whether its training is over; what is left is a verdict on its rungs."""
    left: bool = False
    """Whether it was left RUNNING, for another time."""
    since: float = 0.0
    """When it was handed out."""
    waits: bool = False
    """Whether it was taken from its worker: for its verdict, or so that a number of bytes without a trial
    begins."""
    begun: bool = False
    """Whether its worker is at work."""
    node: str = ""
    """Ray's id of the node that it was heard from; "" before that."""
    lost_before: frozenset[str] = frozenset()
    """The nodes that were lost when it was handed out."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Its worker's machine, for its record."""
    lost: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """Workers that died, at work and before they began."""

    @property
    def group(self) -> CompetitionKey:
        return competition_key(self.params)


class StudySearcher(Searcher):  # type: ignore[misc]
    """Serves interrupted trials first, then new ones, at most `concurrency` at a time, until there are `wanted`.

    A trial that has to wait for its verdict (`Verdicts.is_pending`) gives its worker back, and is served again once it
    may go on.

    While an output dimension (a number of bytes, where trials compete within bytes) has no trial and `deadline()` (seconds
    since the epoch) is finite, a trial that has had one's share of the time waits at its next rung until all have begun.

    After `deadline()`, and when a trial says that storage is gone, no trial is begun and the
    running ones, and those that wait, are left as they are: RUNNING in the study, their checkpoints kept.
    """

    suggestions_type: ClassVar[type[Suggestions]] = Suggestions

    def __init__(
        self,
        study: optuna.Study,
        search: Search,
        concurrency: int,
        events: Events,
        deadline: Callable[[], float] = lambda: math.inf,
        lost_nodes: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        super().__init__(metric="rung", mode="max")
        self.study, self.space, self.objectives, self.wanted = study, search.space, search.objectives, search.wanted
        self.concurrency, self.events, self.deadline, self.lost_nodes = concurrency, events, deadline, lost_nodes
        self.suggestions = self.suggestions_type(search)
        self.verdicts = make_verdicts(self.space.budget)
        self.finished: dict[int, FrozenTrial] = {}
        self.live: dict[str, _Live] = {}
        self.unsettled: dict[int, _Live] = {}
        self.interrupted: list[_Live] = []
        self.waiting: dict[int, _Live] = {}
        """Trials without a worker that wait for their verdicts."""
        self.began = time.time()
        self.sizes = set((self.space.bytes_competed if len(self.objectives) == 1 else []) or self.space.dimensions)
        """Within which trials compete; with several objectives the dimensions, since the sampler chooses the code."""
        self.halted = ""
        """The reason that no trial is begun any more: storage is gone, or all fail."""
        self._alike = ("", 0)
        """The error by which the last trial failed, and how many did one after the other."""
        self.died: list[int] = []
        """Trials that failed since their workers died too often."""
        self._gone = False
        begun = study.get_trials(deepcopy=False)
        self.count = len(begun)
        for trial in begun:
            self._restore(trial)
        self.suggestions.repeat(begun)
        if self.count >= self.wanted:
            self.verdicts.close()
        self._settle()
        for live_trial in self.interrupted:
            # Killed between its last verdict and telling it.
            live_trial.ended = self.verdicts.is_settled(live_trial.number)
            if self.verdicts.is_pending(live_trial.number):
                self.waiting[live_trial.number] = live_trial
        self.interrupted = [o for o in self.interrupted if not o.ended and o.number not in self.waiting]
        self._settle()

    def _restore(self, trial: FrozenTrial) -> None:
        group, rungs = trial_group(trial), trial_rungs(trial)
        if trial.state.is_finished():
            self.finished[trial.number] = trial
            self.verdicts.restore(trial.number, group, judged_rungs(trial))
            if (last := trial.user_attrs.get(LAST)) is not None:
                self.verdicts.finish(trial.number, last)
            return
        again, stored = optuna.Trial(self.study, trial._trial_id), max(rungs, default=-1)
        live_trial = _Live(again, trial.number, trial_params(trial), dict(rungs), stored)
        self.verdicts.enter(trial.number, group)
        for rung, value in judged_rungs(trial).items():
            self.verdicts.report(trial.number, rung, value)
        live_trial.reported, live_trial.last = set(trial.intermediate_values), trial.user_attrs.get(LAST)
        if live_trial.last is not None:
            self.verdicts.finish(trial.number, live_trial.last)
        self.unsettled[trial.number] = live_trial
        self.interrupted.append(live_trial)

    @property
    def remaining(self) -> int:
        """Trials that have not ended and are not handed out."""
        return max(0, self.wanted - self.count) + len(self.interrupted)

    @property
    def over(self) -> bool:
        """Whether no more trials are begun."""
        return bool(self.halted) or time.time() >= self.deadline()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next trial's number and hyper-parameters; None while enough are running, or one has to end before it."""
        if self.over or not (self.remaining or self.live):
            return Searcher.FINISHED
        if not self.remaining or len(self.live) >= self.concurrency:  # one that is live may be handed out again
            return None
        live_trial = self._next_trial()
        if live_trial is None:
            finished = self.over or (self.suggestions.exhausted and not self.live)
            return Searcher.FINISHED if finished else None
        live_trial.node, live_trial.lost_before, live_trial.since = "", self.lost_nodes(), time.time()
        self.live[trial_id] = live_trial
        self.events.started(live_trial.number, live_trial.params)
        return {"number": live_trial.number, "params": live_trial.params}

    def _next_trial(self) -> _Live | None:
        """An interrupted trial, or else a new one; None where there is none for now."""
        makes_room = self._waiting_sizes() and all(trial.waits for trial in self.interrupted)
        if self.count < self.wanted and (not self.interrupted or makes_room):
            params = self.suggestions.ask(self._lookup)
            if params is not None:
                return self._begin(params)
            if self.suggestions.exhausted:
                self._end_exhausted()
        if not self.interrupted:
            return None
        live_trial = self.interrupted.pop(0)
        live_trial.waits = False
        return live_trial

    def _begin(self, params: dict[str, Any]) -> _Live | None:
        """Begin a new trial in the study; None where storage is gone."""
        suggested = self.suggestions.asked[-1]
        trial = self._stored(
            lambda: begin_trial(self.study, self.count, params, suggested.params, suggested.distributions)
        )
        if trial is None:
            return None
        live_trial = _Live(trial, self.count, params)
        self.count += 1
        self.verdicts.enter(live_trial.number, live_trial.group)
        self.unsettled[live_trial.number] = live_trial
        if self.count >= self.wanted:
            self.verdicts.close()
            self._settle()
        return live_trial

    def _end_exhausted(self) -> None:
        """No student improves the front any more: the trials that there are, are all."""
        self.wanted = self.count
        self.verdicts.close()
        self._stored(lambda: self.study.set_user_attr(EXHAUSTED, self.count))
        self._settle()

    def begun(self, trial_id: str) -> None:
        """The trial's worker is at work."""
        self.live[trial_id].begun = True

    def _stored(self, action: Callable[[], Any]) -> Any:
        """The result of `action`; None if storage is gone, after which the search ends."""
        if self._gone:  # it was waited for once
            return None
        try:
            return retry_io(action, what="the study")
        except StorageGone as error:
            self._gone, self.halted = True, self.halted or str(error)
            return None

    def report(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Take a running trial's report; whether it goes on."""
        live_trial = self.live[trial_id]
        rungs_before = len(live_trial.rungs)
        self._take(live_trial, result)
        if not live_trial.left and self.verdicts.stopped(live_trial.number) is not None:
            return False
        if self.over:
            live_trial.left = True
            return False
        self.events.progressed(live_trial.number, result)
        if not result["done"] and self.verdicts.is_pending(live_trial.number):
            live_trial.waits = True
            return False
        trained_on = len(live_trial.rungs) > rungs_before and max(live_trial.rungs) > 0
        if trained_on and not result["done"] and self._had_its_share(live_trial):
            live_trial.waits = True  # its checkpoint is of this rung: nothing is trained twice
            return False
        return True

    def _waiting_sizes(self) -> int:
        """The number of `sizes` that no trial has had yet; 0 without a deadline."""
        if math.isinf(self.deadline()) or self.count >= self.wanted:
            return 0
        begun = [trial_params(t) for t in self.finished.values()]
        begun += [live_trial.params for live_trial in self.unsettled.values()]
        coded = len(self.objectives) == 1
        return len(self.sizes - {(coded and stored_bytes(p)) or int(p["output_dim"]) for p in begun})

    def _had_its_share(self, live_trial: _Live) -> bool:
        if not self._waiting_sizes():
            return False
        share = (self.deadline() - self.began) * self.concurrency / len(self.sizes)
        return time.time() - live_trial.since >= share

    def _take(self, live_trial: _Live, result: dict[str, Any]) -> None:
        """Note the rungs that are new, and settle whatever they settle.

        A failure is of the last rung itself, unless `collapsed` is False in the result: the training went wrong after it.
        """
        live_trial.step = max(live_trial.step, int(result.get("step", 0)))
        live_trial.node = str(result.get("node", live_trial.node))
        live_trial.machine = dict(result.get("machine", live_trial.machine))
        if result.get("halt"):
            self.halted, live_trial.left = self.halted or str(result["halt"]), True
            return
        for rung in result["rungs"]:
            number = int(rung["rung"])
            if number not in live_trial.rungs:
                rung_values = {
                    **rung["metrics"],
                    **{key: rung[key] for key in ("step", "objective", "eligible") if key in rung},
                }
                failing = bool(result["failed"]) and bool(result.get("collapsed", True))
                collapsed = failing and rung is result["rungs"][-1]
                live_trial.rungs[number] = {**rung_values, "collapsed": True} if collapsed else rung_values
                if not collapsed:
                    self.verdicts.report(live_trial.number, number, _value(rung_values))
        if result["failed"]:
            live_trial.failed = str(result["failed"])
            self.verdicts.fail(live_trial.number)
        elif result["done"]:
            live_trial.last = max(live_trial.rungs)
            self.verdicts.finish(live_trial.number, live_trial.last)
        self._settle()

    def _settle(self) -> None:
        self.verdicts.decide()
        for live_trial in list(self.unsettled.values()):
            self._store(live_trial, self.verdicts.last_valid_rung(live_trial.number))
            if live_trial.number in self.waiting and not self.verdicts.is_pending(live_trial.number):
                del self.waiting[live_trial.number]
                live_trial.waits, live_trial.ended = False, self.verdicts.is_settled(live_trial.number)
                if not live_trial.ended:
                    self._serve_again(live_trial)
            if live_trial.ended and self.verdicts.is_settled(live_trial.number):
                self._tell(live_trial)

    def _store(self, live_trial: _Live, until: int) -> None:
        """Write the rungs up to `until` into the study; those after a stop are as if they had never been."""
        for rung in sorted(r for r in live_trial.rungs if live_trial.stored < r <= until):
            rung_values = live_trial.rungs[rung]

            def write(rung: int = rung, rung_values: dict[str, Any] = rung_values) -> bool:
                judged = rung and not rung_values.get("collapsed")
                if judged and len(self.objectives) == 1 and rung not in live_trial.reported:
                    live_trial.trial.report(_value(rung_values), rung)
                    live_trial.reported.add(rung)
                if rung == live_trial.last:
                    live_trial.trial.set_user_attr(LAST, rung)
                if live_trial.machine:
                    live_trial.trial.set_user_attr(MACHINE, live_trial.machine)
                live_trial.trial.set_user_attr(rung_key(rung), rung_values)  # after all else that belongs to the rung
                return True

            if not self._stored(write):
                return
            live_trial.stored = rung

    def _tell(self, live_trial: _Live) -> None:
        """Tell the study how the trial ended."""
        stopped, values = self.verdicts.stopped(live_trial.number), None
        if stopped is not None:
            state, reason = TrialState.PRUNED, stopping_reason(self.space.budget, stopped)
        elif live_trial.failed:
            state, reason = TrialState.FAIL, live_trial.failed
            self._store(live_trial, max(live_trial.rungs, default=0))
        else:
            state, reason = TrialState.COMPLETE, ""
            values = [self.values(live_trial)[name] for name in self.objectives]
            unknown = [name for name, value in zip(self.objectives, values, strict=True) if math.isnan(value)]
            if unknown:  # Optuna takes no such value
                state, values, reason = TrialState.FAIL, None, f"objective {unknown[0]} is nan"

        def tell() -> FrozenTrial:
            stored = live_trial.rungs.get(live_trial.stored, {})  # all that is known of one that waited for this driver
            live_trial.trial.set_user_attr(STEPS, max(live_trial.step, int(stored.get("step", 0))))
            if live_trial.machine:
                live_trial.trial.set_user_attr(MACHINE, live_trial.machine)
            live_trial.trial.set_user_attr("reason", reason)
            return self.study.tell(live_trial.trial, values, state, skip_if_finished=True)

        finished = self._stored(tell)
        if finished is not None:
            del self.unsettled[live_trial.number]
            self.finished[live_trial.number] = finished
            self._count_alike(reason if state == TrialState.FAIL else "")
            self._stored(lambda: self.events.finished(finished))

    def _count_alike(self, reason: str) -> None:
        """End the search where trials fail one after the other by the same error."""
        error = reason.splitlines()[0] if UNEXPECTED.match(reason) else ""
        self._alike = error, (self._alike[1] + 1 if error == self._alike[0] else 1)
        if error and self._alike[1] == ALIKE:
            said = f"{ALIKE} trials one after the other failed alike: {error}"
            self.halted = self.halted or f"{said}; the same command goes on with the other trials once that is mended"

    def values(self, live_trial: _Live) -> dict[str, float]:
        """The objectives' values of a trial that has come to its end."""
        result = result_rung([as_rung(number, rung_values) for number, rung_values in live_trial.rungs.items()])
        assert result is not None
        if len(self.objectives) == 1:
            return {QUALITY: _number(result.objective)}
        end = live_trial.rungs[max(live_trial.rungs)]  # what a student costs is noted there alone
        by_objective = {
            QUALITY: result.metrics["dev_quality"],
            "bytes": live_trial.group.bytes,
            "latency": end.get("latency_ms"),
            "model_bytes": end.get("model_bytes"),
        }
        return {name: _number(by_objective[name]) for name in self.objectives}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial's training has ended, or was stopped: tell the study as soon as its verdicts are all there."""
        live_trial = self.live.pop(trial_id, None)
        if live_trial is None or live_trial.left:
            return
        if live_trial.waits and not error:
            live_trial.begun = False
            if self.verdicts.is_pending(live_trial.number):
                self.waiting[live_trial.number] = live_trial
                self.events.waiting(live_trial.number)
            else:
                self._serve_again(live_trial)
            return
        if error or result is None or "rungs" not in result:
            live_trial.lost[live_trial.begun and not self._lost_its_node(live_trial)] += 1
            if live_trial.lost[True] <= RETRIES and live_trial.lost[False] <= EXCUSED:
                live_trial.begun = False
                self._serve_again(live_trial)
                return
            self.died.append(live_trial.number)
            live_trial.failed = "its worker died more often than is retried; see the run's tune folder"
            self.verdicts.fail(live_trial.number)
        else:
            self._take(live_trial, result)  # Tune passes a last result here only
        if not live_trial.left:
            live_trial.ended = True
            self._settle()

    def _lookup(self, number: int) -> FrozenTrial | None:
        """A finished trial; where trials wait at rungs, one that has not finished as it is in the study."""
        if number in self.finished or not waits_at_rungs(self.space.budget):
            return self.finished.get(number)
        if (live_trial := self.unsettled.get(number)) is None:  # storage was gone when it ended
            return None
        suggested = self.suggestions.asked[number]
        rungs = {rung: values for rung, values in live_trial.rungs.items() if rung <= live_trial.stored}
        ended = {LAST: live_trial.last} if live_trial.last is not None else {}
        return create_trial(
            state=TrialState.RUNNING,
            params=suggested.params,
            distributions=suggested.distributions,
            user_attrs={PARAMS: live_trial.params, **{rung_key(r): values for r, values in rungs.items()}, **ended},
        )

    def _serve_again(self, live_trial: _Live) -> None:
        """Hand it out before any new trial."""
        self.interrupted = sorted([*self.interrupted, live_trial], key=lambda o: o.number)

    def _lost_its_node(self, live_trial: _Live) -> bool:
        """Whether the trial is not at fault: its node is gone, as spot machines go."""
        lost = self.lost_nodes()
        return live_trial.node in lost if live_trial.node else bool(lost - live_trial.lost_before)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save but which study: its storage is the truth."""
        write_json(Path(checkpoint_path), {"study": self.study.study_name})

    def restore(self, checkpoint_path: str) -> None:
        """Not used: a resumed sweep is a new searcher over the same study."""
        raise NotImplementedError("open the study again and make a new StudySearcher")

    def __getstate__(self) -> dict[str, Any]:
        """Tune copies its settings to disk; the study stays in its storage."""
        return {"metric": self._metric, "mode": self._mode}


class RungScheduler(FIFOScheduler):  # type: ignore[misc]
    """Stops a trial whose rung the searcher does not let pass."""

    def __init__(self, searcher: StudySearcher) -> None:
        super().__init__()
        self.searcher = searcher

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """None: Tune begins trials in their order, and a worker that is free takes the one that nothing waits for yet.

        The choice of FIFOScheduler is the oldest trial that waits, whose own worker, being started, would be thrown away:
        with trials shorter than a worker's start there would never be a second one.
        """

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """CONTINUE or STOP."""
        go_on = self.searcher.report(trial.trial_id, result)
        return str(TrialScheduler.CONTINUE if go_on else TrialScheduler.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Forget Tune's own statistics of the trial: it keeps every trial to the end, and these are most of its size."""
        trial.run_metadata.metric_analysis.clear()
        trial.run_metadata.metric_n_steps.clear()


def _value(rung_values: dict[str, Any]) -> float:
    return _number(rung_values["objective"])


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
