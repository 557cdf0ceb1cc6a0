"""IBKD: distillation by the information bottleneck (EMNLP Findings 2023): near the teacher, far from the input.

Stage 1 draws the student to the teacher by InfoNCE, stage 2 fine-tunes on labelled examples; in both HSIC between the
student's input representation X and its embedding S is kept small. CKD is IBKD with both betas 0.

Axes: B batch, D student width, Dt teacher width, d output dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from distilbench.data.corpus import Corpus
from distilbench.data.needs import Needs
from distilbench.errors import InputError
from distilbench.methods.method import Phase, Possible
from distilbench.methods.parts.encoder_method import TRAINING_TOKENS, EncoderMethod
from distilbench.methods.parts.length import Examples, PhaseSteps
from distilbench.methods.parts.losses import full_precision, info_nce
from distilbench.methods.parts.supervised import FineTuning, FineTuningParams
from distilbench.methods.parts.unlabelled import (
    UnlabelledParams,
    check_unlabelled,
    unlabelled_needs,
    unlabelled_planned,
    unlabelled_rows,
    unlabelled_steps,
)
from distilbench.prepare.prepared import Prepared

Kernel = Literal["rbf", "imq", "linear"]


class Params(UnlabelledParams, FineTuningParams):
    """Hyper-parameters; the defaults are the paper's for STS. Stage 2 takes `ft_lr`, `ft_epochs`, ... (0: stage 1 only)."""

    epochs: float = Field(default=10, gt=0)
    tau: float = Field(default=0.1, gt=0)
    """Temperature of stage 1."""
    beta1: float = Field(default=1.0, ge=0)
    """Weight of HSIC in stage 1."""
    beta2: float = Field(default=0.5, ge=0)
    """Weight of HSIC in stage 2."""
    kernel: Kernel = "rbf"
    gamma: float = Field(default=0.5, gt=0)
    """Of the RBF and IMQ kernels."""
    kernel_input: Literal["unit", "raw"] = "unit"
    """Whether X and S are brought to unit norm before the kernel. The paper does not say; with raw vectors, whose squared
    distances are far above 1 / gamma, the RBF matrices are near the identity and HSIC has no gradient."""
    negatives_of: Literal["batch", "anchor"] = "anchor"
    input_layer: int = Field(default=0, ge=0)
    """Whose mean-pooled output X is: 0 the embedding layer (the released code), i the student's i-th layer."""


def gram(x_BD: Tensor, kernel: Kernel, gamma: float) -> Tensor:
    """Kernel matrix, B x B: exp(-gamma r^2), (1 + gamma r^2)^(-1/2) or the inner product; r the distance of two rows."""
    with full_precision(x_BD):
        products = x_BD @ x_BD.T
    if kernel == "linear":
        return products
    norms_B = x_BD.square().sum(dim=-1)
    squared = (norms_B[:, None] + norms_B[None, :] - 2 * products).clamp_min(0)
    return torch.exp(-gamma * squared) if kernel == "rbf" else torch.rsqrt(1 + gamma * squared)


def hsic(x_BD: Tensor, s_BD: Tensor, kernel: Kernel, gamma: float) -> Tensor:
    """tr(Kx H Ks H) / B^2, H = I - 11^T / B: the biased estimator (IBKD, equation 6). 0 iff independent, for RBF and IMQ.

    The released code divides by (B - 1)^2 instead, which is the same up to a factor of the betas.
    """
    kx, ks = gram(x_BD, kernel, gamma), gram(s_BD, kernel, gamma)
    # tr(Kx H Ks H) = sum of H Kx H times Ks, entry by entry, both being symmetric.
    centred = kx - kx.mean(dim=0, keepdim=True) - kx.mean(dim=1, keepdim=True) + kx.mean()
    return (centred * ks).sum() / len(x_BD) ** 2


