"""A learner of two phases that is small enough to train at every step of a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from distilbench.training.params import TrainedParams
from distilbench.training.phases import Learner, Phase

FIRST, SECOND = 7, 5
"""Steps of its phases."""


class Toy(Learner):
    """Two linear layers: the first is trained alone, then both, on other examples, in other batches, at another rate.

    Its losses draw noise and drop entries, as methods do. `events` tells what the loop asked for.
    """

    def __init__(self, *, factor: float = 1.0, first: int = FIRST, second: int = SECOND, **params: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.device, self.factor, self.steps = "cpu", factor, (first, second)
        self.params = TrainedParams(**{"output_dim": 4, "lr": 0.01, "batch_size": 8, **params})
        self.first, self.second = nn.Linear(16, 4), nn.Linear(4, 4)
        self.data_N16 = torch.randn(24, 16)
        self.events: list[tuple[str, Any]] = []
        self.dtypes: set[torch.dtype] = set()

    def phases(self) -> list[Phase]:
        """Three batches an epoch, then five."""
        p, (first, second) = self.params, self.steps
        return [
            Phase("one", 24, first, p.batch_size, p.lr, self.one, self.begin("one"), trained=[self.first]),
            Phase("two", 11, second, 2, 5 * p.lr, self.two, self.begin("two")),
        ]

    def begin(self, name: str) -> Any:
        return lambda: self.events.append(("begin", name))

    def one(self, index_B: NDArray[np.int64]) -> Tensor:
        self.events.append(("one", index_B.tolist()))
        hidden = self.first(self.data_N16[index_B])
        self.dtypes.add(hidden.dtype)
        return self.factor * (hidden.float() + torch.randn(hidden.shape)).square().mean()

    def two(self, index_B: NDArray[np.int64]) -> Tensor:
        self.events.append(("two", index_B.tolist()))
        hidden = functional.dropout(self.first(self.data_N16[index_B]), 0.2, self.training)
        return self.factor * (self.second(hidden).float() - 1).square().mean()


class Untrained(Learner):
    """Nothing to train."""

    params = None
    device = "cpu"

    def phases(self) -> list[Phase]:
        return []
