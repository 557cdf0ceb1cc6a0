"""Augmentation: changed copies of the training sentences, made with nlpaug.

A copy depends on its sentence, the operation and the seed, and on no other sentence.
"""

# mypy: disable-error-code="misc"
# nlpaug and NLTK tell no types, hence subclasses of Any; the packages of "synonym" need not be installed.

from __future__ import annotations

import hashlib
import io
import json
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from distilbench.data.corpus import Corpus
from distilbench.errors import InputError

OPERATIONS = ("synonym", "swap", "delete")
"""WordNet synonyms, neighbouring words swapped, words deleted; each of 30 % of a sentence's tokens, 1 to 10."""

INSTALL = "pip install textblob && python -m nltk.downloader wordnet"
"""What "synonym" needs: a part-of-speech tagger, NLTK, and WordNet 3.0 (30 MB), which Debian packages too."""

DEBIAN_WORDNET = Path("/usr/share/wordnet")
_EXPECTED = f"expected `{INSTALL}`; on Debian `apt-get install wordnet-base` can take the place of the download"
_LEXNAMES = 45  # lexicographer files of WordNet 3.0


def augmented_corpus(corpus: Corpus, operations: Sequence[str], seed: int) -> Corpus:
    """`corpus` and one changed copy of each training sentence for each of `operations`.

    The copies come after the sentences of `corpus`, which keep their rows; the copies' rows are `augmented` and in no
    set. A copy is dropped where it is unchanged, a copy already made, or a sentence of `corpus`, such as an evaluation
    sentence; spaces and case do not tell it from one of those. A line of `found` has the numbers.
    Sentences per second of CPU time: synonym 2,900 (after 1.4 s for WordNet), swap 6,600, delete 8,800.

    Raises:
        InputError: an operation is not known, or what it needs is not installed.
    """
    check_operations(operations)
    if not operations:
        return corpus
    there = {_same(sentence) for sentence in corpus.sentences}
    augmenters = {operation: _augmenter(operation) for operation in operations}
    copies: dict[str, None] = {}
    with _random_states_kept():
        for operation, augment in augmenters.items():
            for row in corpus.train.tolist():
                sentence = corpus.sentences[row]
                _seed_nlpaug(seed, operation, sentence)
                copy = augment(sentence)
                if _same(copy) not in there:
                    copies[copy] = None
    rows = np.arange(len(corpus.sentences), len(corpus.sentences) + len(copies), dtype=np.int64)
    dropped = len(corpus.train) * len(augmenters) - len(copies)
    found = (
        f"augmentation {','.join(augmenters)}: {len(copies):,} sentences from {len(corpus.train):,} "
        f"({dropped:,} unchanged or already there)"
    )
    return replace(
        corpus,
        sentences=(*corpus.sentences, *copies),
        augmented=np.concatenate([corpus.augmented, rows]),
        found=(*corpus.found, found),
    )


def check_operations(operations: Sequence[str]) -> None:
    """Whether all `operations` are known, without a look at what they need.

    Raises:
        InputError: one is not.
    """
    for operation in operations:
        if operation not in OPERATIONS:
            raise InputError(f"augmentation {operation!r}: expected one of {', '.join(OPERATIONS)}")


def _same(sentence: str) -> str:
    """Equal for sentences that differ in spaces and case alone: nlpaug writes "don't" as "don ' t"."""
    return "".join(sentence.split()).casefold()


def _seed_nlpaug(seed: int, operation: str, sentence: str) -> None:
    """Sets the two global generators that nlpaug draws from. 20 µs."""
    digest = hashlib.sha256(json.dumps([seed, operation, sentence]).encode()).digest()
    random.seed(int.from_bytes(digest[:8], "little"))
    np.random.seed(int.from_bytes(digest[8:12], "little"))


@contextmanager
def _random_states_kept() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _augmenter(operation: str) -> Callable[[str], str]:
    """Makes one copy of a sentence. Importing nlpaug takes 10 s: it imports torch and transformers."""
    if operation == "synonym":
        augmenter = _synonym_augmenter()
    else:
        from nlpaug.augmenter.word import RandomWordAug

        augmenter = RandomWordAug(action=operation)

    def augment(sentence: str) -> str:
        return next(iter(augmenter.augment(sentence)), "")  # nothing for an empty sentence

    return augment


def _synonym_augmenter() -> Any:
    """nlpaug's SynonymAug with the tagger that TextBlob ships, instead of the perceptron that NLTK has to download."""
    try:
        from textblob.en import parser
    except ImportError:
        raise InputError(f"augmentation synonym: textblob (the tagger) is not installed; {_EXPECTED}") from None
    wordnet = _wordnet()

    from nlpaug.augmenter.word import SynonymAug
    from nlpaug.model.word_dict import WordNet

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
            return TaggedWordNet(lang)

    return TaggedSynonymAug()


def _wordnet() -> Any:
    """NLTK's reader of WordNet 3.0, from NLTK's data folders or from Debian's package.

    Raises:
        InputError: it is in neither.
    """
    import nltk
    from nltk.corpus import wordnet
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    try:
        wordnet.ensure_loaded()
        return wordnet
    except LookupError:
        if not (DEBIAN_WORDNET / "data.noun").exists():
            raise InputError(
                f"augmentation synonym: WordNet is neither in NLTK's data folders nor in {DEBIAN_WORDNET}; {_EXPECTED}"
            ) from None

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
