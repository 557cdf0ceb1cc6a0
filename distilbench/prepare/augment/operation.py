"""What an augmentation operation is: a small picklable description, and the function that it loads in a worker."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

Copies = Callable[[Sequence[str], int], list[str]]
"""(sentences, seed) -> one copy of each, in their order; "" where there is none."""


class Operation(ABC):
    """Makes one changed copy of a sentence; the copy depends on the sentence, the operation and the seed alone."""

    name: ClassVar[str]
    uses_gpu: ClassVar[bool] = False
    """Whether it computes on a GPU where there is one."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the copies depend on beside sentence and seed, JSON-able: versions, checksums, settings."""

    @abstractmethod
    def check(self) -> None:
        """Look, without loading it, for what the operation needs; an error gives the one command that installs it."""

    @abstractmethod
    def load(self) -> Copies:
        """The function that makes the copies, with what it needs in memory: once in each worker."""


def same(sentence: str) -> str:
    """Equal for sentences that differ in spaces and case alone: nlpaug writes "don't" as "don ' t"."""
    return "".join(sentence.split()).casefold()


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of `packages`; "" of one that is not installed."""
    by_package = {}
    for package in packages:
        try:
            by_package[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            by_package[package] = ""
    return by_package