class Trainable(EncoderMethod):
    """Student encoder, mean pooling; a projection to d where d is not the student's width, trained in stage 2."""

    params_type = Params
    title: ClassVar[str] = "IBKD"
    params: Params

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.rows = unlabelled_rows(params, prepared)
        layers = self.student[0].model.config.num_hidden_layers
        if params.input_layer >= layers:
            raise InputError(f"input_layer is {params.input_layer}; expected below the student's {layers} layers")
        self.map = nn.Linear(self.width, prepared.vectors.width, bias=False)
        self.down = None if params.output_dim == self.width else self.linear(params.output_dim)
        self.fine_tuning = FineTuning(params, prepared, self.outputs) if params.ft_epochs else None
        self.to(device)

    @classmethod
    def needs(cls, possible: Possible) -> Needs:
        """Augmented sentences for stage 1, labelled examples for stage 2."""
        return unlabelled_needs(possible) | (FineTuning.needs(possible) if max(possible("ft_epochs")) else Needs())

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Enough sentences and labelled examples for one batch; a projection only where stage 2 trains it."""
        super().check_corpus(possible, corpus, native)
        check_unlabelled(possible, corpus)
        if max(possible("ft_epochs")):
            FineTuning.check_corpus(possible, corpus)
        if min(possible("ft_epochs")) == 0 and min(possible("output_dim")) < native:
            raise InputError(
                f"output_dim: {min(possible('output_dim'))}: below the student's width of {native} a projection is trained "
                f"in stage 2, but ft_epochs can be 0; expected output_dim {native} (`native`) or ft_epochs above 0"
            )

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """CKD where no HSIC takes part; fine-tuned where there is a stage 2."""
        fine_tuned = bool(params.get("ft_epochs"))
        weights = [params.get("beta1", 1.0), params.get("beta2", 0.5) if fine_tuned else 0]
        return ", ".join(["CKD"] * (not any(weights)) + ["fine-tuned"] * fine_tuned)

    def phases(self) -> list[Phase]:
        """Stage 1 over the training sentences, stage 2 over the labelled examples."""
        p, steps = self.params, unlabelled_steps(self.params, self.rows)
        trained = [self.student, self.map]
        stage1 = Phase("distil", len(self.rows), steps, p.batch_size, p.lr, self.loss, trained=trained)
        if self.fine_tuning is None:
            return [stage1]
        return [stage1, self.fine_tuning.phase(self.stage2_loss, begin=self._add_projection)]

    @classmethod
    def planned(cls, params: dict[str, Any], examples: Examples) -> list[PhaseSteps]:
        """As `phases`."""
        return [unlabelled_planned(params, examples), *FineTuning.planned(params, examples)]

    def _add_projection(self) -> None:
        self.projection = self.down

    def _input_and_output(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """X and the pooled S of rows, both B x D, in one forward pass."""

        def run(part: dict[str, Tensor]) -> Tensor:
            # sentence-transformers hands the hidden states on only where config.json asks for them, also after export.
            states = self.student[0].model(**part, output_hidden_states=True)
            s_BD = self.student[1]({**part, "token_embeddings": states.last_hidden_state})["sentence_embedding"]
            mask_BT = part["attention_mask"].unsqueeze(-1)
            x_BTD = states.hidden_states[self.params.input_layer]
            return torch.cat([(x_BTD * mask_BT).sum(dim=1) / mask_BT.sum(dim=1), s_BD], dim=-1)

        both = self.over_parts(rows, TRAINING_TOKENS[torch.device(self.device).type], run).float()
        return both[:, : self.width], both[:, self.width :]

    def _hsic(self, x_BD: Tensor, s_BD: Tensor) -> Tensor:
        p = self.params
        if p.kernel_input == "unit":
            x_BD, s_BD = functional.normalize(x_BD, dim=-1), functional.normalize(s_BD, dim=-1)
        return hsic(x_BD, s_BD, p.kernel, p.gamma)

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """Stage 1: InfoNCE between W s and t of the same sentence, + beta1 HSIC(X, S) (IBKD, equations 5 and 8)."""
        rows = self.rows[index_B]
        t_BT = torch.from_numpy(self.prepared.vectors.take(rows)).to(self.device)
        if not self.params.beta1:
            return info_nce(self.map(self.pooled(rows)).float(), t_BT, self.params.tau)
        x_BD, s_BD = self._input_and_output(rows)
        return info_nce(self.map(s_BD).float(), t_BT, self.params.tau) + self.params.beta1 * self._hsic(x_BD, s_BD)

    def stage2_loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """Stage 2: supervised InfoNCE with hard negatives + beta2 HSIC(X, S') of the anchors (equations 9 to 11)."""
        assert self.fine_tuning is not None
        if not self.params.beta2:
            return self.fine_tuning.loss(index_B)
        x_BD, s_BD = self._input_and_output(self.fine_tuning.examples.rows(index_B))
        out_Bd, anchors = self.project(s_BD).float(), len(index_B)
        nce = self.fine_tuning.contrast(out_Bd, anchors)
        return nce + self.params.beta2 * self._hsic(x_BD[:anchors], out_Bd[:anchors])
