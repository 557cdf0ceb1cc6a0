"""The Optuna study: the truth about a sweep. Trials are queued in it, so what is left to do survives any crash."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from distilbench.search.space import SearchSpace

OPEN = (TrialState.WAITING, TrialState.RUNNING)
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def open_study(storage: str, name: str, seed: int) -> optuna.Study:
    """Create the study, or load it when it is there; TPE told of running trials (constant liar), maximising."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name=name,
        storage=storage,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=8),
        pruner=optuna.pruners.NopPruner(),  # rungs are decided per output dimension by `survives`
        load_if_exists=True,
    )


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of an SQLite file."""
    return f"sqlite:///{path.resolve()}"


def queue_trials(study: optuna.Study, space: SearchSpace, trials: int) -> None:
    """Queue trials until the study has `trials` of them, finished ones included.

    Every output dimension gets the same share, in turn; its first trial is the published setting.
    """
    dimensions = space.dimensions
    searched = "output_dim" in space.parameters
    for number in range(len(study.get_trials(deepcopy=False)), trials):
        start: dict[str, Any] = {"output_dim": dimensions[number % len(dimensions)]} if searched else {}
        if number < len(dimensions):
            start |= space.paper_setting()
        study.enqueue_trial(start)


def survives(value: float, peers: list[float], eta: int) -> bool:
    """Asynchronous successive halving: is `value` among the best 1/eta (at least one) of `peers`, itself included?"""
    if math.isnan(value):
        return False
    ranked = sorted((p for p in peers if not math.isnan(p)), reverse=True)
    return value >= ranked[max(1, len(ranked) // eta) - 1]


def rung_values(study: optuna.Study, space: SearchSpace, dim: int, rung: int) -> list[float]:
    """What the trials of one output dimension reported at `rung`."""
    return [
        t.intermediate_values[rung]
        for t in study.get_trials(deepcopy=False)
        if rung in t.intermediate_values and trial_dimension(t, space) == dim
    ]


def trial_params(trial: FrozenTrial, space: SearchSpace) -> dict[str, Any]:
    """All hyper-parameters of a trial: the fixed ones and those drawn for it."""
    return {**space.fixed, **trial.params}


def trial_dimension(trial: FrozenTrial, space: SearchSpace) -> int:
    """The output dimension of a trial."""
    return int(trial_params(trial, space)["output_dim"])


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """COMPLETE, PRUNED and FAIL trials by number."""
    return study.get_trials(deepcopy=False, states=FINISHED)


def best_per_dimension(study: optuna.Study, space: SearchSpace) -> dict[int, FrozenTrial]:
    """The COMPLETE trial with the highest objective of each output dimension; the earlier one of equals."""
    best: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        dim = trial_dimension(trial, space)
        if dim not in best or (trial.value or 0.0) > (best[dim].value or 0.0):
            best[dim] = trial
    return dict(sorted(best.items()))
