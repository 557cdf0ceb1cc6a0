"""HPD: homomorphic projective distillation (ACL Findings 2022): a small encoder fine-tuned to the teacher's PCA.

Axes: B batch, D student width, d output dimension.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from distilbench.codes import nested_widths
from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.shared_space import SharedSpace
from distilbench.encoders.student import is_static
from distilbench.errors import InputError
from distilbench.methods.method import NestedParams, Possible
from distilbench.methods.parts.heads import linear_head, pca_head
from distilbench.methods.parts.losses import Distance, SimilarityTermParams, full_precision, neighbour_loss, target_loss
from distilbench.methods.parts.starts import ProjectedParams, regression, spread
from distilbench.methods.parts.supervised import FineTuned, FineTuningParams
from distilbench.methods.parts.unlabelled import ACTIVATIONS, Activation, UnlabelledParams
from distilbench.methods.parts.whitened import Whitened, WhitenedParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.phases import Phase, alike

TUNED_ON, TUNING_BATCH = 50_000, 512
"""Training sentences that the head's own steps are made of, and those that are compared in one step; at most."""
TUNING_TEMPERATURE = 0.05
"""Of both softmaxes over cosines."""


class HPDParams(
    UnlabelledParams,
    WhitenedParams,
    FineTuningParams,
    ProjectedParams,
    NestedParams,
    SimilarityTermParams,
):
    """Hyper-parameters; the defaults are the paper's."""

    activation: Activation = "identity"
    """After the projection: none (the paper), or tanh (the released code)."""
    loss: Distance = "squared"
    """Squared distance to the target (the paper, equation 2), or one minus the cosine."""
    ft_epochs: float = Field(default=0, ge=0)
    """Above 0, the student is fine-tuned afterwards on labelled examples (HPD_ft of the IBKD paper)."""
    head_steps: int = Field(default=0, ge=0)
    """Optimiser steps after the distillation in which the projection alone is trained, to keep the teacher's neighbours at
    every width; 0: none. A static student has no projection."""
    head_lr: float = Field(default=0.001, gt=0, le=1)
    """Learning rate of these steps."""


class HPD(Whitened, FineTuned):
    """Student encoder, mean pooling, linear layer to d; targets W_t^T (e_t - mean).

    Trains a student encoder with a projection, to the PCA of the teacher. Reads unlabelled sentences; triplets where it is
    fine-tuned. Source: Zhao et al., ACL Findings 2022.
    """

    params_type = HPDParams
    title: ClassVar[str] = "HPD"
    takes_static: ClassVar[bool] = True
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
            self.start_projection(self.rows, self._targets)
        self._loss_widths = nested_widths(params.model_dump()) if params.nested else (self.trained_dim,)
        self.tuned_rows = self.rows[spread(len(self.rows), TUNED_ON)]
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
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        if True in possible("nested") and max(possible("whiten_from")):
            raise InputError("nested: true with whiten_from: whitening would mix the first numbers with the others")

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """No steps of the head where the student is static: its projection is in the table."""
        super().check_student(possible, student, native)
        if is_static(student) and max(possible("head_steps")):
            raise InputError("--student static: head_steps: expected 0, since no layer follows the table")

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        parts = ["tuned head"] * bool(params.get("head_steps")) + ["fine-tuned"] * bool(params.get("ft_epochs"))
        parts += ["augmented"] * bool(params.get("augmentation"))
        return ", ".join(filter(None, [*parts, super().variant(params)]))

    @classmethod
    def space_of(cls, params: dict[str, Any], teacher_width: int) -> tuple[int, str]:
        head = "its whitened PCA" if params.get("whiten_from") else "its PCA"
        return int(params["output_dim"]), "a head fitted to the student's" if params.get("head_steps") else head

    def shared_space(self) -> SharedSpace:
        """The teacher's PCA, or, where the projection has steps of its own, the regression of what it gives on the teacher's
        vectors; whitened as the student's vectors are, where they are."""
        p, layers = self.params, [pca_head(self.prepared.pca, self.trained_dim)]
        if p.head_steps:
            rows = self.rows[spread(len(self.rows), p.start_sentences)]
            fitted = regression(self.prepared.vectors.take(rows), self.encode(rows))
            layers = [linear_head(fitted.weight_Dd.astype(np.float32), fitted.bias_d.astype(np.float32))]
        layers += [self._whitening()] if p.whiten_from else []
        return SharedSpace(*self.space(), after_teacher=tuple(layer.dense() for layer in layers))

    def phases(self) -> list[Phase]:
        return [self.distil(), *self._head_tuning(), *self.fine_tuning()]

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """Mean over the batch of ||h_s - h_t||^2 (HPD, equation 2), or of 1 - cos(h_s, h_t).

        Of nested widths it is the mean over them; the targets of a width are the first columns of one PCA.
        """
        rows = self.at(self.rows, index_B)
        h_s = self.outputs(rows).float()
        h_t = self.batch_targets(rows) if self.targets_Nd is None else self.on_device(self.targets_Nd, index_B)
        return target_loss(self.params, self.params.loss, h_s, h_t, self._loss_widths)

    def _head_tuning(self) -> list[Phase]:
        """The student is left as it is, and its projection alone learns who is near whom, at every nested width.

        A projection to the teacher's PCA keeps what varies most. The student's states are read once, so a step costs next to
        nothing.
        """
        p, examples = self.params, len(self.tuned_rows)
        if self.projection is None or not p.head_steps:
            return []
        batch, trained = min(TUNING_BATCH, examples), [self.projection]
        phase = Phase("head", examples, p.head_steps, batch, p.head_lr, self.head_loss, self._read, trained=trained)
        return [replace(phase, shape=alike)]

    def _read(self) -> None:
        self.states_ND = torch.from_numpy(self.states(self.tuned_rows)).to(self.device)
        self.teacher_ND = self.teacher_vectors(self.tuned_rows)

    def head_loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The mean over the widths of `neighbour_loss` within the batch, of vectors as they are stored."""
        chosen = index_B if isinstance(index_B, Tensor) else torch.from_numpy(index_B)
        student_Bd, teacher_BD = self.as_stored(self.project(self.states_ND[chosen])), self.teacher_ND[chosen]
        parts = [(student_Bd[:, :w], student_Bd[:, :w]) for w in self._loss_widths]
        both = TUNING_TEMPERATURE, TUNING_TEMPERATURE
        return torch.stack([neighbour_loss(*part, teacher_BD, *both) for part in parts]).mean()
