"""What a method is to the training loop: a torch module with examples, a loss, embeddings and an export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from distilbench.errors import InputError
from distilbench.prepare.prepared import Prepared


class Params(BaseModel):
    """Hyper-parameters that every method has. Search spaces are checked against these types and ranges."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    output_dim: int = Field(ge=1)
    lr: float = Field(gt=0, le=1)
    batch_size: int = Field(ge=2)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps in which the learning rate rises linearly from 0."""
    decay: bool = True
    """Whether it falls linearly to 0 afterwards."""
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""


def check_enough(parameter: str, value: int, available: int, what: str) -> None:
    """Raise InputError when `value` of a parameter needs more than is `available`."""
    if value > available:
        raise InputError(
            f"{parameter} is {value}, but the corpus has only {available} {what}; expected at least as many"
        )


class Method(nn.Module, ABC):
    """One trial's model on prepared data. Parameters that require gradients are trained and saved, the rest is frozen."""

    params_type: ClassVar[type[Params]]
    title: ClassVar[str]
    """The name in tables."""
    trains_encoder: ClassVar[bool]
    """Whether the student is an encoder of its own, which needs token arrays; otherwise a head on the frozen teacher."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__()
        self.params, self.prepared, self.device = params, prepared, device

    @classmethod
    @abstractmethod
    def check_corpus(cls, possible: Callable[[str], list[Any]], sentences: int, pairs: int) -> None:
        """Check that a corpus of so many training sentences and similar pairs is enough.

        `possible(name)` are the values that a search space can give a parameter (the ends of a range).

        Raises:
            InputError: it is not; the message names the parameter, the value and what there is.
        """

    @property
    @abstractmethod
    def examples(self) -> int:
        """How many training examples there are."""

    @abstractmethod
    def steps(self, budget: int) -> int:
        """Optimiser steps of a whole trial; `budget` is the search space's."""

    @abstractmethod
    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """The loss (a scalar) of the examples numbered `index_B`, each in [0, examples)."""

    @abstractmethod
    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compressed embeddings of corpus rows, `len(rows)` x output_dim, in evaluation mode."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Save the student as a sentence-transformers folder that needs no code of ours."""

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """What tells two students of this method and dimension apart in a table; "" when nothing does."""
        return ""

    def lengths(self) -> NDArray[np.int64] | None:
        """Tokens of each example, for batches of similar length; None when all cost the same."""
        return None
