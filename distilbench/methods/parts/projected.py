"""A student's projection to d and what it starts from, for methods that know the targets of a sentence, or do not.

Axes: N sentences, D width of the student's pooled states, d output dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.methods.parts.starts import ProjectionStart, principal_axes, regression, spread
from distilbench.training.params import ParamsPart

Targets = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Corpus rows -> the vectors that the student is to give them, N x d."""


class ProjectedParams(ParamsPart):
    """What the projection starts from."""

    projection_start: ProjectionStart = "regression"
    """W, b at random (the papers), ridge regression from the untrained student's states to the targets, or the principal
    axes of these states."""
    start_sentences: int = Field(default=4000, ge=2)
    """Training sentences that a regression or the axes are fitted on at most."""


class UntargetedParams(ParamsPart):
    """The same where nothing is known that the projection could be fitted to."""

    projection_start: ProjectionStart = "pca"
    """W, b at random, or the principal axes of the untrained student's own states."""
    start_sentences: int = Field(default=4000, ge=2)
    """Training sentences that the axes are fitted on at most."""


def start_projection(
    method: EncoderMethod,
    layer: nn.Linear,
    params: ProjectedParams | UntargetedParams,
    rows_N: NDArray[np.int64],
    targets: Targets | None = None,
) -> None:
    """Set a layer as `params.projection_start` says, from a sample of the corpus rows and the student before its training."""
    if params.projection_start == "random":
        return
    chosen = rows_N[spread(len(rows_N), params.start_sentences)]
    states_ND = method.start_states(chosen)
    if params.projection_start == "pca":
        principal_axes(states_ND, layer.out_features).copy_to(layer)
    elif targets is None:
        raise ValueError("projection_start is regression, but nothing is known to fit it to")
    else:
        regression(states_ND, targets(chosen)).copy_to(layer)


def linear_of(dense: nn.Module) -> nn.Linear:
    """The linear layer of sentence-transformers' Dense."""
    return cast(nn.Linear, dense.linear)
