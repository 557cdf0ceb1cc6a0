"""Which augmented sentences are made."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from distilbench.choices import Translation
from distilbench.settings.option import Names, Settings, option, split_at_commas

PANEL = "Augmentation"


class AugmentSettings(BaseModel):
    """Which copies are made of the training sentences."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operations: tuple[str, ...] = ()
    """Names of operations and recipes."""
    share: float = Field(default=0.3, gt=0, le=1)
    """The share of a sentence's tokens, rounded up and at most 10, that synonym, swap, delete and contextual change."""
    contextual_model: str | None = None
    """A masked language model's folder or hub id, for contextual."""
    translation: Translation = "auto"
    marian: tuple[str, str] | None = None
    """Two MarianMT models' folders or hub ids: from English, and back to it."""
    beams: int = Field(default=1, ge=1)
    """The beams of MarianMT's search; 1 is greedy."""


def _two_models(value: Any) -> Any:
    parts = split_at_commas(value) if isinstance(value, str) else value
    if parts is not None and len(parts) != 2:
        raise ValueError("not two models")
    return parts


class AugmentationSettings(Settings):
    """Augmented sentences, for the methods that train on them."""

    augment: Names = option(
        "Changed copies of the training sentences: synonym, contextual, swap, delete, back-translation, with commas "
        "between, or hpd (synonym and back-translation). For methods with `augmentation: true`.",
        (),
        panel=PANEL,
    )
    min_cosine: float | None = option(
        "Leave out copies below this teacher's cosine to their source.", None, panel=PANEL, ge=-1, le=1
    )
    contextual_model: str | None = option(
        "For contextual: a masked language model's folder or hub id.", None, panel=PANEL
    )
    translation: Translation = option(
        "For back-translation: the engine; auto is the first that is installed.", "auto", panel=PANEL
    )
    marian: Annotated[tuple[str, str] | None, BeforeValidator(_two_models)] = option(
        "For marian: the folders or hub ids of the models there and back, with a comma between.",
        None,
        panel=PANEL,
        expected="two models, there and back, with a comma between",
    )

    @cached_property
    def augmentation(self) -> AugmentSettings:
        """Which copies are made."""
        return AugmentSettings(
            operations=self.augment,
            contextual_model=self.contextual_model,
            translation=self.translation,
            marian=self.marian,
        )
