"""How good a replayed search was: its regret as steps are spent, and how soon it had what is worth having."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from distilbench.codes import CompetitionKey
from replay.workers import Found

CHECKPOINTS = (1 / 9, 1 / 3, 1.0)
"""Shares of the budget after which the regret is looked at."""
RESAMPLES = 2_000


class Goal(NamedTuple):
    """What there is to find in one group."""

    best: float
    top: float
    """The value that its best 1 % of settings have (at least the best one)."""
    typical: float
    """The median setting's: what a group without a student counts as."""


class Measured(NamedTuple):
    """One search. Shares are of the budget of steps."""

    regrets: tuple[float, ...]
    """At each of `CHECKPOINTS`, in points: the best value there is minus the best found, mean over the groups."""
    top_at: float
    """When a setting of the best 1 % was found, mean over the groups; 1 where it never was."""
    top_found: float
    """In which share of the groups it was found at all."""
    level_at: float
    """When the mean over the groups reached that of full random search; infinite where it never did."""


def goal_of(values: Sequence[float]) -> Goal:
    """The goal of a group with these results, the best first."""
    return Goal(values[0], values[max(1, round(len(values) / 100)) - 1], float(np.median(values)))


def level(found: Sequence[Found], goals: Mapping[CompetitionKey, Goal], spent: float = math.inf) -> float:
    """The best found by then, mean over the groups."""
    best = {group: goal.typical for group, goal in goals.items()}
    for at, group, value in found:
        if at <= spent and group in best:
            best[group] = max(best[group], value)
    return float(np.mean(list(best.values())))


def measured(found: Sequence[Found], goals: Mapping[CompetitionKey, Goal], budget: float, full: float) -> Measured:
    """The measures of a search; `full` is what full random search with this budget has reached."""
    optimum = float(np.mean([goal.best for goal in goals.values()]))
    regrets = tuple(optimum - level(found, goals, share * budget) for share in CHECKPOINTS)
    tops = [
        next((f.spent for f in found if f.group == group and f.value >= goal.top), math.inf) / budget
        for group, goal in goals.items()
    ]
    at = next((f.spent for f in found if level(found, goals, f.spent) >= full - 1e-9), math.inf)
    return Measured(
        regrets,
        float(np.mean([min(top, 1.0) for top in tops])),
        float(np.mean([top <= 1 for top in tops])),
        at / budget,
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its 95 % bootstrap interval over seeds."""
    array = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(0)
    means = array[rng.integers(len(array), size=(RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(array.mean()), float(low), float(high)
