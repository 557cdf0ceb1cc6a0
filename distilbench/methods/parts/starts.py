"""Closed forms that a linear layer starts from, before any step of training.

Axes: N sentences, D width of the student's pooled states, d output dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from distilbench.training.params import ParamsPart

RIDGE = 1e-3
"""Weight of the squared weights beside the sum of squared errors: a student's features can be nearly dependent."""
Targets = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Corpus rows -> the vectors that the student is to give them, N x d."""


class ProjectedParams(ParamsPart):
    """What the projection starts from."""

    projection_start: Literal["random", "regression", "pca"] = "regression"
    """W, b at random (the papers), ridge regression from the untrained student's states to the targets, or the principal
    axes of these states."""
    start_sentences: int = Field(default=4000, ge=2)
    """Training sentences that a regression or the axes are fitted on at most."""


class UntargetedParams(ProjectedParams):
    """The same where nothing is known that the projection could be fitted to."""

    projection_start: Literal["random", "pca"] = "pca"
    """W, b at random, or the principal axes of the untrained student's own states."""


class Linear(NamedTuple):
    """y = x W + b, W of D x d."""

    weight_Dd: NDArray[np.floating[Any]]
    bias_d: NDArray[np.floating[Any]]

    def copy_to(self, layer: nn.Linear) -> None:
        """Give a layer these weights; one without a bias gets the weights alone."""
        weight = torch.from_numpy(np.ascontiguousarray(self.weight_Dd.T))
        if weight.shape != layer.weight.shape:
            raise ValueError(f"weights of {tuple(weight.shape)} for a layer of {tuple(layer.weight.shape)}")
        with torch.no_grad():
            layer.weight.copy_(weight)
            if layer.bias is not None:
                layer.bias.copy_(torch.from_numpy(self.bias_d))


def spread(examples: int, count: int) -> NDArray[np.int64]:
    """At most `count` of the numbers below `examples`, evenly spread."""
    return np.linspace(0, examples - 1, min(count, examples)).astype(np.int64)


def regression(
    states_ND: NDArray[np.float32], targets_Nd: NDArray[np.float32], *, bias: bool = True, ridge: float = RIDGE
) -> Linear:
    """Ridge regression from states to targets, in double precision: argmin ||X W + b - Y||^2 + ridge (||W||^2 + ||b||^2)."""
    ones = np.ones((len(states_ND), 1 if bias else 0))
    x = np.hstack([states_ND.astype(np.float64), ones])
    solution = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ targets_Nd)
    width = states_ND.shape[1]
    return Linear(solution[:width], solution[width] if bias else np.zeros(targets_Nd.shape[1]))


def principal_axes(states_ND: NDArray[np.float32], d: int) -> Linear:
    """The first d principal axes of the student's own states, centred: for a projection that has no targets."""
    sample = states_ND.astype(np.float64)
    mean_D = sample.mean(axis=0)
    _, axes_DD = np.linalg.eigh((sample - mean_D).T @ (sample - mean_D))
    axes_Dd = axes_DD[:, ::-1][:, :d]
    return Linear(axes_Dd, -mean_D @ axes_Dd)
