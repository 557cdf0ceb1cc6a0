"""IBKD: distillation by the information bottleneck (EMNLP Findings 2023): near the teacher, far from the input.

Stage 1 draws the student to the teacher by InfoNCE, stage 2 fine-tunes on labelled examples; in both HSIC between the
student's input representation X and its embedding S is kept small. CKD is IBKD with both betas 0.

Axes: B batch, D student width, Dt teacher width, d output dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from distilbench.encoders.shared_space import SharedSpace
from distilbench.encoders.student import is_static
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_method import TRAINING_TOKENS
from distilbench.methods.parts.heads import as_dense
from distilbench.methods.parts.losses import full_precision, info_nce, supervised_info_nce
from distilbench.methods.parts.starts import principal_axes, regression, spread
from distilbench.methods.parts.supervised import FineTuned, FineTuningParams
from distilbench.methods.parts.unlabelled import UnlabelledParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.phases import Phase

Kernel = Literal["rbf", "imq", "linear"]
START_SENTENCES = 2000
"""Training sentences that W and the projection start from."""


class IBKDParams(UnlabelledParams, FineTuningParams):
    """Hyper-parameters; the defaults are the paper's for STS. Stage 2 takes `ft_lr`, `ft_epochs`, ... (0: stage 1 only)."""

    epochs: float = Field(default=10, gt=0)
    tau: float = Field(default=0.1, gt=0)
    """Temperature of stage 1."""
    beta1: float = Field(default=1.0, ge=0)
    """Weight of HSIC in stage 1."""
    beta2: float = Field(default=0.5, ge=0)
    """Weight of HSIC in stage 2."""
    kernel: Kernel = "rbf"
    """Of unit vectors, of which r is the distance of two: rbf is exp(-gamma r^2), imq (1 + gamma r^2)^(-1/2)."""
    gamma: float = Field(default=0.5, gt=0)
    """The bandwidth of the RBF and IMQ kernels."""
    map_start: Literal["random", "regression", "auto"] = "auto"
    """W at random (the paper), or as the ridge regression of the untrained student's states to the teacher's embeddings;
    auto is the identity where the two are of one width, and the regression elsewhere."""
    projection_start: Literal["random", "pca"] = "pca"
    """The projection of stage 2 at random, or as the first principal axes of what the student gives after stage 1."""


def gram(x_BD: Tensor, kernel: Kernel, gamma: float) -> Tensor:
    """Kernel matrix, B x B, by the distance r of two rows, or their inner product: `IBKDParams.kernel` has the formulas."""
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


