"""Every combination of a search space's values, conditions respected."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from distilbench.errors import InputError
from distilbench.search.space import Range, SearchSpace

LIMIT = 100_000
"""Combinations of a grid at most: about a second, and 100 MB."""
POINTS = 3
"""The points of a range that does not say how many."""


def grid_values(r: Range, integer: bool) -> list[Any]:
    """The values of one parameter: its choices, or points equally far apart, on a logarithmic scale where it has one."""
    if r.choices is not None:
        return list(r.choices)
    spaced = np.geomspace if r.log else np.linspace
    values = spaced(r.low or 0.0, r.high or 0.0, r.points or POINTS)
    inner = [round(v) if integer else float(v) for v in values[1:-1]]
    ends = [int(end) if integer else float(end) for end in (r.low or 0.0, r.high or 0.0)]
    return list(dict.fromkeys([ends[0], *inner, ends[1]]))


def grid(space: SearchSpace, seed: int) -> list[dict[str, Any]]:
    """Every combination of the searched parameters' values, each with the parameters that are searched in it.

    In a seeded order, since a budget may end before the grid does, with the output dimensions and
    the students in turn.
    """
    points: list[dict[str, Any]] = [{}]
    for name in space.parameters:
        points = [wider for point in points for wider in _with_values(space, name, point)]
        if len(points) > LIMIT:
            raise InputError(
                f"--searcher grid: the search space of {space.method} has more than {LIMIT:,} combinations; expected fewer "
                "points or choices, or another searcher"
            )
    random.Random(seed).shuffle(points)
    students: list[str | None] = [*space.students] or [None]
    by_dim = [
        [p for p in points if p.get("output_dim", d) == d and p.get("student", student) == student]
        for d in space.dimensions
        for student in students
    ]
    longest = max(map(len, by_dim))
    return [dim_points[i] for i in range(longest) for dim_points in by_dim if i < len(dim_points)]


def _with_values(space: SearchSpace, name: str, point: dict[str, Any]) -> list[dict[str, Any]]:
    """The point with each value of one more parameter; as it is where that is not searched there."""
    filled = {**space.fixed, **space.defaults, **point}
    _, r = space.searched(name, filled)
    return [{**point, name: v} for v in grid_values(r, space.integers[name])] if r.active(filled) else [point]
