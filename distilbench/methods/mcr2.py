"""MCR2: compression by maximal coding rate reduction (CIT 2024), mode `compress`: a head on the frozen teacher.

Mode `distil` is the method `mcr2_distil`. Axes: B batch, D teacher width, d output dimension, K clusters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from distilbench.codes import nested_widths
from distilbench.data.corpus import Corpus
from distilbench.methods.method import Possible
from distilbench.methods.parts import heads
from distilbench.methods.parts.coding_rate import can_replay, mcr2_loss
from distilbench.methods.parts.heads import HeadMethod, Layer, elu_layer, export_with_head, modules_of, pca_head
from distilbench.methods.parts.losses import coded, full_precision
from distilbench.methods.parts.starts import spread
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import CodedParams, TrainedParams, check_enough
from distilbench.training.phases import Phase, alike

CLUSTER_HEAD = "cluster_head.safetensors"
"""In an exported student: the layer from its trunk to the logits of the clusters."""
CENTRED_ON = 4096
"""Training sentences over which the head's mean is taken: it is known to 1.6 % of the vectors' spread."""


class MCR2Params(CodedParams, TrainedParams):
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
    """Size of the noise of a copy, relative to the embedding: 0.1 is a tenth of its norm."""
    noise_kind: Literal["factor", "isotropic"] = "isotropic"
    """What makes a copy noisy: one normal factor for the whole embedding, 1 + noise * N(0, 1) (the released code), or a
    normal vector of that relative norm added to it. A factor hardly turns an embedding, so that lambda does nothing."""
    centre: bool = True
    """Whether the mean of the unit vectors over the training sentences is taken away from each, which then is brought to
    unit norm again. Without it MCR2 crowds all vectors around that mean: their cosines near 1, and int8 codes alike."""
    head: Literal["elu", "residual"] = "elu"
    """The paper's two ELU layers from a random start, or the same layers as residuals around the teacher's PCA."""
    steps: int = Field(default=3000, ge=1)
    """Optimiser steps (3,000 in the released code), at most the budget's."""
    weight_decay: float = Field(default=1e-5, ge=0)
    betas: tuple[float, float] = (0.9, 0.99)


