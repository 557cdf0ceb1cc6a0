"""Neighbours: a head on the frozen teacher that keeps who is near whom, trained for the code that is stored.

The idea is SEED's (Fang et al., ICLR 2021), for sentences and few bytes. Axes: B batch, C candidates, D teacher width,
d output dimension, M codebooks of K centroids, w = d / M.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from distilbench.codes import code_of
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import CENTROIDS, Code
from distilbench.methods.method import Possible
from distilbench.methods.parts.head_method import HeadMethod
from distilbench.methods.parts.heads import Layer, elu_layer, pca_head
from distilbench.methods.parts.neighbour_loss import neighbour_loss
from distilbench.methods.parts.product_start import product_start
from distilbench.methods.parts.starts import spread
from distilbench.methods.parts.straight_through import Codebooks, coded
from distilbench.prepare.nearest import nearest_others
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import CodedParams, TrainedParams, check_enough
from distilbench.training.phases import Phase

START_SENTENCES = 20_000
"""Training sentences that codebooks are fitted on at most: 78 for each of 256 centroids."""


class NeighboursParams(CodedParams, TrainedParams):
    """Hyper-parameters."""

    temperature: float = Field(default=0.05, gt=0)
    """Of the student's softmax over cosines."""
    teacher_temperature: float = Field(default=0.05, gt=0)
    """Of the teacher's."""
    group: int = Field(default=32, ge=1, le=256)
    """A batch is made of groups of this many sentences: one drawn at random with its nearest by the teacher. 1: all are drawn
    at random, and hardly any two of them are near."""
    queue: int = Field(default=0, ge=0)
    """More training sentences that each of the batch is compared with, drawn anew for every step; they get no gradient."""
    head: Literal["linear", "residual"] = "linear"
    """A linear layer that starts as the PCA; or two ELU layers as residuals before it, which start as the identity."""
    rotate: bool = False
    """Whether a random rotation follows the PCA at the start, so that all dimensions are alike before they are rounded."""
    codebooks: int = Field(default=0, ge=0, le=1024)
    """Bytes of a product code, a codebook for output_dim / codebooks dimensions; 0: none. It is FAISS's OPQ of the trained
    vectors, or what `codebook_steps` make of that. With it `bits` has no effect."""
    codebook_steps: int = Field(default=0, ge=0)
    """Optimiser steps in which head and codebooks are trained together, on stored vectors, after `steps`; 0: none. On STS
    they lost one to two points (8 bytes, 600 steps after 600), so that the default has none."""
    codebook_lr: float = Field(default=0.0003, gt=0, le=1)
    """Learning rate of these steps."""
    steps: int = Field(default=900, ge=1)
    """Optimiser steps, at most the budget's."""
    weight_decay: float = Field(default=0.0, ge=0)


