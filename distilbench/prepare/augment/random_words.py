"""Neighbouring words swapped, or words deleted: nlpaug's RandomWordAug."""

# mypy: disable-error-code="misc"
# nlpaug tells no types.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.prepare.augment.operation import Copies, Operation, versions
from distilbench.prepare.augment.seeding import one_by_one

STEP = 1


@dataclass(frozen=True)
class RandomWords(Operation):
    """`share` of a sentence's tokens, rounded up and at most 10, are acted on; punctuation is not."""

    action: ClassVar[str]
    share: float = 0.3

    def identity(self) -> dict[str, Any]:
        """The version of nlpaug and the share."""
        return {"operation": self.name, "step": STEP, "share": self.share, "packages": versions("nlpaug")}

    def check(self) -> None:
        """Nothing: nlpaug is a dependency of ours."""

    def load(self) -> Copies:
        """12 s: nlpaug imports torch and transformers."""
        from nlpaug.augmenter.word import RandomWordAug

        augmenter = RandomWordAug(action=self.action, aug_p=self.share)
        act = getattr(augmenter, self.action)

        def change(sentence: str) -> str:
            return str(act(sentence.strip()))

        return one_by_one(self.name, change)


@dataclass(frozen=True)
class Swap(RandomWords):
    """Words change places with a neighbour."""

    name: ClassVar[str] = "swap"
    action: ClassVar[str] = "swap"


@dataclass(frozen=True)
class Delete(RandomWords):
    """Words are left out."""

    name: ClassVar[str] = "delete"
    action: ClassVar[str] = "delete"
