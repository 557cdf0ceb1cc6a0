"""A pair of MarianMT models, such as Helsinki-NLP/opus-mt-en-de and opus-mt-de-en, by transformers itself.

Not by nlpaug's BackTranslationAug, which pads all sentences to the longest of the whole list, starts a process for each
call, takes neither beams nor lengths, and passes a translation that was cut at its limit as a whole one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distilbench.encoders.encoder import default_device, padded, readable_tokenizer, token_budget_batches
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import versions
from distilbench.prepare.augment.pretrained import Pretrained
from distilbench.prepare.augment.translation_engine import ROLE, RoundTrip, TranslationEngine

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 16384}
"""Padded tokens of the sentences of one batch."""

_STEP = 16  # sentences whose lengths round up to the same multiple have the same limit


@dataclass(frozen=True)
class Marian(TranslationEngine):
    """Greedy search, or beam search with several `beams`.

    A sentence longer than a model's positions has no copy, nor has one whose translation does not end within twice its
    own length and 16 tokens: small models repeat themselves without end.
    """

    name: ClassVar[str] = "marian"
    install: ClassVar[str] = "pip install sentencepiece"
    there: Pretrained
    back: Pretrained
    beams: int = 1

    def identity(self) -> dict[str, Any]:
        """Checksums of both models, versions, beams."""
        return {
            "packages": versions("torch", "transformers", "sentencepiece"),
            "there": self.there.identity(),
            "back": self.back.identity(),
            "beams": self.beams,
        }

    def check(self) -> None:
        """sentencepiece is installed, and both are MarianMT models."""
        if importlib.util.find_spec("sentencepiece") is None:
            raise InputError(f"{ROLE}: MarianMT's tokenizer needs sentencepiece; expected `{self.install}`")
        for model in (self.there, self.back):
            kind = model.config().get("model_type")
            if kind != "marian":
                raise InputError(f"{ROLE}: {model.name!r} is of type {kind!r}; expected two MarianMT models")

    def load(self) -> RoundTrip:
        """Both models on a GPU where there is one, in float32."""
        from transformers.utils.logging import disable_progress_bar

        self.check()
        disable_progress_bar()
        to_foreign, to_english = (_translator(model, self.beams) for model in (self.there, self.back))
        return lambda sentences: to_english(to_foreign(sentences))


def _translator(spec: Pretrained, beams: int) -> Callable[[Sequence[str]], list[str]]:
    import torch
    from transformers import MarianMTModel

    tokenizer = readable_tokenizer(spec.source, f"{ROLE} {spec.name!r}")
    device = default_device()
    model = MarianMTModel.from_pretrained(spec.source).to(device).eval()
    longest = model.config.max_position_embeddings
    # The limit is ours, so that what reached it is known: a forced end looks like one of the model's own.
    model.generation_config.update(max_length=None, forced_eos_token_id=None, num_beams=beams, do_sample=False)

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
                with torch.inference_mode():
                    written_BT = model.generate(
                        **padded([ids[row] for row in chosen], tokenizer.pad_token_id, device), max_new_tokens=limit
                    )
                ended_B = (written_BT[:, 1:] == tokenizer.eos_token_id).any(dim=1).tolist()
                texts = tokenizer.batch_decode(written_BT, skip_special_tokens=True)
                for row, text, ended in zip(chosen, texts, ended_B, strict=True):
                    translations[row] = text.strip() if ended else ""
        return translations

    return translate
