"""Reading text word by word: each distinct word is tokenised once, which is what most of a static encoder's time goes to.

Axes: B texts, W words of them, T tokens of them.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

MOST_LETTERS = 5_000_000
"""Letters of all words that are remembered, about 100 MB: with more all are forgotten."""

Integers = NDArray[np.int64]


def reads_by_word(tokenizer: Tokenizer) -> bool:
    """Whether the tokens of a text are those of its words, one after the other, as BERT's tokenizers have it.

    No token may reach over a space, and nothing of what is done to a character may depend on another word.
    """
    cut = tokenizer.truncation
    return (
        isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and tokenizer.padding is None
        and (cut is None or cut["direction"] == "right")
        and not any(" " in token.content for token in tokenizer.get_added_tokens_decoder().values())
    )


class _Numbers(dict[str, int]):
    """The number of each word; a word that is asked for and not there has the next one, and is noted as new."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        self.new.append(word)
        return number


class WordReader:
    """Token ids of texts, without special tokens: those that its tokenizer (see `reads_by_word`) has, and remembers."""

    def __init__(self, tokenizer: Tokenizer, most_letters: int = MOST_LETTERS) -> None:
        self._tokenizer, self._most = tokenizer, most_letters
        self._limit = int(tokenizer.truncation["max_length"]) if tokenizer.truncation else None
        self._busy = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Remember no word."""
        self._numbers = _Numbers()
        self._letters = 0
        self._tokens, self._begins, self._counts = array("q"), array("q"), array("q")

    def ids(self, texts: Sequence[str]) -> tuple[Integers, Integers]:
        """The texts' tokens one after the other (T), and where each text begins (B)."""
        if not texts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        words: list[str] = []
        count_B = np.empty(len(texts), dtype=np.int64)
        for i, text in enumerate(texts):
            parts = text.split(" ")
            words += parts
            count_B[i] = len(parts)
        with self._busy:
            if self._letters > self._most:
                self.forget()
            try:
                word_W = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
                self._learn()
            except BaseException:
                self.forget()  # numbers without tokens would be those of other words
                raise
            ids_T, tokens_W = self._gather(word_W)
        tokens_B = np.add.reduceat(tokens_W, _begins(count_B))
        if self._limit is not None and tokens_B.max() > self._limit:
            place_T = np.arange(len(ids_T)) - np.repeat(_begins(tokens_B), tokens_B)
            ids_T, tokens_B = ids_T[place_T < self._limit], np.minimum(tokens_B, self._limit)
        return ids_T, _begins(tokens_B)

    def _learn(self) -> None:
        new, self._numbers.new = self._numbers.new, []
        self._letters += sum(map(len, new))
        for encoding in self._tokenizer.encode_batch_fast(new, add_special_tokens=False):
            self._begins.append(len(self._tokens))
            self._counts.append(len(encoding.ids))
            self._tokens.extend(encoding.ids)

    def _gather(self, word_W: Integers) -> tuple[Integers, Integers]:
        tokens, begins, counts = (np.frombuffer(a, dtype=np.int64) for a in (self._tokens, self._begins, self._counts))
        tokens_W = counts[word_W]
        place_T = np.repeat(begins[word_W] - _begins(tokens_W), tokens_W) + np.arange(tokens_W.sum())
        return tokens[place_T], tokens_W


def _begins(count: Integers) -> Integers:
    """Where each of the parts begins, of which there are so many pieces."""
    return np.cumsum(count) - count
