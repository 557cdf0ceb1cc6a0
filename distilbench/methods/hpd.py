"""HPD: homomorphic projective distillation (ACL Findings 2022): a small encoder fine-tuned to the teacher's PCA.

Axes: B batch, D student width, d output dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from sentence_transformers.base.modules.dense import Dense
from torch import Tensor, nn

from distilbench.data.corpus import Corpus
from distilbench.data.needs import Needs
from distilbench.encoder import EncoderSpec
from distilbench.methods.method import Phase, Possible
from distilbench.methods.parts.length import Examples, PhaseSteps
from distilbench.methods.parts.losses import squared_distance
from distilbench.methods.parts.supervised import FineTuning, FineTuningParams
from distilbench.methods.parts.unlabelled import (
    UnlabelledParams,
    check_unlabelled,
    unlabelled_needs,
    unlabelled_planned,
    unlabelled_rows,
    unlabelled_steps,
)
from distilbench.methods.parts.whitened import Whitened, WhitenedParams, spread
from distilbench.prepare.prepared import Prepared

ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "tanh": nn.Tanh}
REGRESSION_SENTENCES = 2000


class Params(UnlabelledParams, WhitenedParams, FineTuningParams):
    """Hyper-parameters; the defaults are the paper's."""

    activation: Literal["identity", "tanh"] = "identity"
    """After the projection: none (the paper), or tanh (the released code)."""
    projection_start: Literal["random", "regression"] = "random"
    """W_s, b_s at random (the paper), or least squares from the untrained student to the targets on 2,000 sentences."""
    ft_epochs: float = Field(default=0, ge=0)
    """Above 0, the student is fine-tuned afterwards on labelled examples (HPD_ft of the IBKD paper)."""


class Trainable(Whitened):
    """Student encoder, mean pooling, linear layer to d; targets W_t^T (e_t - mean)."""

    params_type = Params
    title: ClassVar[str] = "HPD"
    params: Params

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.rows = unlabelled_rows(params, prepared)
        self.targets_Nd = prepared.pca.project(prepared.vectors.take(self.rows), self.trained_dim)
        self.projection = self.linear(self.trained_dim, ACTIVATIONS[params.activation]())
        if params.projection_start == "regression":
            self._regress(self.projection)
        self.fine_tuning = FineTuning(params, prepared, self.outputs) if params.ft_epochs else None
        self.to(device)

    def _regress(self, dense: Dense) -> None:
        chosen = spread(len(self.rows), REGRESSION_SENTENCES)
        self.projection = None
        x_ND = self.encode(self.rows[chosen])
        self.projection = dense
        with_bias = np.hstack([x_ND.astype(np.float64), np.ones((len(x_ND), 1))])
        # The student's D features can be nearly dependent: hence double precision, and a little ridge.
        normal = with_bias.T @ with_bias + 1e-3 * np.eye(with_bias.shape[1])
        solution = np.linalg.solve(normal, with_bias.T @ self.targets_Nd[chosen])
        with torch.no_grad():
            dense.linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(solution[:-1].T)))
            dense.linear.bias.copy_(torch.from_numpy(solution[-1]))

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        """The student's width, or the teacher's where that is smaller: the PCA has no more directions."""
        return min(teacher.width(), super().native_dim(teacher, student))

    @classmethod
    def needs(cls, possible: Possible) -> Needs:
        """Augmented sentences; labelled examples for the fine-tuning."""
        return unlabelled_needs(possible) | (FineTuning.needs(possible) if max(possible("ft_epochs")) else Needs())

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Enough sentences for one batch; a width to whiten from that the teacher has."""
        super().check_corpus(possible, corpus, native)
        check_unlabelled(possible, corpus)
        if max(possible("ft_epochs")):
            FineTuning.check_corpus(possible, corpus)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """Fine-tuned, augmented, whitened."""
        told = ["fine-tuned"] * bool(params.get("ft_epochs")) + ["augmented"] * bool(params.get("augmentation"))
        return ", ".join(filter(None, [*told, super().variant(params)]))

    def phases(self) -> list[Phase]:
        """Distillation, then the fine-tuning that was asked for."""
        p, steps = self.params, unlabelled_steps(self.params, self.rows)
        distil = Phase("distil", len(self.rows), steps, p.batch_size, p.lr, self.loss)
        return [distil] if self.fine_tuning is None else [distil, self.fine_tuning.phase()]

    @classmethod
    def planned(cls, params: dict[str, Any], examples: Examples) -> list[PhaseSteps]:
        """As `phases`."""
        return [unlabelled_planned(params, examples), *FineTuning.planned(params, examples)]

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """Mean over the batch of ||h_s - h_t||^2 (HPD, equation 3)."""
        h_s = self.outputs(self.rows[index_B])
        return squared_distance(h_s.float(), torch.from_numpy(self.targets_Nd[index_B]).to(self.device))