class IBKD(FineTuned):
    """Student encoder, mean pooling; a projection to d where d is not the student's width, trained in stage 2.

    Trains a student encoder, with a projection where d is smaller. Reads unlabelled sentences; triplets, pairs, or judged
    queries and passages for its second stage. Source: Zhang et al., EMNLP Findings 2023.
    """

    params_type = IBKDParams
    title: ClassVar[str] = "IBKD"
    takes_static: ClassVar[bool] = True
    centred: ClassVar[bool] = False
    params: IBKDParams

    def __init__(self, params: IBKDParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.map = nn.Linear(self.width, prepared.vectors.width, bias=False)
        self.down = None if params.output_dim == self.width else self.linear(params.output_dim)
        self.to(device)

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """A projection only where stage 2 trains it. A static student has no hidden states for HSIC, and no W after it."""
        stage2 = possible("ft_epochs")
        if is_static(student):
            for name in ("beta1", *(["beta2"] if max(stage2) else [])):
                if max(possible(name)):
                    raise InputError(
                        f"--student static: {name}: HSIC needs an encoder's hidden states; expected {name}: 0"
                    )
        elif min(stage2) == 0 and (d := min(possible("output_dim"))) < native:
            raise InputError(
                f"output_dim: {d}: below the student's width of {native} a projection is trained in stage 2, but ft_epochs "
                f"can be 0; expected output_dim {native} (`native`) or ft_epochs above 0"
            )

    def shared_space(self) -> SharedSpace:
        """The teacher's own vectors, which the student's go to by W."""
        return SharedSpace(*self.space(), after_student=(as_dense(self.map),))

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        fine_tuned = bool(params.get("ft_epochs"))
        weights = [params.get("beta1", 1.0), params.get("beta2", 0.5) if fine_tuned else 0]
        return ", ".join(["CKD"] * (not any(weights)) + ["fine-tuned"] * fine_tuned)

    def phases(self) -> list[Phase]:
        stage1 = self.distil(self._start_map, [self.student, self.map])
        return [stage1, *self.fine_tuning(begin=self._add_projection, start=self._start_projection)]

    def _start_rows(self) -> NDArray[np.int64]:
        return self.rows[spread(len(self.rows), START_SENTENCES)]

    def _start_map(self) -> None:
        start, teacher, rows = self.params.map_start, self.prepared.vectors, self._start_rows()
        if start == "auto" and self.width == teacher.width:
            nn.init.eye_(self.map.weight)
        elif start != "random":
            regression(self.start_states(rows), teacher.take(rows), bias=False).copy_to(self.map)

    def _add_projection(self) -> None:
        self.projection = self.down

    def _start_projection(self) -> None:
        if self.down is not None and self.params.projection_start == "pca":
            states_SD = self.states(self._start_rows())
            principal_axes(states_SD, self.params.output_dim).copy_to(cast(nn.Linear, self.down.linear))

    def _input_and_output(self, rows: NDArray[np.int64] | Tensor) -> tuple[Tensor, Tensor]:
        """X, the mean-pooled output of the embedding layer, and the pooled S of rows, both B x D, in one forward pass."""

        def run(part: dict[str, Tensor]) -> Tensor:
            # sentence-transformers hands the hidden states on only where config.json asks for them, also after export.
            states = self.student[0].model(**part, output_hidden_states=True)
            s_BD = self.student[1]({**part, "token_embeddings": states.last_hidden_state})["sentence_embedding"]
            mask_BT = part["attention_mask"].unsqueeze(-1)
            x_BTD = states.hidden_states[0]
            return torch.cat([(x_BTD * mask_BT).sum(dim=1) / mask_BT.sum(dim=1), s_BD], dim=-1)

        if isinstance(rows, Tensor):
            both = self.pooled_on_device(rows, with_embeddings=True)
        else:
            both = self.over_parts(rows, TRAINING_TOKENS[torch.device(self.device).type], run).float()
        return both[:, : self.width], both[:, self.width :]

    def _hsic(self, x_BD: Tensor, s_BD: Tensor) -> Tensor:
        x_BD, s_BD = functional.normalize(x_BD, dim=-1), functional.normalize(s_BD, dim=-1)
        return hsic(x_BD, s_BD, self.params.kernel, self.params.gamma)

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """Stage 1: InfoNCE between W s and t of the same sentence, + beta1 HSIC(X, S) (IBKD, equations 5 and 8)."""
        rows = self.at(self.rows, index_B)
        t_BT = self.teacher_vectors(rows)
        if not self.params.beta1:
            return info_nce(self.map(self.pooled(rows)).float(), t_BT, self.params.tau)
        x_BD, s_BD = self._input_and_output(rows)
        return info_nce(self.map(s_BD).float(), t_BT, self.params.tau) + self.params.beta1 * self._hsic(x_BD, s_BD)

    def supervised_loss(self, rows: NDArray[np.int64], anchors: int) -> Tensor:
        """Stage 2: supervised InfoNCE with hard negatives + beta2 HSIC(X, S') of the anchors (equations 9 to 11)."""
        if not self.params.beta2:
            return super().supervised_loss(rows, anchors)
        x_BD, s_BD = self._input_and_output(rows)
        out_Bd = self.as_stored(self.project(s_BD).float())
        return self.contrast(out_Bd, anchors) + self.params.beta2 * self._hsic(x_BD[:anchors], out_Bd[:anchors])

    def contrast(self, vectors: Tensor, anchors: int) -> Tensor:
        """Equation 10: an anchor is told from its own hard negatives alone."""
        negatives_BKD = vectors[2 * anchors :].reshape(anchors, -1, vectors.shape[-1])
        return supervised_info_nce(vectors[:anchors], vectors[anchors : 2 * anchors], negatives_BKD, self.params.ft_tau)