class CompressionHead(nn.Module):
    """Two ELU layers D -> D, then two linear heads: features (to d, unit norm) and cluster logits (to K)."""

    def __init__(self, params: MCR2Params, prepared: Prepared, device: str) -> None:
        super().__init__()
        self.params, self.device = params, device
        width, residual = prepared.vectors.width, params.head == "residual"
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
        self.widths = nested_widths(params.model_dump())
        self.vectors, self.sample = prepared.vectors, prepared.train[spread(len(prepared.train), CENTRED_ON)]
        self.to(device)

    @staticmethod
    def check_corpus(possible: Possible, corpus: Corpus) -> None:
        """Enough pairs or sentences for one batch, and no more clusters than examples."""
        for kind in possible("pairs"):
            available, what = {
                "duplicates": (len(corpus.pairs_P2), "similar pairs"),
                "noise": (len(corpus.train), "training sentences"),
            }[kind]
            for parameter in ("batch_size", "clusters"):
                check_enough(parameter, max(possible(parameter)), available, what)

    def phase(self) -> Phase:
        """One, over the similar pairs (or the sentences, when pairs are noisy copies)."""
        p = self.params
        shape = alike if all(can_replay(p.clusters, p.batch_size, width) for width in self.widths) else None
        return Phase(
            "compress", len(self.sides[0]), p.steps, p.batch_size, p.lr, self.loss, trained=[self], shape=shape
        )

    def _views(self, index_B: NDArray[np.int64] | Tensor) -> tuple[Tensor, Tensor]:
        chosen = index_B if isinstance(index_B, Tensor) else torch.from_numpy(index_B).to(self.device)
        if self.params.pairs == "duplicates":
            return self.sides[0][chosen], self.sides[1][chosen]
        x_BD = self.sides[0][chosen]
        return self._noisy(x_BD), self._noisy(x_BD)

    def _noisy(self, x_BD: Tensor) -> Tensor:
        if self.params.noise_kind == "factor":
            return x_BD * (1 + self.params.noise * torch.randn(len(x_BD), 1, device=x_BD.device))
        # A standard normal vector of D numbers has the norm sqrt(D).
        scale_B1 = self.params.noise * x_BD.norm(dim=-1, keepdim=True) / x_BD.shape[-1] ** 0.5
        return x_BD + scale_B1 * torch.randn_like(x_BD)

    def forward(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Features as they are stored, B x d of unit norm, and cluster logits, B x K."""
        hidden_BD = self.trunk(x_BD)
        return coded(self.features(hidden_BD), self.params.bits), self.logits(hidden_BD)

    def _unit(self, vectors_ND: NDArray[np.float32]) -> Tensor:
        x_ND = torch.from_numpy(np.array(vectors_ND, dtype=np.float32)).to(self.device)
        return functional.normalize(self.features(self.trunk(x_ND)), dim=-1)

    def centre(self) -> Layer | None:
        """The layer that takes away the mean of the head's unit vectors over a sample of the training sentences."""
        if not self.params.centre:
            return None
        with torch.inference_mode():
            mean_d = self._unit(self.vectors.take(self.sample)).double().mean(dim=0)
        return heads.linear_head(np.eye(len(mean_d), dtype=np.float32), -mean_d.float().cpu().numpy())

    def modules_after_teacher(self) -> list[nn.Module]:
        """The head and what centres it, as sentence-transformers' modules."""
        layers = [*cast(list[Layer], list(self.trunk)), self.features]
        return modules_of(layers, unit_norm=True, centre=self.centre())

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors of unit norm, as an export gives them, of corpus rows from the teacher's cached embeddings."""
        out = [np.empty((0, self.params.output_dim), dtype=np.float32)]
        centre = self.centre()
        centre = centre and centre.to(self.device)
        with torch.inference_mode():
            for start in range(0, len(rows), heads.ROWS):
                z_Bd = self._unit(self.vectors.take(rows[start : start + heads.ROWS]))
                if centre is not None:
                    z_Bd = functional.normalize(centre(z_Bd), dim=-1)
                out.append(z_Bd.float().cpu().numpy())
        return np.concatenate(out)

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The MCR2 loss of a batch of pairs; memberships are the mean of the two views' Gumbel-softmax.

        Of nested widths it is the mean over them.
        """
        p = self.params
        views = self._views(index_B)
        # Its vectors are so near to each other that bfloat16 makes others of them: of head and determinants alike.
        with full_precision(views[0]):
            (z1_Bd, l1_BK), (z2_Bd, l2_BK) = (self(view) for view in views)
            p1_BK, p2_BK = (functional.gumbel_softmax(logits, tau=p.temperature) for logits in (l1_BK, l2_BK))
            p_BK = (p1_BK + p2_BK) / 2
            losses = [
                mcr2_loss(*pair, p_BK, lam=p.lam, eps2=p.eps2, gamma=p.gamma, wait=not isinstance(index_B, Tensor))
                for pair in (self._cut(z1_Bd, z2_Bd, w) for w in self.widths)
            ]
            return torch.stack(losses).mean()

    def _cut(self, z1_Bd: Tensor, z2_Bd: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """The first `width` numbers of both views, of unit norm."""
        if width == z1_Bd.shape[-1]:
            return z1_Bd, z2_Bd
        return functional.normalize(z1_Bd[:, :width], dim=-1), functional.normalize(z2_Bd[:, :width], dim=-1)


class MCR2(HeadMethod):
    """The compression head on the frozen teacher.

    Trains a head on the frozen teacher. Reads unlabelled sentences; similar pairs where they are used. Source: MCR2, CIT
    2024, mode compress.
    """

    params_type = MCR2Params
    title: ClassVar[str] = "MCR2"
    unit_norm: ClassVar[bool] = True
    params: MCR2Params

    def __init__(self, params: MCR2Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.compression = CompressionHead(params, prepared, device)

    @property
    def head(self) -> nn.ModuleList:  # type: ignore[override]
        """Two dense ELU layers, the feature layer."""
        return nn.ModuleList([*self.compression.trunk, self.compression.features])

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        CompressionHead.check_corpus(possible, corpus)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        return str(params["pairs"])

    def phases(self) -> list[Phase]:
        return [self.compression.phase()]

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.compression.embed(rows)

    def export(self, folder: Path) -> None:
        """Teacher, head, unit norm, what centres it; beside them the cluster head."""
        export_with_head(self.prepared.teacher, self.compression.modules_after_teacher(), folder)
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.compression.logits.named_parameters()}
        after = 4 if self.params.centre else 2  # the modules that follow what the cluster head reads
        save_file({**tensors, "after": torch.tensor(after)}, folder / CLUSTER_HEAD)
