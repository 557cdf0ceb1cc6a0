"""What fits into a time: steps shrink before trials vanish, so that every method and every dimension has its trials.

With n trials in all, each of at most s steps, on c workers, a search and its confirmations take

    n * (begin + judge * E[rungs] + step * s * E[share]) / c  +  m * (begin + judge * rungs + step * s) / c

seconds, where m confirmations are trained and `share` is what early stopping leaves of a trial. That is linear in s.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from distilbench.search.fates import fates
from distilbench.trials.budget import Budget
from distilbench.trials.pace import Pace

SHORTEST = 1 / 10
"""The share of the search space's steps below which a trial is not shortened: what such a trial finds is no student."""
PLAYED = 20
"""Searches that are played to see what early stopping leaves of a trial."""


class Affordable(NamedTuple):
    """What a search can have in its time."""

    steps: int
    """Of one trial at most."""
    trials: int
    """That are expected to fit, of those wanted."""
    seconds: float
    """What they are expected to take."""


def reached(budget: Budget, groups: int, searcher: str) -> list[float]:
    """Which share of the trials can be expected at each rung, where so many groups share them."""
    members = [number % groups for number in range(budget.trials)]
    ends = [end for seed in range(PLAYED) for end in fates(members, budget, searcher, seed)]
    return [sum(end >= rung for end in ends) / len(ends) for rung in range(1, budget.rungs + 1)]


def affordable(
    budget: Budget, pace: Pace, seconds: float, workers: int, groups: int, confirmations: int, searcher: str
) -> Affordable:
    """What fits into so many seconds of `workers`: a search with so many groups, and the trainings that confirm its best."""
    shares = reached(budget, groups, searcher)
    ends = [budget.eta ** -(budget.rungs - 1 - k) for k in range(budget.rungs)]
    share = sum(s * (end - before) for s, end, before in zip(shares, ends, [0.0, *ends], strict=False))
    judged = sum(shares) + budget.start

    def fixed(trials: float) -> float:
        of_search = trials * (pace.begin_s + pace.judge_s * judged)
        return of_search + confirmations * (pace.begin_s + pace.judge_s * (budget.rungs + budget.start))

    def by_step(trials: float) -> float:
        return pace.step_s * (trials * share + confirmations)

    def spent(trials: float, steps: float) -> float:
        return (fixed(trials) + by_step(trials) * steps) / workers

    full = min(float(budget.steps), pace.steps)
    if spent(budget.trials, full) <= seconds or not pace.step_s:
        return Affordable(budget.steps, budget.trials, spent(budget.trials, full))
    least = max(math.ceil(SHORTEST * full), budget.eta ** (budget.rungs - 1))
    steps = max(math.floor((seconds * workers - fixed(budget.trials)) / by_step(budget.trials)), min(least, int(full)))
    each = spent(1, steps) - spent(0, steps)
    trials = budget.trials if spent(budget.trials, steps) <= seconds else int((seconds - spent(0, steps)) / each)
    return Affordable(steps, max(0, trials), spent(max(0, trials), steps))
