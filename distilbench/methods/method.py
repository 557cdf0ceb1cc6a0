"""What a method is to the training loop: a torch module with phases of training, embeddings and an export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from distilbench.data.corpus import Corpus
from distilbench.data.needs import Needs
from distilbench.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.methods.parts.length import Examples, PhaseSteps
from distilbench.prepare.prepared import Prepared
from distilbench.records import Score

Possible = Callable[[str], list[Any]]
"""The values that a search space can give a parameter (the ends of a range)."""


Assign = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Cluster numbers of corpus rows."""


def sweep_field(default: Any, *, sweep: Any, **limits: Any) -> Any:
    """A hyper-parameter whose best value was found after records of it had been written.

    `default` is what a record, a run or a published row without the parameter means; `sweep` is what a search space that
    neither searches nor fixes it gets. `limits` are those of pydantic's `Field`.
    """
    return Field(default=default, json_schema_extra={"sweep": sweep}, **limits)


def sweep_default(field: FieldInfo) -> Any:
    """The value of a parameter that a search space does not name."""
    extra = field.json_schema_extra
    return extra["sweep"] if isinstance(extra, dict) and "sweep" in extra else field.default


class Params(BaseModel):
    """Hyper-parameters that every method has. Search spaces are checked against these types and ranges."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    output_dim: int = Field(ge=1)
    collapse: Literal["absolute", "relative"] = sweep_field("absolute", sweep="relative")
    """What a student fails by as collapsed: its variance alone (records from before this parameter), or beside the
    teacher's."""


class TrainedParams(Params):
    """Hyper-parameters of every method that is trained."""

    lr: float = Field(gt=0, le=1)
    batch_size: int = Field(ge=2)
    weight_decay: float = Field(default=0.01, ge=0)
    decay_all: bool = sweep_field(True, sweep=False)
    """Whether weight decay also acts on biases and on the scales of LayerNorm, not only on matrices."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of a phase's steps in which the learning rate rises linearly from 0."""
    decay: bool = True
    """Whether it falls to 0 afterwards."""
    schedule: Literal["linear", "cosine"] = "linear"
    """The shape of that fall: a line, or half a cosine wave."""
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = Field(default=1.0, ge=0)
    """Largest norm of the gradient; 0 is no limit."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of the forward pass: auto is bf16 on a GPU and fp32 on a CPU; fp16 scales the loss (AMP)."""


@dataclass(frozen=True)
class Phase:
    """A part of a method's training with its own examples, loss and learning rate; AdamW starts afresh in each.

    `loss` gives the loss (a scalar) of the examples numbered index_B, each in [0, examples). `begin` is called when
    the phase is entered, also when training is resumed within it, after the parameters have been restored. `start` is
    called after it, and only when the phase is entered for the first time: it may set parameters. `trained` are the
    modules whose parameters it trains; None means all of the method's that require gradients.
    """

    name: str
    examples: int
    steps: int
    batch_size: int
    lr: float
    loss: Callable[[NDArray[np.int64]], Tensor]
    begin: Callable[[], None] = lambda: None
    start: Callable[[], None] = lambda: None
    trained: Sequence[nn.Module] | None = None


def within_budget(phases: list[Phase], budget: int) -> list[Phase]:
    """The phases, all shortened by the same factor where together they take more than `budget` steps."""
    total = sum(phase.steps for phase in phases)
    if total <= budget:
        return phases
    return [replace(p, steps=max(1, p.steps * budget // total)) for p in phases]


def check_enough(parameter: str, value: int, available: int, what: str) -> None:
    """Raise InputError when `value` of a parameter needs more than is `available`."""
    if value > available:
        raise InputError(
            f"{parameter} is {value}, but the corpus has only {available} {what}; expected at least as many"
        )


class Learner(nn.Module, ABC):
    """What the training loop trains. Parameters that require gradients are trained and saved, the rest is frozen."""

    params: Any
    """`TrainedParams`, or `Params` where there is no phase."""
    device: str

    @abstractmethod
    def phases(self) -> list[Phase]:
        """The phases of a whole training, in order; none for a learner without training."""

    def halve_micro_batches(self) -> bool:
        """Read a batch in parts half as large, whose gradients are accumulated; whether this learner can.

        Losses that take the whole batch at once stay what they are: it is the encoder that reads in parts.
        """
        return False


class Method(Learner):
    """One trial's model on prepared data."""

    params_type: ClassVar[type[Params]]
    title: ClassVar[str]
    """The name in tables."""
    trains_encoder: ClassVar[bool]
    """Whether the student is an encoder of its own, which needs token arrays; otherwise a head on the frozen teacher."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__()
        self.params, self.prepared, self.device = params, prepared, device

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        """The output dimension that `native` stands for in a search space: the teacher's width, for a head on it."""
        return teacher.width()

    @classmethod
    def needs(cls, possible: Possible) -> Needs:
        """What the corpus must have beyond sentences, similar pairs and STS sets."""
        return Needs()

    @classmethod
    def needs_logits(cls, possible: Possible) -> bool:
        """Whether it learns from a cross-encoder's logits of its pair task."""
        return False

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Check that the corpus is enough for every possible setting, and every output dimension can be had.

        `native` is what `native_dim` said.

        Raises:
            InputError: it is not; the message names the parameter, the value and what there is.
        """
        widest = max(possible("output_dim"))
        if widest > native:
            raise InputError(f"output_dim: {widest} is above the {native} dimensions of teacher or student")

    @classmethod
    def planned(cls, params: dict[str, Any], examples: Examples) -> list[PhaseSteps] | None:
        """What `phases` will say, for `distilbench plan`: `params` with their defaults, without a model or embeddings.

        None: it cannot be told, and the whole budget of steps is planned for.
        """
        return None

    @abstractmethod
    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compressed embeddings of corpus rows, `len(rows)` x output_dim, in evaluation mode."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Save the student as a sentence-transformers folder."""

    @classmethod
    def widths_of(cls, params: dict[str, Any]) -> tuple[int, ...]:
        """Leading dimensions at which the embedding is meant to be used; more than one for a Matryoshka."""
        return (int(params["output_dim"]),)

    @classmethod
    def judged_widths(cls, params: dict[str, Any]) -> tuple[int, ...]:
        """The leading dimensions at which a student is judged on dev, largest first; the objective is the mean over them."""
        return (int(params["output_dim"]),)

    def task_scores(self, split: Literal["dev", "test"]) -> list[Score]:
        """Scores on the method's own task, the first of dev being the objective; none: STS Spearman beside PCA is."""
        return []

    def assign(self) -> Assign | None:
        """The method's own clusters: corpus rows -> cluster numbers; None when it has no clusters."""
        return None

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """What tells two students of this method and dimension apart in a table; "" when nothing does."""
        return ""
