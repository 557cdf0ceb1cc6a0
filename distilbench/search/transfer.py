"""What output dimensions share: how trials rank within their own groups, and what did best at the others (`--transfer`).

Objectives are relative to the PCA of the same dimension, but dimensions still differ in what can be gained. So trials are
compared by their place among the trials of their own group (`codes.competition_key`), from 0 (the worst) to 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from distilbench.search.earlier import params_within
from distilbench.search.space import GIVEN, SearchSpace
from distilbench.search.study import trial_group, trial_params
from distilbench.storage.files import fingerprint

TURN = 2
"""Of the trials of a dimension every so many-th is given what did best elsewhere."""
ABOVE = 0.5
"""Such a setting has to have a place above this one: better than the half of its group."""


def places(trials: Iterable[FrozenTrial], group_of: Callable[[FrozenTrial], Hashable]) -> dict[int, float]:
    """The place of each finished trial within its group, above 0 and below 1, by number.

    A trial that got further is ahead of one that was stopped earlier, as early stopping has found; of those that were stopped
    at the same rung, and of those that came to their end, the one with the higher objective. One that failed is behind all.
    """
    groups: dict[Hashable, list[FrozenTrial]] = defaultdict(list)
    for trial in trials:
        groups[group_of(trial)].append(trial)
    found: dict[int, float] = {}
    for members in groups.values():
        ranked = sorted(members, key=_standing)
        found |= {trial.number: (rank + 1) / (len(ranked) + 1) for rank, trial in enumerate(ranked)}
    return found


def _standing(trial: FrozenTrial) -> tuple[float, float]:
    if trial.state == TrialState.FAIL:
        return -1.0, 0.0
    if trial.state == TrialState.COMPLETE:
        return math.inf, float(trial.values[0])
    rung = max(trial.intermediate_values, default=0)
    value = trial.intermediate_values.get(rung, math.nan)
    return float(rung), -math.inf if math.isnan(value) else value


def best_elsewhere(
    given: Mapping[str, Any],
    begun: Sequence[Mapping[str, Any]],
    finished: Sequence[FrozenTrial],
    space: SearchSpace,
) -> dict[str, Any]:
    """The searched parameters of the finished trial of another dimension (or student) that has the highest place, of those
    whose settings none of the `begun` ones has had at the `given` dimension and student; {} where none is above the half.

    Of trials with the same place the one of the nearest dimension, then the first, is taken.
    """
    here = {name: given[name] for name in GIVEN if name in given}
    had = {_identity(params, space) for params in begun if is_at(params, here)}
    ranked = places(finished, trial_group)

    def order(trial: FrozenTrial) -> tuple[float, float, int]:
        return -ranked[trial.number], _apart(trial_params(trial), here), trial.number

    for trial in sorted(finished, key=order):
        if ranked[trial.number] <= ABOVE:
            break
        params = trial_params(trial)
        moved = params_within({**params, **here}, space)
        if (
            not is_at(params, here)
            and trial.state != TrialState.FAIL
            and _identity({**params, **moved}, space) not in had
        ):
            return moved
    return {}


def is_at(params: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether a trial has these values."""
    return all(params.get(name) == value for name, value in here.items())


def _apart(params: Mapping[str, Any], here: Mapping[str, Any]) -> float:
    """How many times larger one dimension is than the other, as a logarithm; another student is further than any of them."""
    dimension = int(here.get("output_dim", params["output_dim"]))
    return abs(math.log2(int(params["output_dim"]) / dimension)) + 100 * (params.get("student") != here.get("student"))


def _identity(params: Mapping[str, Any], space: SearchSpace) -> str:
    return fingerprint({name: params.get(name) for name in space.parameters if name not in GIVEN})
