"""The objectives of a search, and the Pareto front of rows (`Study.best_trials` has that of trials).

Axes: N points, K objectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distilbench.choices import QUALITY

Direction = Literal["maximize", "minimize"]
"""Optuna's words."""


class Objective(NamedTuple):
    """One objective; `unit` follows a value in a text."""

    name: str
    direction: Direction
    unit: str
    help: str


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective(QUALITY, "maximize", "points", "The method's objective on the dev sets: x 100, higher is better"),
        Objective("bytes", "minimize", "bytes", "Bytes of one stored vector"),
        Objective("latency", "minimize", "ms", "Milliseconds to embed one sentence on one thread, in batches of 32"),
        Objective("model_bytes", "minimize", "bytes of the model", "Bytes of the model on disk"),
    )
}
"""By name, in the order in which values are written."""


def directions(names: Iterable[str]) -> list[Direction]:
    """The direction of each objective, as Optuna takes them."""
    return [OBJECTIVES[name].direction for name in names]


def pareto_front(points: ArrayLike, directions: Sequence[Direction]) -> NDArray[np.int64]:
    """The positions of the points (N x K) that no other dominates, rising; equal points on the front all count.

    A point dominates another if it is at least as good in every objective and better in one.
    """
    losses_UK, of_N = np.unique(_losses(points, directions), axis=0, return_inverse=True)
    front_FK, on_front = np.empty((0, len(directions))), np.zeros(len(losses_UK), dtype=bool)
    for i, loss_K in enumerate(losses_UK):  # rising lexicographically: what dominates a point comes before it
        if not (front_FK <= loss_K).all(axis=1).any():
            on_front[i] = True
            front_FK = np.vstack([front_FK, loss_K])
    return np.flatnonzero(on_front[of_N.reshape(-1)])


def _losses(points: ArrayLike, directions: Sequence[Direction]) -> NDArray[np.float64]:
    """Lower is better in every column."""
    points_NK = np.asarray(points, dtype=np.float64)
    if not len(points_NK):
        return np.empty((0, len(directions)))
    if points_NK.shape != (len(points_NK), len(directions)) or not np.isfinite(points_NK).all():
        raise ValueError(f"points of shape {points_NK.shape}, expected finite numbers in {len(directions)} columns")
    return points_NK * np.array([-1.0 if direction == "maximize" else 1.0 for direction in directions])
