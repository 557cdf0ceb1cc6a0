"""After the distillation: the student is left as it is, and its projection alone learns who is near whom.

A projection to the teacher's PCA keeps what varies most; this one keeps the teacher's neighbours, at every nested width. The
student's states are read once, so a step costs next to nothing. Axes: N sentences, B batch, D widths, d output dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.methods.parts.losses import neighbour_loss
from distilbench.methods.parts.starts import spread
from distilbench.training.params import ParamsPart
from distilbench.training.phases import Phase

SENTENCES = 50_000
"""Training sentences that the steps are made of, at most."""
BATCH = 512
"""Sentences that are compared with each other in a step, at most as many as there are."""
TEMPERATURE = 0.05
"""Of both softmaxes over cosines."""


class HeadTuningParams(ParamsPart):
    """How the projection is trained by itself."""

    head_steps: int = Field(default=0, ge=0)
    """Optimiser steps after the distillation in which the projection alone is trained, to keep the teacher's neighbours at
    every width; 0: none. A static student has no projection."""
    head_lr: float = Field(default=0.001, gt=0, le=1)
    """Learning rate of these steps."""


class HeadTuning:
    """The phase in which a method's projection is trained by itself, on training rows drawn evenly from `rows_N`."""

    def __init__(
        self, params: HeadTuningParams, method: EncoderMethod, rows_N: NDArray[np.int64], widths: Sequence[int]
    ) -> None:
        self.params, self.method, self.widths = params, method, widths
        self.rows_N = rows_N[spread(len(rows_N), SENTENCES)]
        self.states_ND = torch.empty(0)
        self.teacher_ND = torch.empty(0)

    def phase(self) -> Phase:
        """Begins with one pass of the student over the sentences."""
        p, projection = self.params, self.method.projection
        if projection is None:
            raise ValueError("head_steps: the student has no projection")
        batch = min(BATCH, len(self.rows_N))
        examples, trained = len(self.rows_N), [projection]
        phase = Phase("head", examples, p.head_steps, batch, p.head_lr, self.loss, self._begin, trained=trained)
        return replace(phase, shape=lambda _: 0)  # all its batches are alike

    def _begin(self) -> None:
        self.states_ND = torch.from_numpy(self.method.states(self.rows_N)).to(self.method.device)
        self.teacher_ND = self.method.teacher_vectors(self.rows_N)

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The mean over the widths of `neighbour_loss` within the batch, of vectors as they are stored."""
        chosen = index_B if isinstance(index_B, Tensor) else torch.from_numpy(index_B)
        student_Bd = self.method.as_stored(self.method.project(self.states_ND[chosen]))
        teacher_BD, parts = self.teacher_ND[chosen], [(student_Bd[:, :w], student_Bd[:, :w]) for w in self.widths]
        return torch.stack([neighbour_loss(*both, teacher_BD, TEMPERATURE, TEMPERATURE) for both in parts]).mean()
