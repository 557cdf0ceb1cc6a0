"""Words swapped, deleted, or replaced by a synonym, the last by nlpaug.

A word is what stands between blanks, in any script: "don't", "$1,000.50" and a letter with its marks are never torn.
nlpaug draws from the global generators, so sentences are changed one by one, each with its own seed.
"""

# mypy: disable-error-code="misc"
# nlpaug tells no types, hence subclasses of Any.

from __future__ import annotations

import functools
import math
import random
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from distilbench.prepare.augment.operation import Copies, Operation, one_by_one, versions
from distilbench.prepare.augment.wordnet import find_wordnet, read_wordnet, wordnet_checksums

STEP = 2
"""Part of every fingerprint: raise it when the code below changes a copy."""
MOST = 10
"""Words of a sentence that are changed at most."""


@dataclass(frozen=True)
class WordOperation(Operation):
    """`share` of a sentence's words, rounded up and at most `MOST`, are changed."""

    packages: ClassVar[tuple[str, ...]] = ()
    share: float = 0.3

    def drawn(self, words: int) -> list[int]:
        """The places of the words that are changed."""
        return random.sample(range(words), min(words, MOST, math.ceil(self.share * words)))

    def identity(self) -> dict[str, Any]:
        """The versions of `packages`, and the share."""
        told = {"operation": self.name, "step": STEP, "share": self.share}
        return {**told, "packages": versions(*self.packages)}

    def check(self) -> None:
        """Nothing: what it needs are dependencies of ours."""

    def load(self) -> Copies:
        """Of synonyms 12 s: nlpaug imports torch and transformers."""
        self.check()
        return one_by_one(self.name, self.changer())

    @abstractmethod
    def changer(self) -> Callable[[str], str]:
        """The function that changes one stripped sentence."""


@dataclass(frozen=True)
class Swap(WordOperation):
    """Words change places with a neighbour, with the punctuation that is written to them."""

    name: ClassVar[str] = "swap"

    def changer(self) -> Callable[[str], str]:
        """Each drawn word with the one before or after it."""

        def swap(sentence: str) -> str:
            words = sentence.split()
            for place in self.drawn(len(words)) if len(words) > 1 else ():
                sides = [other for other in (place - 1, place + 1) if 0 <= other < len(words)]
                other = random.choice(sides)
                words[place], words[other] = words[other], words[place]
            return " ".join(words)

        return swap


@dataclass(frozen=True)
class Delete(WordOperation):
    """Words are left out, with the punctuation that is written to them; never all."""

    name: ClassVar[str] = "delete"

    def changer(self) -> Callable[[str], str]:
        """All words but the drawn ones."""

        def delete(sentence: str) -> str:
            words = sentence.split()
            gone = set(self.drawn(len(words))[: len(words) - 1])
            return " ".join(word for place, word in enumerate(words) if place not in gone)

        return delete


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

    tokens = Tokens()
    return TaggedSynonymAug(aug_p=share, tokenizer=tokens.of, reverse_tokenizer=tokens.joined)


class Tokens:
    """Words and the punctuation at their ends, and the blanks between them as they were."""

    def __init__(self) -> None:
        self.blanks: list[str] = []

    def of(self, text: str) -> list[str]:
        """Split a text at blanks, and punctuation off both ends of each word."""
        tokens, self.blanks = list[str](), []
        for blank, word in re.findall(r"(\s*)(\S+)", text):
            inner = [i for i, letter in enumerate(word) if unicodedata.category(letter)[0] not in "PS"]
            start, end = (inner[0], inner[-1] + 1) if inner else (len(word), len(word))
            own = [*word[:start], *([word[start:end]] if inner else []), *word[end:]]
            tokens += own
            self.blanks += [blank, *[""] * (len(own) - 1)]
        return tokens

    def joined(self, tokens: list[str]) -> str:
        """As many tokens again, with the blanks of those that were split last."""
        return "".join(blank + token for blank, token in zip(self.blanks, tokens, strict=True))
