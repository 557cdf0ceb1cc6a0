"""Distillation from unlabelled sentences: which rows a method learns from, and for how long."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_method import EncoderMethod, EncoderParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import TrainedParams, check_enough
from distilbench.training.phases import Phase, epoch_steps

ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "tanh": nn.Tanh}
Activation = Literal["identity", "tanh"]
"""What may follow the linear layer of a student."""


class DistilledParams(EncoderParams):
    """How an encoder is trained whose targets are the teacher's vectors: there dropout costs quality (measured at 90 steps:
    0.5 points), and training the embeddings a third of the speed for nothing."""

    dropout: bool = False
    freeze_embeddings: bool = True


class UnlabelledParams(TrainedParams, DistilledParams):
    """Hyper-parameters of distillation from unlabelled sentences."""

    epochs: float = Field(default=3, gt=0)
    """Passes over the training sentences; a fraction trains on part of them."""
    augmentation: bool = False
    """Whether the augmented sentences (`--augment`) are trained on too."""


class Unlabelled(EncoderMethod):
    """A student that is trained on unlabelled sentences: `rows`, those of the corpus, with their copies where asked for."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.rows = np.concatenate([prepared.train, prepared.augmented]) if params.augmentation else prepared.train

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        return Requirements(augmentation=True in possible("augmentation"))

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        check_enough("batch_size", max(possible("batch_size")), len(corpus.train), "training sentences")

    @classmethod
    def apart(cls, possible: Possible) -> str:
        return ""

    def phases(self) -> list[Phase]:
        return [self.distil()]

    def distil(self, start: Callable[[], None] = lambda: None, trained: Sequence[nn.Module] | None = None) -> Phase:
        """The phase over the sentences, with the method's own loss."""
        p, steps = self.params, epoch_steps(self.params.epochs, len(self.rows), self.params.batch_size)
        phase = Phase("distil", len(self.rows), steps, p.batch_size, p.lr, self.loss, start=start, trained=trained)
        return replace(phase, shape=lambda index_B: self.batch_shape(self.rows[index_B]))

    @abstractmethod
    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The loss of a batch of the sentences numbered in `rows`, whose numbers may be on the device (`Phase.shape`)."""
