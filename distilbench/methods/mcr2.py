"""MCR2: compression by maximal coding rate reduction (CIT 2024), mode `compress`: a head on the frozen teacher.

Axes: B batch, D teacher width, d output dimension, K clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from distilbench.methods import method
from distilbench.methods.heads import apply, elu_layer, export_with_head, pca_head
from distilbench.prepare.prepared import Prepared


class Params(method.Params):
    """Hyper-parameters; the defaults are the released code's."""

    lam: float = Field(alias="lambda", ge=0)
    """Weight of the mean cosine between similar sentences."""
    clusters: int = Field(ge=1, le=8192)
    eps2: float = Field(default=0.01, gt=0)
    """Squared distortion of the coding rate (what the released code calls eps)."""
    gamma: float = Field(default=1.0, ge=0)
    """Weight of the clusters' coding rates."""
    temperature: float = Field(default=0.2, gt=0)
    """Gumbel-softmax temperature of the memberships."""
    pairs: Literal["duplicates", "noise"] = "duplicates"
    """Similar pairs: the corpus's duplicates (the paper), or two noisy copies of one embedding (the released code)."""
    noise: float = Field(default=0.005, ge=0)
    """Standard deviation of the factor of a noisy copy."""
    head: Literal["elu", "residual"] = "elu"
    """The paper's two ELU layers from a random start, or the same layers as residuals around the teacher's PCA."""
    weight_decay: float = Field(default=1e-5, ge=0)
    betas: tuple[float, float] = (0.9, 0.99)


def coding_rate(z_Bd: Tensor, eps2: float) -> Tensor:
    """R(Z) = 1/2 logdet(I + d / (B eps^2) Z^T Z) in nats, rows of unit norm (MCR2, equation 1)."""
    count, d = z_Bd.shape
    gram = z_Bd @ z_Bd.T if count < d else z_Bd.T @ z_Bd
    return 0.5 * _logdet_plus_identity(gram * (d / (count * eps2)))


def cluster_coding_rates(z_Bd: Tensor, p_BK: Tensor, eps2: float) -> Tensor:
    """Sum over k of n_k / (2B) logdet(I + d / (n_k eps^2) Z^T diag(p_k) Z), n_k = sum of p_k (MCR2, equation 2).

    `p_BK` are memberships, rows summing to 1. All K determinants are one batched Cholesky of the smaller form:
    d x d, or by Sylvester's identity B x B.
    """
    count, d = z_Bd.shape
    size_K = p_BK.sum(dim=0).clamp_min(1e-6)
    scaled_KB = (p_BK * (d / (size_K * eps2))).T
    if d <= count:
        gram = torch.einsum("kb,bi,bj->kij", scaled_KB, z_Bd, z_Bd)
    else:
        root_KB = scaled_KB.clamp_min(1e-12).sqrt()  # the root's slope at 0 is infinite
        gram = root_KB[:, :, None] * (z_Bd @ z_Bd.T) * root_KB[:, None, :]
    return (size_K / (2 * count) * _logdet_plus_identity(gram)).sum()


def _logdet_plus_identity(gram: Tensor) -> Tensor:
    factor = torch.linalg.cholesky(gram + torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device))
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def mcr2_loss(z1_Bd: Tensor, z2_Bd: Tensor, p_BK: Tensor, *, lam: float, eps2: float, gamma: float) -> Tensor:
    """-R(Z) + gamma sum_k R_k(Z) - lambda mean cos(z, z') (MCR2, equation 5), Z the renormalised mean of two unit views."""
    z_Bd = functional.normalize(z1_Bd + z2_Bd, dim=-1)
    similarity = (z1_Bd * z2_Bd).sum(dim=-1).mean()
    return -coding_rate(z_Bd, eps2) + gamma * cluster_coding_rates(z_Bd, p_BK, eps2) - lam * similarity


class Trainable(method.Method):
    """Two ELU layers D -> D, then two linear heads: features (to d, unit norm) and cluster logits (to K)."""

    params_type = Params
    title: ClassVar[str] = "MCR2"
    trains_encoder: ClassVar[bool] = False
    params: Params

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        width = prepared.vectors.width
        residual = params.head == "residual"
        self.trunk = nn.Sequential(elu_layer(width, residual), elu_layer(width, residual))
        self.features = pca_head(prepared.pca, params.output_dim)
        if not residual:
            self.features.linear.reset_parameters()
        self.logits = nn.Linear(width, params.clusters)
        if params.pairs == "duplicates":
            sides = [prepared.vectors.take(prepared.pairs_P2[:, side]) for side in (0, 1)]
        else:
            sides = [prepared.vectors.take(prepared.train)]
        self.sides = [torch.from_numpy(side).to(device) for side in sides]
        self.to(device)

    @classmethod
    def check_corpus(cls, possible: Callable[[str], list[Any]], sentences: int, pairs: int) -> None:
        """Enough pairs or sentences for one batch, and no more clusters than examples."""
        for kind in possible("pairs"):
            available, what = (pairs, "similar pairs") if kind == "duplicates" else (sentences, "training sentences")
            for parameter in ("batch_size", "clusters"):
                method.check_enough(parameter, max(possible(parameter)), available, what)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """The kind of similar pairs."""
        return str(params["pairs"])

    @property
    def examples(self) -> int:
        """Similar pairs, or sentences when pairs are noisy copies."""
        return len(self.sides[0])

    def steps(self, budget: int) -> int:
        """The budget itself."""
        return budget

    def _views(self, index_B: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(index_B).to(self.device)
        if self.params.pairs == "duplicates":
            return self.sides[0][chosen], self.sides[1][chosen]
        x_BD = self.sides[0][chosen]

        def noisy() -> Tensor:
            return x_BD * (1 + self.params.noise * torch.randn(len(x_BD), 1, device=x_BD.device))

        return noisy(), noisy()

    def _features(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        hidden_BD = apply(self.trunk, x_BD)
        return functional.normalize(apply(self.features, hidden_BD), dim=-1), hidden_BD

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """The MCR2 loss of a batch of pairs; memberships are the mean of the two views'."""
        p = self.params
        (z1_Bd, h1_BD), (z2_Bd, h2_BD) = (self._features(view) for view in self._views(index_B))
        p1_BK, p2_BK = (functional.gumbel_softmax(self.logits(h), tau=p.temperature) for h in (h1_BD, h2_BD))
        p_BK = (p1_BK + p2_BK) / 2
        # Determinants need float32 also where autocast has made the features bfloat16.
        with torch.autocast(p_BK.device.type, enabled=False):
            views = (z1_Bd.float(), z2_Bd.float(), p_BK.float())
            return mcr2_loss(*views, lam=p.lam, eps2=p.eps2, gamma=p.gamma)

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Unit vectors of corpus rows from the teacher's cached embeddings."""
        out = [np.empty((0, self.params.output_dim), dtype=np.float32)]
        with torch.inference_mode():
            for start in range(0, len(rows), 8192):
                x_BD = torch.from_numpy(self.prepared.vectors.take(rows[start : start + 8192])).to(self.device)
                out.append(self._features(x_BD)[0].float().cpu().numpy())
        return np.concatenate(out)

    def export(self, folder: Path) -> None:
        """Teacher, two dense ELU layers, the feature layer, unit norm."""
        export_with_head(self.prepared.teacher, [*self.trunk, self.features], folder)
