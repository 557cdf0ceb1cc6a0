"""What a method is to the training loop: a torch module with phases of training, embeddings and an export."""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distilbench.codes import nested_widths
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.shared_space import SharedSpace
from distilbench.errors import InputError
from distilbench.prepare.prepared import Prepared
from distilbench.records import Score
from distilbench.storage.arrays import ShardedArray
from distilbench.training.params import Params, ParamsPart
from distilbench.training.phases import Learner

Possible = Callable[[str], list[Any]]
"""The values that a search space can give a parameter (the ends of a range)."""


RESIDENT_SHARE = 0.25
"""Of the GPU's memory that a process may use: what the teacher's vectors may take."""


@functools.lru_cache(maxsize=1)
def fit_on_device(vectors: ShardedArray, device: str) -> bool:
    """Whether a GPU has room for all of the teacher's vectors, so that no step has to fetch its own; never on a CPU."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return False
    number = torch.cuda.current_device()  # a fraction is of a numbered device
    memory = torch.cuda.get_device_properties(number).total_memory * torch.cuda.get_per_process_memory_fraction(number)
    return vectors.rows * vectors.width * next(vectors.shards()).itemsize <= RESIDENT_SHARE * memory


@functools.lru_cache(maxsize=1)
def all_on_device(vectors: ShardedArray, device: str) -> Tensor:
    """All of the teacher's vectors on a device, as they are stored. A process keeps them for its next trial."""
    return torch.cat([torch.from_numpy(shard).to(device) for shard in vectors.shards()])


class NestedParams(ParamsPart):
    """Which widths one training serves: its first w numbers are an embedding of their own, for several w at once."""

    nested: bool = False
    """Whether the loss is taken at several widths at once, each of which gets a row of its own."""
    widths: tuple[int, ...] = ()
    """The widths below output_dim that are nested in it; () is output_dim halved again and again, down to 16."""


def _check_widths(possible: Possible) -> None:
    largest = min(possible("output_dim"))
    for widths in possible("widths"):
        if widths and True not in possible("nested"):
            raise InputError(f"widths: {list(widths)}, but nested is false; expected nested: true with them")
        for width in widths:
            if not 1 <= width <= largest:
                raise InputError(f"widths: {width}; expected from 1 to output_dim, which can be {largest}")


class Method(Learner):
    """One trial's model on prepared data. The docstring of a method says what it trains and reads, and its source."""

    params_type: ClassVar[type[Params]]
    title: ClassVar[str]
    """The name in tables."""
    trains_encoder: ClassVar[bool]
    """Whether the student is an encoder of its own, which needs token arrays; otherwise a head on the frozen teacher."""
    takes_static: ClassVar[bool] = False
    """Whether that encoder may be static (`--student static`): a vector for each token, without hidden states."""

    costly: ClassVar[tuple[str, ...]] = ("output_dim",)
    """Hyper-parameters that decide what a student costs to keep and to embed with, as far as the method has them."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__()
        self.params, self.prepared, self.device = params, prepared, device
        self._copies: dict[int, tuple[NDArray[Any], Tensor]] = {}

    def at(self, array: NDArray[Any], index_B: NDArray[np.int64] | Tensor) -> Any:
        """`array[index_B]`: an array, or a tensor on the device where the numbers are one, from a copy that is made once."""
        if not isinstance(index_B, Tensor):
            return array[index_B]
        if id(array) not in self._copies:
            self._copies[id(array)] = (array, torch.from_numpy(np.ascontiguousarray(array)).to(index_B.device))
        return self._copies[id(array)][1][index_B]

    def on_device(self, array: NDArray[np.float32], index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """`array[index_B]` on the method's device."""
        chosen = self.at(array, index_B)
        return chosen if isinstance(chosen, Tensor) else torch.from_numpy(chosen).to(self.device)

    @classmethod
    def native_dim(cls, teacher: EncoderSpec, student: str) -> int:
        """The output dimension that `native` stands for in a search space: the teacher's width, for a head on it."""
        return teacher.width()

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        """What the corpus and its preparation must have beyond sentences, similar pairs and STS sets."""
        return Requirements()

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Check that the corpus is enough for every possible setting, and that none has more dimensions than `native_dim`."""
        widest = max(possible("output_dim"))
        if widest > native:
            raise InputError(f"output_dim: {widest} is above the {native} dimensions of teacher or student")
        if issubclass(cls.params_type, NestedParams):
            _check_widths(possible)

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """Check that the method can train this kind of student, of this `native_dim`, with every possible setting."""

    def teacher_vectors(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        """The teacher's cached embeddings of corpus rows, B x D, on the method's device."""
        vectors = self.prepared.vectors
        if fit_on_device(vectors, self.device):
            return all_on_device(vectors, self.device)[torch.as_tensor(rows, device=self.device)].float()
        if isinstance(rows, Tensor):
            rows = rows.numpy()  # on a CPU
        return torch.from_numpy(self.prepared.vectors.take(rows)).to(self.device)

    @abstractmethod
    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compressed embeddings of corpus rows, `len(rows)` x output_dim, in evaluation mode."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Save the student as a sentence-transformers folder."""

    @classmethod
    def widths_of(cls, params: dict[str, Any]) -> tuple[int, ...]:
        """Leading dimensions at which the embedding is meant to be used; more than one where it is nested."""
        return nested_widths(params)

    def task_scores(self, split: Literal["dev", "test"]) -> list[Score]:
        """Scores on the method's own task, the first of dev being the objective; none: STS Spearman beside PCA is."""
        return []

    @classmethod
    def apart(cls, possible: Possible) -> str:
        """Why a student's queries cannot search the teacher's documents at some possible setting; "" where they can."""
        return "nothing draws it to the teacher's vectors"

    @classmethod
    def space_of(cls, params: dict[str, Any], teacher_width: int) -> tuple[int, str]:
        """Dimensions of the space that a student and its teacher share, and what the teacher's vectors get there by."""
        return teacher_width, ""

    def space(self) -> tuple[int, str]:
        """`space_of` this student."""
        return self.space_of(self.params.model_dump(), self.prepared.vectors.width)

    def shared_space(self) -> SharedSpace:
        """What brings the student's queries and the teacher's documents into one space, as the method is now.

        Only where `apart` says nothing.
        """
        raise NotImplementedError(f"{self.title} and its teacher have no space in common")

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """What tells two students of this method and dimension apart in a table; "" when nothing does."""
        return ""


def requirements_of(methods: Sequence[tuple[type[Method], Possible]]) -> Requirements:
    """What any of `methods` asks for, each with its possible values."""
    needs = Requirements()
    for method, possible in methods:
        students: tuple[str | None, ...] = ()
        if method.trains_encoder:  # None: the run's own, which a method without that parameter trains too
            students = tuple(possible("student")) if "student" in method.params_type.model_fields else (None,)
        needs |= dataclasses.replace(method.needs(possible), students=students)
    return needs
