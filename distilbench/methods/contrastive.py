"""Contrastive fine-tuning of the bare student (the SimCSE rows of the HPD and IBKD papers), with or without a projection.

No teacher takes part. B batch, d output dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_method import EncoderParams
from distilbench.methods.parts.losses import info_nce
from distilbench.methods.parts.starts import UntargetedParams
from distilbench.methods.parts.supervised import LabelledExamples, LabelledParams, check_labelled, labelled_needs
from distilbench.methods.parts.whitened import Whitened, WhitenedParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import TrainedParams
from distilbench.training.phases import Phase, epoch_steps


class ContrastiveParams(TrainedParams, EncoderParams, LabelledParams, WhitenedParams, UntargetedParams):
    """Hyper-parameters; below the student's width a projection to output_dim is added ("+Projection")."""

    epochs: float = Field(default=3, gt=0)
    tau: float = Field(default=0.05, gt=0)
    """Temperature of InfoNCE."""


class Contrastive(Whitened):
    """Student encoder, mean pooling, a linear layer where d is not the student's width.

    Trains a student encoder, with or without a projection. Reads triplets, similar pairs, or judged queries and passages.
    Source: SimCSE, Gao et al., EMNLP 2021; a baseline of HPD and IBKD.
    """

    params_type = ContrastiveParams
    title: ClassVar[str] = "Contrastive"
    takes_static: ClassVar[bool] = True
    params: ContrastiveParams

    def __init__(self, params: ContrastiveParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        if self.trained_dim != self.width:
            self.projection = self.linear(self.trained_dim)
            self.start_projection(prepared.train)
        self.labelled = LabelledExamples(params, prepared)
        self.to(device)

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        return labelled_needs(possible)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        check_labelled(possible, corpus, "batch_size")

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        labels = [] if params.get("labelled", "triplets") == "triplets" else [str(params["labelled"])]
        return ", ".join(filter(None, [*labels, super().variant(params)]))

    def phases(self) -> list[Phase]:
        p, examples = self.params, len(self.labelled)
        steps = epoch_steps(p.epochs, examples, p.batch_size)
        return [Phase("contrast", examples, steps, p.batch_size, p.lr, self.loss, shape=self._shape)]

    def _shape(self, index_B: NDArray[np.int64]) -> int | None:
        return self.batch_shape(self.labelled.rows(index_B))

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """Supervised InfoNCE with hard negatives (SimCSE)."""
        return self.contrast(self.outputs(self.labelled.rows(index_B, self.at)).float(), len(index_B))

    def contrast(self, vectors: Tensor, anchors: int) -> Tensor:
        """Supervised InfoNCE of the vectors of a batch's rows: anchors, positives, hard negatives of all anchors."""
        return info_nce(vectors[:anchors], vectors[anchors:], self.params.tau)
