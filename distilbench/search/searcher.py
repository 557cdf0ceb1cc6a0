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
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from distilbench.choices import QUALITY
from distilbench.codes import CompetitionKey, competition_key
from distilbench.records import result_rung
from distilbench.search.search_plan import Search
from distilbench.search.stopping import Halving, Verdicts, stopping_reason, waits_at_rungs
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
"""Workers that a trial may lose at work; and before they begin (Ray gives work to a dead node for up to a minute), or while
nodes are lost."""

ALIKE = 5
"""Trials that may fail by the same error one after the other: it is then no matter of their hyper-parameters."""
UNEXPECTED = re.compile(r"\w+(Error|Exception): ")
"""How the reason of a failure begins that is neither of a collapse nor of bad input (`describe_error`)."""


@dataclass
class _OpenTrial:
    """A trial between its beginning and its end in the study."""

    trial: optuna.Trial
    number: int
    params: dict[str, Any]
    rungs: dict[int, dict[str, Any]] = field(default_factory=dict)
    stored: int = -1
    """The last rung that the study has; rung 0 is the start, at which no verdict is made."""
    step: int = 0
    """The last step that was heard of, those included that were trained before a verdict came."""
    last: int | None = None
    """Its last rung, once it is there."""
    failed: str = ""
    ended: bool = False
    """Whether its training is over; what is left is a verdict on its rungs."""
    left: bool = False
    """Whether it was left RUNNING, for another time."""
    waits: bool = False
    """Whether it was taken from its worker for its verdict."""
    begun: bool = False
    """Whether its worker is at work."""
    lost_before: frozenset[str] = frozenset()
    """The nodes that were lost when it was handed out."""
    machine: dict[str, Any] = field(default_factory=dict)
    """Its worker's machine, for its record."""
    deaths: int = 0
    """Workers that died at work."""
    excused: int = 0
    """Workers that died before they began, or while nodes were lost, as spot machines go."""

    @property
    def group(self) -> CompetitionKey:
        return competition_key(self.params)


