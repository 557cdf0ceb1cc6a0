"""Distillation from unlabelled sentences: which rows a method learns from, and for how long."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.student import is_static
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_method import EncoderMethod, EncoderParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import ParamsPart, TrainedParams, check_enough
from distilbench.training.phases import Phase, epoch_steps

ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "tanh": nn.Tanh}
Activation = Literal["identity", "tanh"]
"""What may follow the linear layer of a student."""


def check_static_activation(possible: Possible, student: str) -> None:
    """No tanh where the student is static."""
    if is_static(student) and "tanh" in possible("activation"):
        raise InputError("--student static: activation: tanh; expected identity, since no layer follows the table")


class DistilledParams(EncoderParams):
    """How an encoder is trained whose targets are the teacher's vectors: there dropout costs quality (measured at 90 steps:
    0.5 points), and training the embeddings a third of the speed for nothing."""

    dropout: bool = False
    freeze_embeddings: bool = True


class QueryParams(ParamsPart):
    """What part of the training sentences are queries, and a phase on these alone."""

    query_share: float | None = Field(default=None, ge=0, le=1)
    """Share of an epoch's examples that are queries, which are repeated or left out for it, as the other sentences are; none:
    as the text has them."""
    query_epochs: float = Field(default=0, ge=0)
    """Passes over the queries alone after the distillation, with the same loss; 0: none."""
    query_lr_factor: float = Field(default=0.1, gt=0, le=1)
    """Learning rate of these passes, as a factor of the distillation's."""


def asks_for_queries(possible: Possible) -> bool:
    """Whether a setting tells queries from other training sentences."""
    return any(share is not None for share in possible("query_share")) or max(possible("query_epochs")) > 0


def check_queries(possible: Possible, corpus: Corpus, batch: str) -> None:
    """Check that there are queries, and for a share other sentences too, and a batch of queries for their own phase."""
    queries, others = len(corpus.queries), len(corpus.train) - len(corpus.queries)
    asked = [f"query_share: {share}" for share in possible("query_share") if share is not None]
    epochs = max(possible("query_epochs"))
    asked += [f"query_epochs: {epochs}"] if epochs else []
    if asked and not queries:
        raise InputError(
            f"{asked[0]}, but none of the {others} training sentences is known to be a query; expected unlabeled/queries*, "
            "unlabeled/questions*, judgements of the split train, or --text with a file of such a name"
        )
    if any(share not in (None, 1) for share in possible("query_share")) and not others:
        raise InputError(f"{asked[0]}, but all {queries} training sentences are queries; expected others, or none")
    if epochs:
        check_enough(batch, max(possible(batch)), queries, "queries to train on")


def with_query_phase(
    phase: Phase, params: QueryParams, rows: NDArray[np.int64], queries: NDArray[np.int64]
) -> list[Phase]:
    """A phase over `rows` with the share of `queries` that `params` ask for, then that on these alone, if there is one."""
    places, others = np.flatnonzero(is_query := np.isin(rows, queries)), np.flatnonzero(~is_query)

    def order(rng: np.random.Generator) -> NDArray[np.int64]:
        count = round((params.query_share or 0) * len(rows))
        parts = ((places, count), (others, len(rows) - count))  # each of a part as often as the others, or once more
        return rng.permutation(np.concatenate([np.resize(rng.permutation(part), size) for part, size in parts]))

    first = phase if params.query_share is None else replace(phase, order=order)
    if not params.query_epochs:
        return [first]
    steps = epoch_steps(params.query_epochs, len(places), phase.batch_size)
    second = replace(phase, name="queries", examples=len(places), steps=steps, lr=phase.lr * params.query_lr_factor)
    return [first, replace(second, start=lambda: None, order=lambda rng: rng.permutation(places))]


class UnlabelledParams(TrainedParams, DistilledParams, QueryParams):
    """Hyper-parameters of distillation from unlabelled sentences."""

    epochs: float = Field(default=3, gt=0)
    """Passes over the training sentences; a fraction trains on part of them."""
    augmentation: bool = False
    """Whether the augmented sentences (`--augment`) are trained on too."""


class Unlabelled(EncoderMethod):
    """A student that is trained on unlabelled sentences: `rows`, those of the corpus, with their copies where asked for."""

    replayable: ClassVar[bool] = False
    """Whether `loss` also takes numbers on the device, so that a GPU can replay its steps."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.rows = np.concatenate([prepared.train, prepared.augmented]) if params.augmentation else prepared.train

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        return Requirements(augmentation=True in possible("augmentation"), queries=asks_for_queries(possible))

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        check_enough("batch_size", max(possible("batch_size")), len(corpus.train), "training sentences")
        check_queries(possible, corpus, "batch_size")

    @classmethod
    def apart(cls, possible: Possible) -> str:
        return ""

    def phases(self) -> list[Phase]:
        return self.distil()

    def distil(
        self, start: Callable[[], None] = lambda: None, trained: Sequence[nn.Module] | None = None
    ) -> list[Phase]:
        """The phase over the sentences, with the method's own loss, and that over the queries alone, if there is one."""
        p, steps = self.params, epoch_steps(self.params.epochs, len(self.rows), self.params.batch_size)
        phase = Phase("distil", len(self.rows), steps, p.batch_size, p.lr, self.loss, start=start, trained=trained)
        if self.replayable:
            phase = replace(phase, shape=lambda index_B: self.batch_shape(self.rows[index_B]))
        return with_query_phase(phase, p, self.rows, self.prepared.queries)

    @abstractmethod
    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The loss of a batch of the sentences numbered in `rows`."""
