"""What back translation asks of a machine translation engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

RoundTrip = Callable[[Sequence[str]], list[str]]
"""Sentences, none of them empty -> each translated to the pivot language and back; "" where that failed."""

ROLE = "augmentation back-translation"


class TranslationEngine(ABC):
    """A small picklable description of two translation directions; nothing random in either."""

    name: ClassVar[str]
    install: ClassVar[str]
    """The one command that installs the engine."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the translations depend on, JSON-able."""

    @abstractmethod
    def check(self) -> None:
        """Look, without loading it, for what the engine needs.

        Raises:
            InputError: something is not installed; the message gives the one command that installs it.
        """

    @abstractmethod
    def load(self) -> RoundTrip:
        """Both directions in memory: once in each worker."""
