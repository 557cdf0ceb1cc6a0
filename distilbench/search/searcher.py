"""Ray Tune's view of the study: suggestions come from it, results go to it, and it decides which trials go on.

Ray's own OptunaSearch tells Optuna that a trial stopped early is COMPLETE and leaves failed ones RUNNING; this one tells
PRUNED and FAIL truly, and continues the trials that a killed driver left RUNNING.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from distilbench.search.space import SearchSpace
from distilbench.search.study import OPEN, rung_values, survives
from distilbench.store import write_json


class StudySearcher(Searcher):  # type: ignore[misc]
    """Serves interrupted trials first, then queued ones, at most `concurrency` at a time, until none is left.

    `on_finish` is called with each trial as it is told to the study.
    """

    def __init__(
        self, study: optuna.Study, space: SearchSpace, concurrency: int, on_finish: Callable[[FrozenTrial], None]
    ) -> None:
        super().__init__(metric="objective", mode="max")
        self.study, self.space, self.concurrency, self.on_finish = study, space, concurrency, on_finish
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        self.interrupted = [optuna.Trial(study, t._trial_id) for t in running]
        self.live: dict[str, optuna.Trial] = {}

    @property
    def remaining(self) -> int:
        """Trials that are neither finished nor handed out."""
        return len(self.study.get_trials(deepcopy=False, states=OPEN)) - len(self.live)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next trial's number and hyper-parameters; None while enough are running."""
        if len(self.live) >= self.concurrency:
            return None
        if self.interrupted:
            trial = self.interrupted.pop(0)
        elif self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            trial = self.study.ask()
        else:
            return Searcher.FINISHED
        self.live[trial_id] = trial
        return {"number": trial.number, "params": self.space.suggest(trial)}

    def report(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Store a rung's result; whether the trial goes on."""
        self._store(self.live[trial_id], result)
        rung, dim = int(result["rung"]), int(result["dim"])
        peers = rung_values(self.study, self.space, dim, rung)
        return survives(float(result["objective"]), peers, self.space.budget.eta)

    def _store(self, trial: optuna.Trial, result: dict[str, Any]) -> None:
        rung = int(result["rung"])
        known = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if rung not in known:  # a trial continued from its checkpoint reports that rung again
            kept = {key: _json(result[key]) for key in ("step", *result["reported"])}
            trial.set_user_attr(f"rung-{rung}", kept)
            trial.report(float(result["objective"]), rung)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study how the trial ended."""
        trial = self.live.pop(trial_id, None)
        if trial is None:
            return
        value = float(result["objective"]) if result and not result.get("failed") else math.nan
        reason = ""
        if error or result is None:
            state, reason = TrialState.FAIL, "its worker failed more often than is retried; see the run's tune folder"
        elif result.get("failed"):
            if result.get("reported"):  # a trial that is stopped at a rung, such as a collapsed one
                self._store(trial, result)
            state, reason = TrialState.FAIL, str(result["failed"])
        elif not math.isfinite(value):
            state, reason = TrialState.FAIL, f"objective is {value}"
        elif result["final"]:
            state = TrialState.COMPLETE
            self._store(trial, result)  # Tune passes a last result here only
        else:
            state, reason = TrialState.PRUNED, f"not among the best 1/{self.space.budget.eta} at rung {result['rung']}"
        trial.set_user_attr("reason", reason)
        told = self.study.tell(trial, value if state == TrialState.COMPLETE else None, state)
        self.on_finish(told)

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

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """CONTINUE or STOP."""
        go_on = self.searcher.report(trial.trial_id, result)
        return str(TrialScheduler.CONTINUE if go_on else TrialScheduler.STOP)


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
