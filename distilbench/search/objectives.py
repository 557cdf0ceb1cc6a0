"""The objectives of a search, and the Pareto front of rows (`Study.best_trials` has that of trials).

Axes: N points, K objectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distilbench.choices import QUALITY

Direction = Literal["maximize", "minimize"]
"""Optuna's words."""


COSTS = {
    "bytes": "bytes of one stored vector",
    "latency": "milliseconds to embed one sentence on one thread, in batches of 32",
    "model_bytes": "bytes of the model on disk",
}
"""The objectives beside quality, in the order in which values are written: less is better."""


def directions(names: Iterable[str]) -> list[Direction]:
    """The direction of each objective, as Optuna takes them."""
    return ["maximize" if name == QUALITY else "minimize" for name in names]


def pareto_front(points: ArrayLike, directions: Sequence[Direction]) -> NDArray[np.int64]:
    """The positions of the points (N x K) that no other dominates, rising; equal points on the front all count.

    A point dominates another if it is at least as good in every objective and better in one.
    """
    signs_K = [-1.0 if direction == "maximize" else 1.0 for direction in directions]
    loss_NK = np.asarray(points, dtype=np.float64).reshape(-1, len(signs_K)) * signs_K
    no_worse_NN = (loss_NK[:, None] <= loss_NK).all(axis=-1)
    better_NN = (loss_NK[:, None] < loss_NK).any(axis=-1)
    return np.flatnonzero(~(no_worse_NN & better_NN).any(axis=0))
