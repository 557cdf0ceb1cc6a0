"""How long a method trains: the optimiser steps of each phase, from its hyper-parameters and the corpus alone.

A method says it itself in `phases()`, but an instance of it has an encoder loaded and embeddings read. What is below is held
against it by a test, for every method. A method that is not known here is taken to use the whole budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from distilbench.data.corpus import Corpus
from distilbench.methods.method import epoch_steps

UNTRAINED = frozenset({"pca", "whitening", "random_projection"})


@dataclass(frozen=True)
class Examples:
    """What there is to train on."""

    sentences: int
    copies: int
    """Augmented sentences."""
    pairs: int
    triplets: int
    task: int = 0
    """Training pairs of the pair task."""

    @classmethod
    def of(cls, corpus: Corpus, copies: int = 0) -> Examples:
        """Those of a corpus; `copies` as planned."""
        task = len(corpus.pair_tasks[0].splits["train"].target_P) if corpus.pair_tasks else 0
        return cls(len(corpus.train), copies, len(corpus.pairs_P2), len(corpus.triplets_T3), task)


class PhaseSteps(NamedTuple):
    """A phase of a training."""

    name: str
    steps: int
    batch: int


def phase_steps(method: str, params: dict[str, Any], examples: Examples, budget: int) -> list[PhaseSteps]:
    """The phases of one training under these hyper-parameters (defaults included), shortened to `budget` steps."""
    phases = _whole(method, params, examples, budget)
    total = sum(phase.steps for phase in phases)
    if total <= budget:
        return phases
    return [phase._replace(steps=max(1, phase.steps * budget // total)) for phase in phases]


def _whole(method: str, p: dict[str, Any], examples: Examples, budget: int) -> list[PhaseSteps]:
    if method in UNTRAINED:
        return []
    batch = int(p["batch_size"])

    def epochs(name: str, over: float, available: int, size: int) -> PhaseSteps:
        return PhaseSteps(name, epoch_steps(over, available, size), size)

    labelled = examples.triplets if p.get("labelled", "triplets") == "triplets" else examples.pairs
    if method in ("hpd", "ibkd", "mse", "crd"):
        own = examples.sentences + (examples.copies if p.get("augmentation") else 0)
        phases = [epochs("distil", p["epochs"], own, batch)]
        if p.get("ft_epochs"):
            phases.append(epochs("fine-tune", p["ft_epochs"], labelled, int(p["ft_batch_size"])))
        return phases
    if method in ("contrastive", "matryoshka"):
        return [epochs("contrast", p["epochs"], labelled, batch)]
    if method == "dse":
        return [epochs("distil", p["epochs"], examples.task, batch)]
    if method in ("mcr2", "mcr2_distil"):
        phases = [PhaseSteps("compress", int(p["steps"]), batch)]
        if method == "mcr2_distil":
            phases.append(epochs("distil", p["distil_epochs"], examples.sentences, int(p["distil_batch_size"])))
        return phases
    return [PhaseSteps("", budget, batch)]
