"""The objectives of a search, the Pareto front of results, and their hypervolume.

Optuna has both for the trials of its own studies (`Study.best_trials`, and a private hypervolume); a report has records.
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


def hypervolume(points: ArrayLike, reference: Sequence[float], directions: Sequence[Direction]) -> float:
    """The volume that the points (N x K) dominate and that dominates the reference point (K), exactly.

    A point that is not better than the reference in every objective adds nothing. Takes K - 2 nested sweeps over the points.
    """
    losses_NK, reference_K = _losses(points, directions), _losses([reference], directions)[0]
    return _volume(np.minimum(losses_NK, reference_K), reference_K)


def _losses(points: ArrayLike, directions: Sequence[Direction]) -> NDArray[np.float64]:
    """Lower is better in every column."""
    points_NK = np.asarray(points, dtype=np.float64)
    if not len(points_NK):
        return np.empty((0, len(directions)))
    if points_NK.shape != (len(points_NK), len(directions)) or not np.isfinite(points_NK).all():
        raise ValueError(f"points of shape {points_NK.shape}, expected finite numbers in {len(directions)} columns")
    return points_NK * np.array([-1.0 if direction == "maximize" else 1.0 for direction in directions])


def _volume(losses_NK: NDArray[np.float64], reference_K: NDArray[np.float64]) -> float:
    """Slab by slab along the last axis; each slab is as thick as the way to the next point, and one dimension less."""
    if not len(losses_NK):
        return 0.0
    if len(reference_K) == 1:
        return float(reference_K[0] - losses_NK.min())
    losses_NK = losses_NK[np.argsort(losses_NK[:, -1], kind="stable")]
    thickness_N = np.diff(losses_NK[:, -1], append=reference_K[-1])
    if len(reference_K) == 2:
        return float(thickness_N @ (reference_K[0] - np.minimum.accumulate(losses_NK[:, 0])))
    slabs = (i for i in range(len(losses_NK)) if thickness_N[i] > 0)
    return sum(float(thickness_N[i]) * _volume(losses_NK[: i + 1, :-1], reference_K[:-1]) for i in slabs)
