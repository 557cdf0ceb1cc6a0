"""Which augmented sentences are made."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from distilbench.settings.option import Names, Settings, option, split_at_commas

PANEL = "Augmentation"


def _two_models(value: Any) -> Any:
    parts = split_at_commas(value) if isinstance(value, str) else value
    if parts is not None and len(parts) != 2:
        raise ValueError("not two models")
    return parts


class AugmentationSettings(Settings):
    """Augmented sentences, for the methods that train on them."""

    augment: Names = option(
        "Changed copies of the training sentences: synonym, swap, delete, back-translation, with commas "
        "between, or hpd (synonym and back-translation). For methods with `augmentation: true`.",
        (),
        panel=PANEL,
    )
    marian: Annotated[tuple[str, str] | None, BeforeValidator(_two_models)] = option(
        "For back-translation: two MarianMT models, there and back, with a comma between; default: English and German, "
        "from the hub.",
        None,
        panel=PANEL,
        expected="two models, there and back, with a comma between",
    )
