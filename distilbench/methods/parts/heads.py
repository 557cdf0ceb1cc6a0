"""Heads on a frozen teacher, and the methods that put one there; an export has it as sentence-transformers modules.

Axes: N rows, B batch, D teacher width, d output dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import reads_tokens
from distilbench.encoders.prompts import Prompts
from distilbench.methods.method import Method, Possible
from distilbench.prepare.pca import Pca
from distilbench.training.params import CodedParams, Params
from distilbench.training.phases import Phase

if TYPE_CHECKING:
    from sentence_transformers.base.modules.dense import Dense

ROWS = 8192
"""Vectors that a head is applied to at once."""


class Layer(nn.Module):
    """activation(W x + b), and x added where `residual`: what sentence-transformers' Dense computes.

    Its own module, since importing that package takes as long as starting a worker otherwise does.
    """

    def __init__(self, width: int, out: int, activation: nn.Module | None = None, *, residual: bool = False) -> None:
        super().__init__()
        self.linear, self.activation, self.residual = nn.Linear(width, out), activation or nn.Identity(), residual

    def forward(self, x_BD: Tensor) -> Tensor:
        """B x D to B x d."""
        out_Bd: Tensor = self.activation(self.linear(x_BD))
        return out_Bd + x_BD if self.residual else out_Bd

    def dense(self) -> Dense:
        """The same on the CPU, for an export."""
        return as_dense(self.linear, self.activation, residual=self.residual)


def as_dense(linear: nn.Linear, activation: nn.Module | None = None, *, residual: bool = False) -> Dense:
    """A linear layer, and what follows it in a `Layer`, on the CPU, for an export."""
    from sentence_transformers.base.modules.dense import Dense

    return Dense(
        linear.in_features,
        linear.out_features,
        bias=linear.bias is not None,
        activation_function=activation or nn.Identity(),
        init_weight=linear.weight.detach().cpu(),
        init_bias=None if linear.bias is None else linear.bias.detach().cpu(),
        use_residual=residual,
    )


def linear_head(weight_Dd: NDArray[np.float32], bias_d: NDArray[np.float32]) -> Layer:
    """z = W^T x + b."""
    layer = Layer(*weight_Dd.shape)
    layer.linear.weight = nn.Parameter(torch.from_numpy(np.ascontiguousarray(weight_Dd.T)))
    layer.linear.bias = nn.Parameter(torch.from_numpy(np.ascontiguousarray(bias_d)))
    return layer


def pca_head(pca: Pca, d: int) -> Layer:
    """W_t^T (x - mean) with the first d principal axes."""
    axes_Dd = pca.axes_DD[:, :d]
    return linear_head(axes_Dd, -(pca.mean_D @ axes_Dd))


def whitening_head(vectors_ND: NDArray[np.float32], d: int, power: float = 1.0) -> Layer:
    """(x - mean) times the first d columns of U L^{-power/2}, from the covariance U L U^T of a sample.

    1 whitens (Su et al. 2021), 0 is a PCA; between them is what FAISS's PCAMatrix does with `eigen_power` = -power/2.
    Directions without variance are left at 0 instead of blown up.
    """
    sample = vectors_ND.astype(np.float64)
    mean = sample.mean(axis=0)
    values, vectors = np.linalg.eigh((sample - mean).T @ (sample - mean) / len(sample))
    values, vectors = values[::-1][:d], vectors[:, ::-1][:, :d]
    positive = values > 1e-9 * values[0]
    kernel = vectors * np.where(positive, np.where(positive, values, 1) ** (-power / 2), 0)
    return linear_head(kernel.astype(np.float32), (-mean @ kernel).astype(np.float32))


def elu_layer(width: int, residual: bool) -> Layer:
    """ELU(W x + b), D to D. With `residual` the input is added and W, b start at 0, so the layer starts as the identity."""
    layer = Layer(width, width, nn.ELU(), residual=residual)
    if residual:
        nn.init.zeros_(layer.linear.weight)
        nn.init.zeros_(layer.linear.bias)
    return layer


def modules_of(head: Iterable[Layer], *, unit_norm: bool, centre: Layer | None = None) -> list[nn.Module]:
    """A head (+ unit norm, + `centre` and unit norm again) as sentence-transformers' modules."""
    from sentence_transformers.base.modules.normalize import Normalize

    modules = [*(layer.dense() for layer in head), *([Normalize()] if unit_norm else [])]
    return modules if centre is None else [*modules, centre.dense(), Normalize()]


def export_with_head(teacher: EncoderSpec, head: Iterable[nn.Module], folder: Path) -> None:
    """Save the teacher and the modules after it as one sentence-transformers folder.

    It has the prompts that the teacher was read with; where nothing was said of them, the teacher's own. Of a teacher whose
    vectors are given the folder has the layers alone, which read `sentence_embedding`.
    """
    from sentence_transformers import SentenceTransformer

    model = None if teacher.vectors is not None else teacher.load()
    modules = [*(model or ()), *head]
    if model is None:
        SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
        return
    own = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
    student = SentenceTransformer(modules=modules, device="cpu", **own)
    if reads_tokens(model):  # a static teacher has no limit
        student.max_seq_length = model.max_seq_length
    if teacher.prompt or teacher.by_role:
        Prompts.of(teacher).keep_in(student)
    student.save(str(folder), create_model_card=False)


class HeadParams(CodedParams, Params):
    """What a head that is not trained can be: its dimension, and what its vectors are stored as."""


class HeadMethod(Method):
    """A head on the teacher's cached embeddings; `head` are layers from D to d."""

    trains_encoder: ClassVar[bool] = False
    costly: ClassVar[tuple[str, ...]] = ("output_dim", "head")
    unit_norm: ClassVar[bool] = False
    """Whether the student's vectors are brought to unit norm."""
    head: nn.ModuleList

    @classmethod
    def apart(cls, possible: Possible) -> str:
        return "its queries are embedded by the teacher, as its documents are"

    def set_head(self, layer: Layer) -> None:
        """A head that is not trained."""
        self.head = nn.ModuleList([layer]).requires_grad_(False).to(self.device)

    def phases(self) -> list[Phase]:
        """None: the head is made from the training embeddings at once."""
        return []

    def apply_head(self, x_BD: Tensor) -> Tensor:
        """The head's output, B x d."""
        for layer in self.head:
            x_BD = layer(x_BD)
        return functional.normalize(x_BD, dim=-1) if self.unit_norm else x_BD

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        out = [np.empty((0, self.params.output_dim), dtype=np.float32)]
        with torch.inference_mode():
            for start in range(0, len(rows), ROWS):
                x_BD = self.teacher_vectors(rows[start : start + ROWS])
                out.append(self.apply_head(x_BD).float().cpu().numpy())
        return np.concatenate(out)

    def export(self, folder: Path) -> None:
        head = cast(list[Layer], list(self.head))
        export_with_head(self.prepared.teacher, modules_of(head, unit_norm=self.unit_norm), folder)
