"""CRD: contrastive representation distillation (Tian et al. 2020), a baseline of the IBKD paper.

A critic tells the teacher's embedding of the same sentence from those of other sentences. The teacher's embeddings of the
whole training set are at hand, so negatives are drawn from them directly instead of from a memory of past batches.

Axes: B batch, N negatives, C the critic's width, D student width.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from distilbench.data.corpus import Corpus
from distilbench.data.needs import Needs
from distilbench.methods.method import Phase, Possible
from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.methods.parts.length import Examples, PhaseSteps
from distilbench.methods.parts.losses import full_precision
from distilbench.methods.parts.unlabelled import (
    UnlabelledParams,
    check_unlabelled,
    unlabelled_needs,
    unlabelled_planned,
    unlabelled_rows,
    unlabelled_steps,
)
from distilbench.prepare.prepared import Prepared


class Params(UnlabelledParams):
    """Hyper-parameters; the defaults are those of CRD's released code, but for the negatives (there 16,384)."""

    tau: float = Field(default=0.07, gt=0)
    """Temperature of the critic."""
    negatives: int = Field(default=1024, ge=1)
    """Teacher embeddings of other sentences, drawn for each batch."""
    critic_dim: int = Field(default=128, ge=1)
    """Width of the space in which the critic compares."""


def crd_loss(
    student_BC: Tensor, positive_BC: Tensor, negative_NC: Tensor, same_BN: Tensor, tau: float, m: int
) -> Tensor:
    """Binary noise-contrastive loss of the critic h = e^g / (e^g + N/M), g = s.t / tau (CRD, equations 18 and 19).

    All rows of unit norm; `m` is the number of sentences that negatives are drawn from. `same_BN` marks the negatives that
    are the sentence itself: they do not count.
    """
    count = len(negative_NC)
    prior = np.log(count / m)
    positive_B = (student_BC * positive_BC).sum(dim=-1) / tau - prior
    with full_precision(student_BC):
        negative_BN = student_BC @ negative_NC.T / tau - prior
    # log h = logsigmoid(g - log(N/M)), log(1 - h) = logsigmoid(-(g - log(N/M)))
    pushed_B = functional.logsigmoid(-negative_BN).masked_fill(same_BN, 0.0).sum(dim=-1)
    return -(functional.logsigmoid(positive_B) + pushed_B).mean()


class Trainable(EncoderMethod):
    """Student encoder and mean pooling; the critic's two linear maps are learned and left out."""

    params_type = Params
    title: ClassVar[str] = "CRD"
    params: Params

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.rows = unlabelled_rows(params, prepared)
        self.student_map = nn.Linear(self.width, params.critic_dim)
        self.teacher_map = nn.Linear(prepared.vectors.width, params.critic_dim)
        self.to(device)

    @classmethod
    def needs(cls, possible: Possible) -> Needs:
        """Augmented sentences."""
        return unlabelled_needs(possible)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Only the student's own width; enough sentences for one batch."""
        cls.check_native(possible, native)
        check_unlabelled(possible, corpus)

    def phases(self) -> list[Phase]:
        """One, over the training sentences."""
        p, steps = self.params, unlabelled_steps(self.params, self.rows)
        return [Phase("distil", len(self.rows), steps, p.batch_size, p.lr, self.loss)]

    def _teacher(self, rows: NDArray[np.int64]) -> Tensor:
        vectors = torch.from_numpy(self.prepared.vectors.take(rows)).to(self.device)
        return functional.normalize(self.teacher_map(vectors), dim=-1).float()

    @classmethod
    def planned(cls, params: dict[str, Any], examples: Examples) -> list[PhaseSteps]:
        """As `phases`."""
        return [unlabelled_planned(params, examples)]

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """The critic's loss with negatives drawn from all training sentences."""
        train, count = self.rows, self.params.negatives
        rows, others = train[index_B], train[torch.randint(len(train), (count,)).numpy()]
        student = functional.normalize(self.student_map(self.outputs(rows)), dim=-1).float()
        same = torch.from_numpy(rows[:, None] == others[None, :]).to(self.device)
        return crd_loss(student, self._teacher(rows), self._teacher(others), same, self.params.tau, len(train))
