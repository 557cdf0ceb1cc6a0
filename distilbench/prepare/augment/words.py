"""Words swapped, deleted, or replaced by a synonym or by what a masked language model writes there: nlpaug's operations.

nlpaug draws from the global generators, so sentences are changed one by one, each with its own seed.
"""

# mypy: disable-error-code="misc"
# nlpaug tells no types, hence subclasses of Any.

from __future__ import annotations

import functools
import random
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.encoders.encoder import EncoderSpec, default_device, readable_tokenizer, transformer_config
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Copies, Operation, one_by_one, versions
from distilbench.prepare.augment.wordnet import find_wordnet, read_wordnet, wordnet_checksums

STEP = 1
"""Part of every fingerprint: raise it when the code below changes a copy."""
CONTEXTUAL = "augmentation contextual"
NO_MODEL = EncoderSpec("")
FAMILIES = {"bert": "bert", "distilbert": "bert", "roberta": "roberta"}
"""`model_type` of a config.json -> the family whose word pieces nlpaug understands."""


@dataclass(frozen=True)
class WordOperation(Operation):
    """`share` of a sentence's tokens, rounded up and at most 10, are changed; punctuation is not."""

    packages: ClassVar[tuple[str, ...]] = ("nlpaug",)
    share: float = 0.3

    def identity(self) -> dict[str, Any]:
        """The versions of `packages`, and the share."""
        told = {"operation": self.name, "step": STEP, "share": self.share}
        return {**told, "packages": versions(*self.packages)}

    def check(self) -> None:
        """Nothing: nlpaug is a dependency of ours."""

    def load(self) -> Copies:
        """12 s: nlpaug imports torch and transformers."""
        self.check()
        return one_by_one(self.name, self.changer())

    @abstractmethod
    def changer(self) -> Callable[[str], str]:
        """The function that changes one stripped sentence."""


@dataclass(frozen=True)
class Swap(WordOperation):
    """Words change places with a neighbour."""

    name: ClassVar[str] = "swap"

    def changer(self) -> Callable[[str], str]:
        """nlpaug's RandomWordAug."""
        from nlpaug.augmenter.word import RandomWordAug

        augmenter = RandomWordAug(action=self.name, aug_p=self.share)
        return lambda sentence: str(getattr(augmenter, self.name)(sentence))


@dataclass(frozen=True)
class Delete(Swap):
    """Words are left out."""

    name: ClassVar[str] = "delete"


@dataclass(frozen=True)
class Synonym(WordOperation):
    """Words are replaced by WordNet synonyms of their part of speech, where WordNet has another word for them."""

    name: ClassVar[str] = "synonym"
    packages: ClassVar[tuple[str, ...]] = ("nlpaug", "nltk", "textblob")

    def identity(self) -> dict[str, Any]:
        """Versions of nlpaug, NLTK and the tagger; the share; WordNet's checksums."""
        return {**super().identity(), "wordnet": wordnet_checksums()}

    def check(self) -> None:
        """WordNet is there."""
        find_wordnet()

    def changer(self) -> Callable[[str], str]:
        """nlpaug's SynonymAug; WordNet takes 1.4 s."""
        augmenter = synonym_augmenter(self.share)
        return lambda sentence: str(augmenter.substitute(sentence))


def synonym_augmenter(share: float = 0.3, *, cached: bool = True) -> Any:
    """nlpaug's SynonymAug with the tagger that TextBlob ships, instead of the perceptron that NLTK has to download.

    `cached` remembers WordNet's answers (up to 65,536 words), which changes no draw: see benchmarks/augmentation.py.
    """
    from nlpaug.augmenter.word import SynonymAug
    from nlpaug.model.word_dict import WordNet
    from textblob.en import parser

    wordnet = read_wordnet()

    class TaggedWordNet(WordNet):
        def read(self) -> Any:
            return wordnet

        @classmethod
        def pos_tag(cls, tokens: list[str]) -> list[list[str]]:
            tagged: list[list[str]] = parser.find_tags(tokens)
            return tagged

    class TaggedSynonymAug(SynonymAug):
        @classmethod
        def get_model(cls, aug_src: str, lang: str, dict_path: None, force_reload: bool) -> TaggedWordNet:
            model = TaggedWordNet(lang)
            if cached:
                model.predict = functools.lru_cache(maxsize=1 << 16)(model.predict)
            return model

    return TaggedSynonymAug(aug_p=share)


@dataclass(frozen=True)
class Contextual(WordOperation):
    """Words are replaced by one of the 100 likeliest that the masked language model `model` would write there.

    An uncased model writes lower case. A copy that would hold an unknown token is none.
    """

    name: ClassVar[str] = "contextual"
    packages: ClassVar[tuple[str, ...]] = ("nlpaug", "torch", "transformers")
    uses_gpu: ClassVar[bool] = True
    model: EncoderSpec = NO_MODEL

    def identity(self) -> dict[str, Any]:
        """Versions, share, and the model's checksums."""
        return {**super().identity(), "model": self.model.identity()["source"]}

    def check(self) -> None:
        """The model is there, of a family that nlpaug understands."""
        kind = transformer_config(self.model.described()).get("model_type")
        if kind not in FAMILIES:
            raise InputError(
                f"{CONTEXTUAL}: {self.model.name!r} is of type {kind!r}; expected a masked language model of type "
                f"{', '.join(FAMILIES)}"
            )

    def changer(self) -> Callable[[str], str]:
        """nlpaug's ContextualWordEmbsAug on a GPU where there is one, in float32."""
        import torch
        from nlpaug.augmenter.word import ContextualWordEmbsAug
        from nlpaug.model import lang_models
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        source = str(self.model.folder() or self.model.name)
        family = FAMILIES[transformer_config(self.model.described())["model_type"]]
        unknown = readable_tokenizer(source, f"{CONTEXTUAL} {self.model.name!r}").unk_token
        language_model: Any = {"bert": lang_models.Bert, "roberta": lang_models.Roberta}[family]

        class FastModel(language_model):
            # nlpaug asks the tokenizer for methods that its fast class has lost in transformers 5.
            def token2id(self, token: str) -> int:
                return int(self.tokenizer.convert_tokens_to_ids(token))

            def id2token(self, _id: int) -> str:
                return str(self.tokenizer.convert_ids_to_tokens(_id))

        class FastAugmenter(ContextualWordEmbsAug):
            @classmethod
            def get_model(cls, model_path: str, device: str, top_k: int, **_: Any) -> FastModel:
                return FastModel(model_path, device=device, top_k=top_k)

        augmenter = FastAugmenter(source, model_type=family, aug_p=self.share, device=default_device())
        augmenter.model.model.float()

        def change(sentence: str) -> str:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(random.getrandbits(63))
                try:
                    copy = str(augmenter.substitute(sentence)).strip()
                except (IndexError, ValueError):  # what it has written is longer than the model's positions
                    return ""
            return "" if unknown in copy else copy

        return change
