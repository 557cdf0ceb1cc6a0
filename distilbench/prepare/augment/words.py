"""Words swapped, deleted, or replaced by a synonym: nlpaug's operations.

nlpaug draws from the global generators, so sentences are changed one by one, each with its own seed.
"""

# mypy: disable-error-code="misc"
# nlpaug tells no types, hence subclasses of Any.

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.prepare.augment.operation import Copies, Operation, one_by_one, versions
from distilbench.prepare.augment.wordnet import find_wordnet, read_wordnet, wordnet_checksums

STEP = 1
"""Part of every fingerprint: raise it when the code below changes a copy."""


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
