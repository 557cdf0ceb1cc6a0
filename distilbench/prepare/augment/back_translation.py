"""Sentences translated to another language and back, by one of several engines (Sennrich et al. 2016; the HPD paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.prepare.augment.operation import Copies, Operation
from distilbench.prepare.augment.translation_engine import TranslationEngine

STEP = 1


@dataclass(frozen=True)
class BackTranslation(Operation):
    """The engine's round trip. Nothing is drawn: a second seed gives the same copies."""

    name: ClassVar[str] = "back-translation"
    engine: TranslationEngine
    uses_gpu: ClassVar[bool] = True

    def identity(self) -> dict[str, Any]:
        """The engine's own."""
        return {"operation": self.name, "step": STEP, "engine": self.engine.name, **self.engine.identity()}

    def check(self) -> None:
        """The engine is installed."""
        self.engine.check()

    def load(self) -> Copies:
        """Both directions."""
        round_trip = self.engine.load()

        def copies(sentences: Sequence[str], seed: int) -> list[str]:
            lines = [" ".join(sentence.split()) for sentence in sentences]
            distinct = list(dict.fromkeys(line for line in lines if line))
            back = dict(zip(distinct, round_trip(distinct), strict=True)) if distinct else {}
            return [back[line] if line else "" for line in lines]

        return copies