class Neighbours(HeadMethod):
    """A linear or residual head on the frozen teacher, and trained codebooks where they are asked for.

    Trains a head on the frozen teacher, and the code of its vectors. Reads unlabelled sentences. Source: after SEED, Fang
    et al., ICLR 2021; codebooks after JPQ, Zhan et al., CIKM 2021.
    """

    params_type = NeighboursParams
    title: ClassVar[str] = "Neighbours"
    unit_norm: ClassVar[bool] = True
    params: NeighboursParams

    def __init__(self, params: NeighboursParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        width, d = prepared.vectors.width, params.output_dim
        trunk = [elu_layer(width, residual=True) for _ in range(2 if params.head == "residual" else 0)]
        projection = pca_head(prepared.pca, d)
        if params.rotate:
            _turn(projection, torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0].float())
        self.head = nn.ModuleList([*trunk, projection])
        self.vectors_ND = torch.from_numpy(np.asarray(prepared.vectors.take(prepared.train), dtype=np.float32))
        self.codebooks: Codebooks | None = None
        if params.codebooks and params.codebook_steps:
            self.codebooks = Codebooks(torch.zeros(params.codebooks, CENTROIDS, d // params.codebooks))
        self.coding = False
        """Whether the codebooks are there, so that vectors are stored by them."""
        self.near_NK: NDArray[np.integer] | None = None
        """The nearest others of each training sentence, where batches are made of groups."""
        self.to(device)
        self.vectors_ND = self.vectors_ND.to(device)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Enough training sentences for a batch and its queue, and codebooks that divide the dimensions."""
        super().check_corpus(possible, corpus, native)
        for parameter in ("batch_size", "queue"):
            check_enough(parameter, max(possible(parameter)), len(corpus.train), "training sentences")
        if (group := max(possible("group"))) > (batch := min(possible("batch_size"))):
            raise InputError(f"group: {group} sentences in a batch of {batch}; expected at most batch_size")
        parts = [m for m in possible("codebooks") if m]
        for m in parts:
            check_enough("codebooks", CENTROIDS, len(corpus.train), f"training sentences for {CENTROIDS} centroids")
            for d in possible("output_dim"):
                if d % m:
                    raise InputError(f"codebooks: {m} of output_dim {d}; expected a divisor of every output_dim")

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        """Who is near whom, for the largest groups."""
        return Requirements(nearest=max(possible("group")) - 1)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """What it is trained for where that is a code."""
        kind = code_of(params)
        return "" if kind == "float32" else f"for {kind}"

    def phases(self) -> list[Phase]:
        """The head over the training sentences, then head and codebooks where these are trained."""
        p, examples = self.params, len(self.vectors_ND)
        trained = [self.head]
        head = Phase("neighbours", examples, p.steps, p.batch_size, p.lr, self.loss, self._group, trained=trained)
        if self.codebooks is None:
            return [head]
        both = Phase(
            "codebooks", examples, p.codebook_steps, p.batch_size, p.codebook_lr, self.loss, self._code, self._fit
        )
        return [head, both]

    def _group(self) -> None:
        """Know who is near whom, where batches are made of groups."""
        if (count := self.params.group - 1) and self.near_NK is None:
            known_NK: NDArray[np.integer] | None = self.prepared.nearest_NK
            if known_NK is None or known_NK.shape[1] < count:  # prepared for smaller groups
                known_NK = nearest_others(self.vectors_ND.cpu().numpy(), count)
            self.near_NK = known_NK[:, :count]

    def _code(self) -> None:
        self._group()
        self.coding = True

    def _fit(self) -> None:
        """Start the codebooks as FAISS's OPQ of the head's vectors, whose rotation the head takes over."""
        assert self.codebooks is not None
        with torch.no_grad():
            sample_ND = self.vectors_ND[spread(len(self.vectors_ND), START_SENTENCES)]
            start = product_start(self.apply_head(sample_ND).cpu().numpy(), self.params.codebooks)
            _turn(cast(Layer, self.head[-1]), torch.from_numpy(start.rotation_dd).to(self.device))
            self.codebooks.centroids.copy_(torch.from_numpy(start.centroids_MKw))

    def _seen(self, x_BD: Tensor) -> Tensor:
        """The student's vectors as they are stored, with gradients."""
        z_Bd = self.apply_head(x_BD)
        if self.codebooks is not None and self.coding:
            stored_Bd: Tensor = self.codebooks(z_Bd)
            return stored_Bd
        return coded(z_Bd, None if self.params.codebooks else self.params.bits)

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """The mean of `neighbour_loss` over the batch; both sides of a cosine are as they are stored.

        Of groups, the first sentences of the batch bring their nearest with them; each sentence is there once.
        """
        p = self.params
        if self.near_NK is not None:
            first_G = index_B[: max(1, len(index_B) // p.group)]
            index_B = np.unique(np.concatenate([first_G, self.near_NK[first_G].ravel()]))
        teacher_CD = self.vectors_ND[torch.from_numpy(index_B)]
        student_Bd = self._seen(teacher_CD)
        candidates_Cd = student_Bd
        if p.queue:
            more_QD = self.vectors_ND[torch.randint(len(self.vectors_ND), (p.queue,))]
            with torch.no_grad():
                more_Qd = self._seen(more_QD)
            candidates_Cd, teacher_CD = torch.cat([student_Bd, more_Qd]), torch.cat([teacher_CD, more_QD])
        return neighbour_loss(student_Bd, candidates_Cd, teacher_CD, p.temperature, p.teacher_temperature)

    def trained_code(self) -> Code | None:
        """The product code of the trained codebooks; None before they are."""
        if self.codebooks is None or not self.coding:
            return None
        return Code.of_codebooks(self.codebooks.centroids.detach().float().cpu().numpy())

    def export(self, folder: Path) -> None:
        """Teacher, head, unit norm; beside them the product code, trained or fitted now."""
        code = self.trained_code()
        if code is None and self.params.codebooks:
            rows = self.prepared.train[spread(len(self.prepared.train), START_SENTENCES)]
            code = Code.calibrate(code_of(self.params.model_dump()), self.embed(rows))
        super().export(folder)
        if code is not None:
            code.save(folder)


def _turn(layer: Layer, rotation_dd: Tensor) -> None:
    """Follow a layer by a rotation z -> z R, without another layer."""
    with torch.no_grad():
        layer.linear.weight.copy_(rotation_dd.T @ layer.linear.weight)
        layer.linear.bias.copy_(layer.linear.bias @ rotation_dd)
