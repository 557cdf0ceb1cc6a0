"""Sentences translated to another language and back (Sennrich et al. 2016; the HPD paper), by nlpaug."""

# mypy: disable-error-code="misc"
# nlpaug tells no types.

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Copies, Operation, versions
from distilbench.storage.hub import hub_silence

ROLE = "augmentation back-translation"
INSTALL = "pip install 'distilbench[marian]'"
THERE, BACK = EncoderSpec("Helsinki-NLP/opus-mt-en-de"), EncoderSpec("Helsinki-NLP/opus-mt-de-en")
LONGEST = 600
"""Characters of a text that has a copy: the models know sentences, and cut what they make of longer text."""
STEP = 2


@dataclass(frozen=True)
class BackTranslation(Operation):
    """The round trip by two MarianMT models. Nothing is drawn: a second seed gives the same copies."""

    name: ClassVar[str] = "back-translation"
    uses_gpu: ClassVar[bool] = True
    there: EncoderSpec = THERE
    back: EncoderSpec = BACK

    def identity(self) -> dict[str, Any]:
        """Versions, and the checksums of both models."""
        self.check()
        packages = versions("nlpaug", "torch", "transformers", "sentencepiece")
        both = {"there": self.there.identity()["source"], "back": self.back.identity()["source"]}
        return {"operation": self.name, "step": STEP, "packages": packages, **both}

    def check(self) -> None:
        """sentencepiece is installed, and both are MarianMT models."""
        if importlib.util.find_spec("sentencepiece") is None:
            raise InputError(f"{ROLE}: MarianMT's tokenizer needs sentencepiece; expected `{INSTALL}`")
        for model in (self.there, self.back):
            kind = getattr(_config(model), "model_type", None)
            if kind != "marian":
                raise InputError(f"{ROLE}: {model.name!r} is of type {kind!r}; expected two MarianMT models")

    def load(self) -> Copies:
        """Both models; each distinct line is translated once."""
        self.check()
        round_trip = self._round_trip()

        def copies(sentences: Sequence[str], seed: int) -> list[str]:
            lines = [" ".join(sentence.split()) for sentence in sentences]
            distinct = list(dict.fromkeys(line for line in lines if 0 < len(line) <= LONGEST))
            back = dict(zip(distinct, round_trip(distinct), strict=True)) if distinct else {}
            return [back.get(line, "") for line in lines]

        return copies

    def _round_trip(self) -> Callable[[list[str]], list[str]]:
        import torch
        from nlpaug.augmenter.word import BackTranslationAug
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        both = (self.there, self.back)
        longest = min(_config(spec).max_position_embeddings for spec in both)
        names = [str(spec.folder() or spec.name) for spec in both]
        augmenter = BackTranslationAug(*names, device=default_device(), max_length=longest)
        for model in (augmenter.model.src_model, augmenter.model.tgt_model):
            model.float()

        def translate(sentences: list[str]) -> list[str]:
            with torch.random.fork_rng(devices=[]):  # a data loader draws a seed
                return [text.strip() for text in augmenter.substitute(sentences)]

        return translate


def _config(spec: EncoderSpec) -> Any:
    from transformers import AutoConfig

    folder = spec.folder()
    silence = "" if folder else hub_silence()
    try:
        return AutoConfig.from_pretrained(str(folder or spec.name))
    except (OSError, ValueError) as error:
        reason = f"the hub cannot be reached, {silence}" if silence else str(error).splitlines()[0]
        raise InputError(f"{ROLE}: {spec.name!r} has no configuration: {reason}") from None