class StudySearcher(Searcher):  # type: ignore[misc]
    """Serves interrupted trials first, then new ones, at most `concurrency` at a time, until there are `wanted`.

    A trial that has to wait for its verdict (`Verdicts.is_pending`) gives its worker back, and is served again once it
    may go on.

    `events` hears of a trial that has `started(number, params)`, begun or going on, of each report (`progressed(number,
    result)`), of one that is `waiting(number)` for its verdict, and of one that has `finished(trial)` in the study.

    After `deadline()` (seconds since the epoch), and when a trial says that storage is gone, no trial is begun and the
    running ones, and those that wait, are left as they are: RUNNING in the study, their checkpoints kept.
    """

    suggestions_type: ClassVar[type[Suggestions]] = Suggestions

    def __init__(
        self,
        study: optuna.Study,
        search: Search,
        concurrency: int,
        events: Any,
        deadline: Callable[[], float] = lambda: math.inf,
        lost_nodes: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        super().__init__(metric="rung", mode="max")
        self.study, self.space, self.objectives, self.wanted = study, search.space, search.objectives, search.wanted
        self.concurrency, self.events, self.deadline, self.lost_nodes = concurrency, events, deadline, lost_nodes
        self.suggestions = self.suggestions_type(search)
        self.verdicts = (Halving if waits_at_rungs(self.space.budget) else Verdicts)(self.space.budget)
        self.finished: dict[int, FrozenTrial] = {}
        self.unsettled: dict[int, _OpenTrial] = {}
        """Trials that have not ended in the study, by number; each is in one of the next three, unless it was left, or has
        been trained as far as it can be."""
        self.live: dict[str, _OpenTrial] = {}
        """Those with a worker, by Tune's id."""
        self.waiting: set[int] = set()
        """Those without a worker that wait for their verdicts."""
        self.interrupted: list[_OpenTrial] = []
        """Those to hand out before any new trial."""
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

    def _restore(self, trial: FrozenTrial) -> None:
        number, rungs, last = trial.number, trial_rungs(trial), trial.user_attrs.get(LAST)
        self.verdicts.enter(number, trial_group(trial))
        for rung, value in judged_rungs(trial).items():
            self.verdicts.report(number, rung, value)
        if last is not None:
            self.verdicts.finish(number, last)
        if trial.state.is_finished():
            self.finished[number] = trial
            self.verdicts.fail(number)
        else:
            again = optuna.Trial(self.study, trial._trial_id)
            self.unsettled[number] = _OpenTrial(
                again, number, trial_params(trial), rungs, stored=max(rungs, default=-1), last=last
            )
            self.waiting.add(number)  # until `_settle` finds that it may go on, or was killed before its end was told

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
        trial = self.interrupted.pop(0) if self.interrupted else self._new_trial()
        if trial is None:
            return Searcher.FINISHED if self.over else None
        trial.lost_before = self.lost_nodes()
        self.live[trial_id] = trial
        self.events.started(trial.number, trial.params)
        return {"number": trial.number, "params": trial.params}

    def _new_trial(self) -> _OpenTrial | None:
        """A trial that has begun in the study; None where one has to end before it, none is left, or storage is gone."""
        params = self.suggestions.ask(self._lookup)
        if params is None:
            return None
        suggested = self.suggestions.asked[-1]
        begun = self._stored(
            lambda: begin_trial(self.study, self.count, params, suggested.params, suggested.distributions)
        )
        if begun is None:
            return None
        trial = _OpenTrial(begun, self.count, params)
        self.count += 1
        self.verdicts.enter(trial.number, trial.group)
        self.unsettled[trial.number] = trial
        if self.count >= self.wanted:
            self.verdicts.close()
            self._settle()
        return trial

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
        trial = self.live[trial_id]
        self._take(trial, result)
        if not trial.left and self.verdicts.runners[trial.number].stopped is not None:
            return False
        if self.over:
            trial.left = True
            return False
        self.events.progressed(trial.number, result)
        trial.waits = not result["done"] and self.verdicts.is_pending(trial.number)
        return not trial.waits

    def _take(self, trial: _OpenTrial, result: dict[str, Any]) -> None:
        """Note the rungs that are new, and settle whatever they settle.

        A failure is of the last rung itself, unless `collapsed` is False in the result: the training went wrong after it.
        """
        trial.step = max(trial.step, int(result.get("step", 0)))
        trial.machine = dict(result.get("machine", trial.machine))
        if result.get("halt"):
            self.halted, trial.left = self.halted or str(result["halt"]), True
            return
        collapsed = bool(result["failed"]) and bool(result.get("collapsed", True))
        for rung in (rung for rung in result["rungs"] if int(rung["rung"]) not in trial.rungs):
            number = int(rung["rung"])
            values = {**rung["metrics"], **{k: rung[k] for k in ("step", "objective", "eligible") if k in rung}}
            if collapsed and rung is result["rungs"][-1]:
                trial.rungs[number] = {**values, "collapsed": True}
            else:
                trial.rungs[number] = values
                self.verdicts.report(trial.number, number, _number(values["objective"]))
        if result["failed"]:
            trial.failed = str(result["failed"])
            self.verdicts.fail(trial.number)
        elif result["done"] and self.verdicts.runners[trial.number].stopped is None:
            # Tune says that it is done of what it stops, too.
            trial.last = max(trial.rungs)
            self.verdicts.finish(trial.number, trial.last)
        self._settle()

    def _settle(self) -> None:
        """Decide what can be decided; store what counts, hand out again what may go on, tell what has ended."""
        self.verdicts.decide()
        for trial in list(self.unsettled.values()):
            self._store(trial, self.verdicts.last_valid_rung(trial.number))
            settled = self.verdicts.runners[trial.number].settled
            if trial.number in self.waiting and not self.verdicts.is_pending(trial.number):
                self.waiting.remove(trial.number)
                trial.ended = settled
                if not settled:
                    self._serve_again(trial)
            if trial.ended and settled:
                self._tell(trial)

    def _store(self, trial: _OpenTrial, until: int) -> None:
        """Write the rungs up to `until` into the study; those after a stop are as if they had never been."""
        for rung in sorted(r for r in trial.rungs if trial.stored < r <= until):
            if not self._stored(partial(self._write, trial, rung)):
                return
            trial.stored = rung

    def _write(self, trial: _OpenTrial, rung: int) -> bool:
        values, own = trial.rungs[rung], trial.trial
        if rung and not values.get("collapsed") and len(self.objectives) == 1:
            # Unlike `Trial.report` it may be repeated.
            own.storage.set_trial_intermediate_value(own._trial_id, rung, _number(values["objective"]))
        if rung == trial.last:
            own.set_user_attr(LAST, rung)
        if trial.machine:
            own.set_user_attr(MACHINE, trial.machine)
        own.set_user_attr(rung_key(rung), values)  # after all else that belongs to the rung
        return True

    def _tell(self, trial: _OpenTrial) -> None:
        """Tell the study how the trial ended."""
        stopped, values = self.verdicts.runners[trial.number].stopped, None
        if stopped is not None:
            state, reason = TrialState.PRUNED, stopping_reason(self.space.budget, stopped)
        elif trial.failed:
            state, reason = TrialState.FAIL, trial.failed
            self._store(trial, max(trial.rungs, default=0))
        else:
            state, reason, values = TrialState.COMPLETE, "", self._values(trial)
            unknown = [name for name, value in zip(self.objectives, values, strict=True) if math.isnan(value)]
            if unknown:  # Optuna takes no such value
                state, values, reason = TrialState.FAIL, None, f"objective {unknown[0]} is nan"

        def tell() -> FrozenTrial:
            stored = trial.rungs.get(trial.stored, {})  # all that is known of one that waited for this driver
            trial.trial.set_user_attr(STEPS, max(trial.step, int(stored.get("step", 0))))
            if trial.machine:
                trial.trial.set_user_attr(MACHINE, trial.machine)
            trial.trial.set_user_attr("reason", reason)
            return self.study.tell(trial.trial, values, state, skip_if_finished=True)

        finished = self._stored(tell)
        if finished is not None:
            del self.unsettled[trial.number]
            self.finished[trial.number] = finished
            self._count_alike(reason if state == TrialState.FAIL else "")
            self._stored(lambda: self.events.finished(finished))

    def _count_alike(self, reason: str) -> None:
        """End the search where trials fail one after the other by the same error."""
        error = reason.splitlines()[0] if UNEXPECTED.match(reason) else ""
        self._alike = error, (self._alike[1] + 1 if error == self._alike[0] else 1)
        if error and self._alike[1] == ALIKE:
            said = f"{ALIKE} trials one after the other failed alike: {error}"
            self.halted = self.halted or f"{said}; the same command goes on with the other trials once that is mended"

    def _values(self, trial: _OpenTrial) -> list[float]:
        """The objectives' values of a trial that has come to its end."""
        result = result_rung([as_rung(number, values) for number, values in trial.rungs.items()])
        assert result is not None
        if len(self.objectives) == 1:
            return [_number(result.objective)]
        end = trial.rungs[max(trial.rungs)]  # what a student costs is noted there alone
        by_objective = {
            QUALITY: result.metrics["dev_quality"],
            "bytes": trial.group.bytes,
            "latency": end.get("latency_ms"),
            "model_bytes": end.get("model_bytes"),
        }
        return [_number(by_objective[name]) for name in self.objectives]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial's training has ended, or was stopped: tell the study as soon as its verdicts are all there."""
        trial = self.live.pop(trial_id, None)
        if trial is None or trial.left:
            return
        if error or result is None or "rungs" not in result:
            if trial.begun and self.lost_nodes() <= trial.lost_before:
                trial.deaths += 1
            else:
                trial.excused += 1
            if trial.deaths <= RETRIES and trial.excused <= EXCUSED:
                self._serve_again(trial)
                return
            self.died.append(trial.number)
            trial.failed = "its worker died more often than is retried; see the run's tune folder"
            self.verdicts.fail(trial.number)
        elif trial.waits:
            self.waiting.add(trial.number)
            self.events.waiting(trial.number)
            self._settle()
            return
        else:
            self._take(trial, result)  # Tune passes a last result here only
            if trial.left:
                return
        trial.ended = True
        self._settle()

    def _lookup(self, number: int) -> FrozenTrial | None:
        """A finished trial; where trials wait at rungs, one that has not finished as it is in the study."""
        if number in self.finished or not waits_at_rungs(self.space.budget):
            return self.finished.get(number)
        if (trial := self.unsettled.get(number)) is None:  # storage was gone when it ended
            return None
        stored = {rung_key(rung): values for rung, values in trial.rungs.items() if rung <= trial.stored}
        ended = {} if trial.last is None else {LAST: trial.last}
        return create_trial(state=TrialState.RUNNING, user_attrs={PARAMS: trial.params, **stored, **ended})

    def _serve_again(self, trial: _OpenTrial) -> None:
        """Hand it out before any new trial."""
        trial.begun = trial.waits = False
        self.interrupted = sorted([*self.interrupted, trial], key=lambda o: o.number)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save but which study: its storage is the truth."""
        write_json(Path(checkpoint_path), {"study": self.study.study_name})

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


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
