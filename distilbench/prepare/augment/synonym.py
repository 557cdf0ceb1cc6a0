"""Words replaced by WordNet synonyms of their part of speech: nlpaug's SynonymAug."""

# mypy: disable-error-code="misc"
# nlpaug and NLTK tell no types, hence subclasses of Any; TextBlob need not be installed.

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Copies, Operation, versions
from distilbench.prepare.augment.seeding import one_by_one
from distilbench.prepare.augment.wordnet import EXPECTED, find_wordnet, read_wordnet, wordnet_checksums

STEP = 1


@dataclass(frozen=True)
class Synonym(Operation):
    """`share` of a sentence's tokens, rounded up and at most 10, where WordNet has another word for them."""

    name: ClassVar[str] = "synonym"
    share: float = 0.3

    def identity(self) -> dict[str, Any]:
        """Versions of nlpaug, NLTK and the tagger; WordNet's checksums; the share."""
        return {
            "operation": self.name,
            "step": STEP,
            "share": self.share,
            "packages": versions("nlpaug", "nltk", "textblob"),
            "wordnet": wordnet_checksums(),
        }

    def check(self) -> None:
        """Tagger and WordNet are there."""
        if importlib.util.find_spec("textblob") is None:
            raise InputError(f"augmentation synonym: textblob (the tagger) is not installed; {EXPECTED}")
        find_wordnet()

    def load(self) -> Copies:
        """1.4 s for WordNet, and 12 s for nlpaug, which imports torch and transformers."""
        self.check()
        augmenter = synonym_augmenter(self.share)

        def change(sentence: str) -> str:
            return str(augmenter.substitute(sentence.strip()))

        return one_by_one(self.name, change)


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
