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
    signs_K = [-1.0 if direction == "maximize" else 1.0 for direction in directions]
    loss_NK = np.asarray(points, dtype=np.float64).reshape(-1, len(signs_K)) * signs_K
    no_worse_NN = (loss_NK[:, None] <= loss_NK).all(axis=-1)
    better_NN = (loss_NK[:, None] < loss_NK).any(axis=-1)
    return np.flatnonzero(~(no_worse_NN & better_NN).any(axis=0))
