"""HPD: homomorphic projective distillation (ACL Findings 2022): a small encoder fine-tuned to the teacher's PCA.

Axes: B batch, D student width, d output dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.student import is_static
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.head_tuning import HeadTuning, HeadTuningParams
from distilbench.methods.parts.losses import Distance, SimilarityTermParams, full_precision, target_loss
from distilbench.methods.parts.nested import Nested, NestedParams, check_widths, widths_of
from distilbench.methods.parts.starts import ProjectedParams, start_projection
from distilbench.methods.parts.supervised import FineTuning, FineTuningParams
from distilbench.methods.parts.unlabelled import (
    ACTIVATIONS,
    Activation,
    Unlabelled,
    UnlabelledParams,
    check_static_activation,
)
from distilbench.methods.parts.whitened import Whitened, WhitenedParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.phases import Phase


class HPDParams(
    UnlabelledParams,
    WhitenedParams,
    FineTuningParams,
    ProjectedParams,
    NestedParams,
    SimilarityTermParams,
    HeadTuningParams,
):
    """Hyper-parameters; the defaults are the paper's."""

    activation: Activation = "identity"
    """After the projection: none (the paper), or tanh (the released code)."""
    loss: Distance = "squared"
    """Squared distance to the target (the paper, equation 2), or one minus the cosine."""
    ft_epochs: float = Field(default=0, ge=0)
    """Above 0, the student is fine-tuned afterwards on labelled examples (HPD_ft of the IBKD paper)."""


class HPD(Nested, Whitened, Unlabelled):
    """Student encoder, mean pooling, linear layer to d; targets W_t^T (e_t - mean).

    Trains a student encoder with a projection, to the PCA of the teacher. Reads unlabelled sentences; triplets where it is
    fine-tuned. Source: Zhao et al., ACL Findings 2022.
    """

    params_type = HPDParams
    title: ClassVar[str] = "HPD"
    takes_static: ClassVar[bool] = True
    replayable: ClassVar[bool] = True
    params: HPDParams
    mean_D: Tensor
    axes_Dd: Tensor

    def __init__(self, params: HPDParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.targets_Nd = self._targets(self.rows) if device == "cpu" else None
        """All targets; a GPU makes those of a batch from the teacher's vectors, in less time than reading them takes."""
        for name, array in (("mean_D", prepared.pca.mean_D), ("axes_Dd", prepared.pca.axes_DD[:, : self.trained_dim])):
            self.register_buffer(name, torch.from_numpy(array.copy()), persistent=False)
        if self.static is None:
            self.projection = self.linear(self.trained_dim, ACTIVATIONS[params.activation]())
            start_projection(self, self.projection, params, self.rows, self._targets)
        self._loss_widths = widths_of(params.model_dump()) if params.nested else (self.trained_dim,)
        self.head_tuning = HeadTuning(params, self, self.rows, self._loss_widths) if params.head_steps else None
        self.fine_tuning = FineTuning(params, prepared, self.outputs) if params.ft_epochs else None
        self.to(device)

    def _targets(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The first principal components of the teacher's embeddings of corpus rows."""
        return self.prepared.pca.project(self.prepared.vectors.take(rows), self.trained_dim)

    def batch_targets(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        """W_t^T (e_t - mean) of corpus rows on the method's device, B x d."""
        vectors_BD = self.teacher_vectors(rows)
        with full_precision(vectors_BD):
            targets_Bd: Tensor = (vectors_BD - self.mean_D) @ self.axes_Dd
        return targets_Bd

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        """The student's width, or the teacher's where that is smaller: the PCA has no more directions."""
        return min(teacher.width(), super().native_dim(teacher, student))

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        return super().needs(possible) | FineTuning.needs(possible)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        check_widths(possible)
        if True in possible("nested") and max(possible("whiten_from")):
            raise InputError("nested: true with whiten_from: whitening would mix the first numbers with the others")
        FineTuning.check_corpus(possible, corpus)

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """No tanh and no steps of the head where the student is static: its projection is in the table."""
        check_static_activation(possible, student)
        if is_static(student) and max(possible("head_steps")):
            raise InputError("--student static: head_steps: expected 0, since no layer follows the table")

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        parts = ["tuned head"] * bool(params.get("head_steps")) + ["fine-tuned"] * bool(params.get("ft_epochs"))
        parts += ["augmented"] * bool(params.get("augmentation"))
        return ", ".join(filter(None, [*parts, super().variant(params)]))

    def phases(self) -> list[Phase]:
        return [self.distil(), *(part.phase() for part in (self.head_tuning, self.fine_tuning) if part is not None)]

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """Mean over the batch of ||h_s - h_t||^2 (HPD, equation 2), or of 1 - cos(h_s, h_t).

        Of nested widths it is the mean over them; the targets of a width are the first columns of one PCA.
        """
        rows = self.at(self.rows, index_B)
        h_s = self.outputs(rows).float()
        h_t = self.batch_targets(rows) if self.targets_Nd is None else self.on_device(self.targets_Nd, index_B)
        return target_loss(self.params, self.params.loss, h_s, h_t, self._loss_widths)
