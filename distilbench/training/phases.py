"""What the training loop trains: a torch module, and the phases of its training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass(frozen=True)
class Phase:
    """A part of a method's training with its own examples, loss and learning rate; AdamW starts afresh in each.

    `loss` gives the loss (a scalar) of the examples numbered index_B, each in [0, examples). `begin` is called when
    the phase is entered, also when training is resumed within it, after the parameters have been restored. `start` is
    called after it, and only when the phase is entered for the first time: it may set parameters. `trained` are the
    modules whose parameters it trains; None means all of the method's that require gradients.

    With `shape`, `loss` also takes the numbers as a tensor on the device and then never waits for it, so that a GPU can
    replay steps (training/replay.py). `shape` is called before a step: batches of one shape have the same graph, and None
    means that this one cannot be replayed.
    """

    name: str
    examples: int
    steps: int
    batch_size: int
    lr: float
    loss: Callable[[Any], Tensor]
    begin: Callable[[], None] = lambda: None
    start: Callable[[], None] = lambda: None
    trained: Sequence[nn.Module] | None = None
    shape: Callable[[NDArray[np.int64]], int | None] | None = None


def alike(index_B: NDArray[np.int64]) -> int:
    """A `Phase.shape`: all batches have one."""
    return 0


def epoch_steps(epochs: float, examples: int, batch_size: int) -> int:
    """Count the whole batches in so many passes over the examples, at least one."""
    return max(1, round(epochs * (examples // batch_size)))


def within_budget(phases: list[Phase], budget: int) -> list[Phase]:
    """The phases, all shortened by the same factor where together they take more than `budget` steps."""
    total = sum(phase.steps for phase in phases)
    if total <= budget:
        return phases
    return [replace(p, steps=max(1, p.steps * budget // total)) for p in phases]


class Learner(nn.Module, ABC):
    """What the training loop trains. Parameters that require gradients are trained and saved, the rest is frozen."""

    params: Any
    """`TrainedParams`, or `Params` where there is no phase."""
    device: str

    @abstractmethod
    def phases(self) -> list[Phase]:
        """The phases of a whole training, in order; none for a learner without training."""

    def row_parameters(self) -> Sequence[nn.Parameter]:
        """Those whose gradients are sparse, since a batch touches few of their rows: `SparseAdam` trains them."""
        return ()

    def halve_micro_batches(self) -> bool:
        """Read a batch in parts half as large, whose gradients are accumulated; whether this learner can.

        Losses that take the whole batch at once stay what they are: it is the encoder that reads in parts.
        """
        return False
