"""Neighbours: a head on the frozen teacher that keeps who is near whom, trained for the code that is stored.

The idea is SEED's (Fang et al., ICLR 2021), for sentences and few bytes. Axes: B batch, D teacher width, d output
dimension.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from distilbench.codes import code_of
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.data.sampling import sample
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import CENTROIDS, Code
from distilbench.methods.method import Possible
from distilbench.methods.parts.heads import HeadMethod, elu_layer, linear_head, pca_head, whitening_head
from distilbench.methods.parts.losses import coded, neighbour_loss
from distilbench.methods.parts.starts import spread
from distilbench.prepare.nearest import nearest_others
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import CodedParams, TrainedParams, check_enough
from distilbench.training.phases import Phase, alike

CODED_ON = 20_000
"""Training sentences that a product code is fitted on at most: 78 for each of 256 centroids."""


class NeighboursParams(CodedParams, TrainedParams):
    """Hyper-parameters."""

    temperature: float = Field(default=0.05, gt=0)
    """Of the student's softmax over cosines."""
    teacher_temperature: float = Field(default=0.05, gt=0)
    """Of the teacher's."""
    group: int = Field(default=32, ge=1, le=256)
    """A batch is made of groups of this many sentences: one drawn at random with its nearest by the teacher. 1: all are drawn
    at random, and hardly any two of them are near."""
    head: Literal["linear", "residual"] = "linear"
    """A linear layer that starts as the PCA; or two ELU layers as residuals before it, which start as the identity."""
    power: float = Field(default=0.0, ge=0, le=1)
    """How far the teacher's vectors, which say who is near, are whitened first, as in `whitening`; the head starts there."""
    rotate: bool = False
    """Whether a random rotation follows the PCA at the start, so that all dimensions are alike before they are rounded."""
    codebooks: int = Field(default=0, ge=0, le=1024)
    """Bytes of a product code, a codebook for output_dim / codebooks dimensions; 0: none. It is FAISS's OPQ of the trained
    vectors. With it `bits` has no effect."""
    steps: int = Field(default=900, ge=1)
    """Optimiser steps, at most the budget's."""
    weight_decay: float = Field(default=0.0, ge=0)


class Neighbours(HeadMethod):
    """A linear or residual head on the frozen teacher.

    Trains a head on the frozen teacher, for the code of its vectors. Reads unlabelled sentences. Source: after SEED, Fang
    et al., ICLR 2021.
    """

    params_type = NeighboursParams
    title: ClassVar[str] = "Neighbours"
    unit_norm: ClassVar[bool] = True
    params: NeighboursParams

    def __init__(self, params: NeighboursParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        width, d = prepared.vectors.width, params.output_dim
        trunk = [elu_layer(width, residual=True) for _ in range(2 if params.head == "residual" else 0)]
        self.target: nn.Module = nn.Identity()
        """What makes the vectors that say who is near of the teacher's."""
        if params.power:
            self.target = whitening_head(prepared.vectors.take(sample(prepared.train)), width, params.power)
            weight_dD, bias_d = (x.detach()[:d].numpy() for x in self.target.requires_grad_(False).linear.parameters())
            length = np.linalg.norm(weight_dD, axis=1).mean()  # rows as long as a PCA's: a rate means the same
            projection = linear_head(weight_dD.T / length, bias_d / length)
        else:
            projection = pca_head(prepared.pca, d)
        if params.rotate:
            linear = projection.linear
            rotation_dd = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0].float()
            with torch.no_grad():
                linear.weight.copy_(rotation_dd.T @ linear.weight)
                linear.bias.copy_(linear.bias @ rotation_dd)
        self.head = nn.ModuleList([*trunk, projection])
        self.near_NK: NDArray[np.integer] | None = None
        """The nearest others of each training sentence, where batches are made of groups."""
        self.to(device)
        vectors_ND = np.asarray(prepared.vectors.take(prepared.train), dtype=np.float32)
        self.vectors_ND = torch.from_numpy(vectors_ND).to(device)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        check_enough("batch_size", max(possible("batch_size")), len(corpus.train), "training sentences")
        if (group := max(possible("group"))) > (batch := min(possible("batch_size"))):
            raise InputError(f"group: {group} sentences in a batch of {batch}; expected at most batch_size")
        for m in filter(None, possible("codebooks")):
            check_enough("codebooks", CENTROIDS, len(corpus.train), f"training sentences for {CENTROIDS} centroids")
            for d in possible("output_dim"):
                if d % m:
                    raise InputError(f"codebooks: {m} of output_dim {d}; expected a divisor of every output_dim")

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        return Requirements(nearest=max(possible("group")) - 1)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        kind = code_of(params)
        return "" if kind == "float32" else f"for {kind}"

    def phases(self) -> list[Phase]:
        p, examples, trained = self.params, len(self.vectors_ND), [self.head]
        phase = Phase(
            "neighbours", examples, p.steps, p.batch_size, p.lr, self.loss, self._find_groups, trained=trained
        )
        return [replace(phase, shape=alike)]

    def _find_groups(self) -> None:
        """Know who is near whom, where batches are made of groups."""
        if (count := self.params.group - 1) and self.near_NK is None:
            known_NK: NDArray[np.integer] | None = self.prepared.nearest_NK
            if known_NK is None or known_NK.shape[1] < count:  # prepared for smaller groups
                known_NK = nearest_others(self.vectors_ND.cpu().numpy(), count)
            self.near_NK = known_NK[:, :count]

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The mean of `neighbour_loss` over the batch: each as it is, as a query is, among all as they are stored.

        Of groups, the first sentences of the batch bring their nearest with them; each sentence counts once.
        """
        p, again_B = self.params, None
        if self.near_NK is not None:
            first_G = index_B[: max(1, len(index_B) // p.group)]
            near_GK = self.at(self.near_NK, first_G)
            if isinstance(first_G, Tensor):  # as many each time, so those that come again are passed over
                index_B = torch.cat([first_G, near_GK.flatten()]).sort().values
                again_B = torch.cat([first_G.new_zeros(1), index_B.diff() == 0]).bool()
            else:
                index_B = np.unique(np.concatenate([first_G, near_GK.ravel()]))
        teacher_BD = self.vectors_ND[torch.as_tensor(index_B)]
        student_Bd = self.apply_head(teacher_BD)
        stored_Bd = coded(student_Bd, None if p.codebooks else p.bits)
        both = p.temperature, p.teacher_temperature
        return neighbour_loss(student_Bd, stored_Bd, self.target(teacher_BD), *both, again_B)

    def export(self, folder: Path) -> None:
        super().export(folder)
        if self.params.codebooks:
            rows = self.prepared.train[spread(len(self.prepared.train), CODED_ON)]
            Code.calibrate(code_of(self.params.model_dump()), self.embed(rows)).save(folder)
