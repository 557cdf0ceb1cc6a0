"""How long a training is: the optimiser steps of its phases, from hyper-parameters and the corpus alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from distilbench.data.corpus import Corpus


def epoch_steps(epochs: float, examples: int, batch_size: int) -> int:
    """Whole batches in so many passes over the examples, at least one."""
    return max(1, round(epochs * (examples // batch_size)))


@dataclass(frozen=True)
class Examples:
    """How much there is to train on."""

    sentences: int
    copies: int
    """Augmented sentences."""
    pairs: int
    triplets: int
    task: int = 0
    """Training pairs of the pair task."""
    judged: int = 0
    """Queries with a relevant passage."""

    @classmethod
    def of(cls, corpus: Corpus, copies: int = 0) -> Examples:
        """Those of a corpus; `copies` as planned."""
        task = len(corpus.pair_tasks[0].splits["train"].target_P) if corpus.pair_tasks else 0
        labelled = len(corpus.pairs_P2), len(corpus.triplets_T3)
        return cls(len(corpus.train), copies, *labelled, task, len(corpus.judged_P2))

    def unlabelled(self, params: dict[str, Any]) -> int:
        """The sentences that distillation reads, by `augmentation`."""
        return self.sentences + (self.copies if params.get("augmentation") else 0)

    def labelled(self, params: dict[str, Any]) -> int:
        """The examples that a contrast reads, by `labelled`."""
        counts = {"triplets": self.triplets, "pairs": self.pairs, "retrieval": self.judged}
        return counts[params.get("labelled", "triplets")]


class PhaseSteps(NamedTuple):
    """A phase of a training."""

    name: str
    steps: int
    batch: int

    @classmethod
    def over(cls, name: str, epochs: float, examples: int, batch: int) -> PhaseSteps:
        """So many passes over the examples."""
        return cls(name, epoch_steps(epochs, examples, batch), batch)
