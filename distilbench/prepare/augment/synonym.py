"""Words replaced by a WordNet synonym: nlpaug's operation, with WordNet 3.0 through NLTK.

WordNet is read from NLTK's data folders or from Debian's package. A word is what stands between blanks, in any script:
"don't", "$1,000.50" and a letter with its marks are never torn. nlpaug draws from the global generators, so sentences are
changed one by one, each with its own seed.
"""

# mypy: disable-error-code="misc"
# nlpaug and NLTK tell no types, hence subclasses of Any.

from __future__ import annotations

import functools
import hashlib
import io
import json
import random
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Copies, Operation, versions

SHARE = 0.3
STEP = 2
INSTALL = "python -m nltk.downloader wordnet"
"""What synonyms need: WordNet (30 MB)."""
DEBIAN_WORDNET = Path("/usr/share/wordnet")
EXPECTED = f"expected `{INSTALL}`; on Debian `apt-get install wordnet-base` can take the place of the download"
FILES = tuple(
    [f"{kind}.{pos}" for kind in ("data", "index") for pos in ("noun", "verb", "adj", "adv")]
    + [f"{pos}.exc" for pos in ("noun", "verb", "adj", "adv")]
)
"""Synsets, words and irregular forms: what synonyms are read from."""
_LEXNAMES = 45  # lexicographer files of WordNet 3.0


@dataclass(frozen=True)
class Synonym(Operation):
    """`SHARE` of a sentence's tokens, rounded up and at most 10, are replaced by synonyms of their part of speech, where
    WordNet has another word for them; punctuation is not."""

    name: ClassVar[str] = "synonym"

    def identity(self) -> dict[str, Any]:
        """Versions of nlpaug, NLTK and the tagger; the share; WordNet's checksums."""
        return {
            "operation": self.name,
            "step": STEP,
            "share": SHARE,
            "packages": versions("nlpaug", "nltk", "textblob"),
            "wordnet": wordnet_checksums(),
        }

    def check(self) -> None:
        """WordNet is there."""
        find_wordnet()

    def load(self) -> Copies:
        """12 s: nlpaug imports torch and transformers; WordNet takes 1.4 s."""
        self.check()
        augmenter = synonym_augmenter()

        def copies(sentences: Sequence[str], seed: int) -> list[str]:
            changed = []
            with random_states_kept():
                for sentence in sentences:  # seeded anew for each, in 20 us
                    digest = hashlib.sha256(json.dumps([seed, self.name, sentence]).encode()).digest()
                    random.seed(int.from_bytes(digest[:8], "little"))
                    np.random.seed(int.from_bytes(digest[8:12], "little"))
                    changed.append(str(augmenter.substitute(sentence.strip())))
            return changed

        return copies


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Python's and NumPy's global generators are afterwards as they were before."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def synonym_augmenter(remembered: int = 1 << 16) -> Any:
    """nlpaug's SynonymAug with the tagger that TextBlob ships, instead of the perceptron that NLTK has to download.

    It remembers WordNet's answers for so many words, which changes no draw: see benchmarks/augmentation.py.
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
            model.predict = functools.lru_cache(maxsize=remembered)(model.predict)
            return model

    tokens = TokenSplitter()
    return TaggedSynonymAug(aug_p=SHARE, tokenizer=tokens.of, reverse_tokenizer=tokens.joined)


class TokenSplitter:
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


def find_wordnet() -> Any:
    """The folder of WordNet's files: NLTK's pointer, into a zip file too, or the Debian package's path."""
    import nltk

    for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            return nltk.data.find(place)
        except LookupError:
            continue
    if not (DEBIAN_WORDNET / "data.noun").exists():
        raise InputError(
            f"augmentation synonym: WordNet is neither in NLTK's data folders nor in {DEBIAN_WORDNET}; {EXPECTED}"
        )
    return DEBIAN_WORDNET


def wordnet_checksums() -> dict[str, str]:
    """SHA-256 of each of `FILES`. 0.1 s."""
    folder = find_wordnet()
    checksums = {}
    for name in FILES:
        with (folder / name).open("rb") if isinstance(folder, Path) else folder.join(name).open() as file:
            checksums[name] = hashlib.sha256(file.read()).hexdigest()
    return checksums


def read_wordnet() -> Any:
    """NLTK's reader of WordNet. 1.4 s."""
    if find_wordnet() != DEBIAN_WORDNET:
        from nltk.corpus import wordnet

        wordnet.ensure_loaded()
        return wordnet

    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class DebianReader(WordNetCorpusReader):
        def open(self, file: str) -> io.TextIOBase:
            if file == "lexnames":  # not in the package, and its names are not asked for here
                return io.StringIO("".join(f"{i} {i} 0\n" for i in range(_LEXNAMES)))
            return (DEBIAN_WORDNET / file).open(encoding="utf-8")

        def map_wn(self, version: str = "") -> None:
            """No map to another WordNet: it serves other languages, and its file `index.sense` is another package."""

    if str(DEBIAN_WORDNET) not in nltk.data.path:
        nltk.data.path.append(str(DEBIAN_WORDNET))  # NLTK reads nowhere else, nor through links
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # English alone
        return DebianReader(str(DEBIAN_WORDNET), None)
