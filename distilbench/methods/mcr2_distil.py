"""MCR2, mode `distil` (CIT 2024, table 4): the compression head defines the teacher's short embedding, a student learns it.

Axes: B batch, D teacher width, d output dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.shared_space import SharedSpace
from distilbench.methods import mcr2
from distilbench.methods.method import NestedParams, Possible
from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.methods.parts.losses import Distance, SimilarityTermParams, target_loss
from distilbench.methods.parts.starts import ProjectedParams
from distilbench.methods.parts.unlabelled import ACTIVATIONS, Activation, DistilledParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import check_enough
from distilbench.training.phases import Phase, epoch_steps


class MCR2DistilParams(mcr2.MCR2Params, DistilledParams, ProjectedParams, NestedParams, SimilarityTermParams):
    """Those of the compression head (`lr`, `batch_size`, `steps`, ...), and the distillation's."""

    distil_epochs: float = Field(default=100, gt=0)
    """Passes over the training sentences (100 in the released code)."""
    distil_lr: float = Field(default=1e-4, gt=0, le=1)
    distil_batch_size: int = Field(default=256, ge=2)
    activation: Activation = "tanh"
    """After the student's linear layer."""
    loss: Distance = "squared"
    """Squared distance to the head's features, or one minus the cosine."""


class MCR2Distil(EncoderMethod):
    """Student encoder, mean pooling, linear layer to d, tanh; targets are the trained head's features.

    Trains a head on the frozen teacher, then a student encoder to its output. Reads unlabelled sentences; similar pairs
    where they are used. Source: MCR2, CIT 2024, mode distil.
    """

    params_type = MCR2DistilParams
    title: ClassVar[str] = "MCR2 distilled"
    takes_static: ClassVar[bool] = True
    params: MCR2DistilParams

    def __init__(self, params: MCR2DistilParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.compression = mcr2.CompressionHead(params, prepared, device)
        if self.static is None:
            self.projection = self.linear(params.output_dim, ACTIVATIONS[params.activation]())
        self.distilling = False
        """Whether the head is finished, so that the student is trained."""
        self.targets_Nd = np.empty((0, params.output_dim), dtype=np.float32)
        self.to(device)

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        return min(teacher.width(), super().native_dim(teacher, student))

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        check_enough("distil_batch_size", max(possible("distil_batch_size")), len(corpus.train), "training sentences")
        mcr2.CompressionHead.check_corpus(possible, corpus)

    @classmethod
    def apart(cls, possible: Possible) -> str:
        return ""

    @classmethod
    def space_of(cls, params: dict[str, Any], teacher_width: int) -> tuple[int, str]:
        return int(params["output_dim"]), "its MCR2 head"

    def shared_space(self) -> SharedSpace:
        """The teacher's vectors after the compression head."""
        return SharedSpace(*self.space(), after_teacher=tuple(self.compression.modules_after_teacher()))

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        return str(params["pairs"])

    def phases(self) -> list[Phase]:
        p, examples = self.params, len(self.prepared.train)
        steps = epoch_steps(p.distil_epochs, examples, p.distil_batch_size)
        distil = Phase(
            "distil",
            examples,
            steps,
            p.distil_batch_size,
            p.distil_lr,
            self.loss,
            begin=self._begin,
            start=self._start,
            trained=[self.student] if self.projection is None else [self.student, self.projection],
            shape=lambda index_B: self.batch_shape(self.prepared.train[index_B]),
        )
        return [self.compression.phase(), distil]

    def _begin(self) -> None:
        """The head is finished: its features of all training sentences are the targets."""
        self.targets_Nd = self.compression.embed(self.prepared.train)
        self.distilling = True

    def _start(self) -> None:
        self.start_projection(self.prepared.train, self.compression.embed)
        if self.static is not None:
            self.static.start(self.fitted_table(self.untrained_static(), self.compression.embed))

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The student's vectors of corpus rows; while the head is trained, what the student is to learn."""
        return super().embed(rows) if self.distilling else self.compression.embed(rows)

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """Mean over the batch of ||student - target||^2, or of 1 - cos(student, target).

        Nested: the mean over the widths, of which the head was trained at each.
        """
        vectors_Bd = self.outputs(self.at(self.prepared.train, index_B)).float()
        target_Bd = self.on_device(self.targets_Nd, index_B)
        return target_loss(self.params, self.params.loss, vectors_Bd, target_Bd, self.compression.widths)
