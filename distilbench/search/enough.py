"""When a search is over: what its remaining trials can be expected to add is less than a difference that counts (`--enough`).

Of n trials of a group (`competition_key`) the expected best of a random n/2 follows exactly from their values, and so does
what the second half of the trials added, on average over all orders. Doubling them once more adds at most as much, for random
draws whose upper tail is no heavier than an exponential's: its expected best grows by as much with every doubling.
A searcher that learns may find more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from optuna.trial import FrozenTrial

from distilbench.codes import CompetitionKey
from distilbench.search.space import SearchSpace
from distilbench.search.study import is_candidate, result_objective, trial_group, trial_params

LEAST = 8
"""Trials with a student that every group has to have first: with fewer the expected best of a half says little."""


def expected_best(values: Sequence[float], count: int) -> float:
    """The expected highest of `count` of the values, drawn at random without replacement.

    The i-th lowest of n values is the highest of the drawn ones with probability C(i - 1, count - 1) / C(n, count).
    """
    ranked, ways = sorted(values), math.comb(len(values), count)
    return math.fsum(value * (math.comb(i, count - 1) / ways) for i, value in enumerate(ranked))


def expected_gain(values: Sequence[float], more: float) -> float:
    """What so many more trials can be expected to add to the best of the values, in their unit; at least two values."""
    count = len(values)
    added = max(values) - expected_best(values, count // 2)
    return added * math.log2((count + more) / count) / math.log2(count / (count // 2))


def why_enough(told: Sequence[FrozenTrial], remaining: int, space: SearchSpace, points: float) -> str:
    """Why a search with these finished trials ends before the remaining ones; "" where it goes on.

    It goes on while an output dimension (of a student) has fewer than `LEAST` trials, or a group of theirs has fewer with a
    student, or can be expected to gain `points` or more.
    """
    values: dict[CompetitionKey, list[float]] = defaultdict(list)
    shared: dict[tuple[int, str | None], int] = defaultdict(int)
    for trial in told:
        values[trial_group(trial)] += [v] if math.isfinite(v := result_objective(trial)) and is_candidate(trial) else []
        params = trial_params(trial)
        shared[int(params["output_dim"]), params.get("student")] += 1
    students: list[str | None] = [*space.students] or [None]
    sizes = [(d, student) for d in space.dimensions for student in students]
    if min((shared[size] for size in sizes), default=0) < LEAST or min(map(len, values.values())) < LEAST:
        return ""
    most = max(expected_gain(own, remaining * len(own) / len(told)) for own in values.values())
    if most >= points:
        return ""
    return (
        f"the other {remaining} can be expected to add {most:.2f} points at most to any of its best, below --enough "
        f"{points:g}"
    )
