"""Where the inputs of one student are: artifacts of its tokens and of its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import absolute_student


@dataclass(frozen=True)
class StudentInputs:
    """What one student is trained from, as paths of artifacts."""

    student: str
    """The student with its layers written out."""
    pooling: str
    tokens: Path
    static: Path | None = None
    """What a static student starts from."""
    ranking: Path | None = None
    """The ranking that chose its layers."""
    prompts: Prompts | None = None
    """What it has put before its texts; None is nothing."""

    def described(self) -> dict[str, Any]:
        """The same, JSON-able, as `prepared.json` has it."""
        return {
            "student": absolute_student(self.student),
            "pooling": self.pooling,
            "tokens": str(self.tokens),
            **({} if self.static is None else {"static": str(self.static)}),
            **({"student_prompts": vars(self.prompts)} if self.prompts else {}),
        }
