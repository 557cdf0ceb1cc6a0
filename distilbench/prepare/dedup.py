"""Sentences that an encoder reads alike: equal token ids have equal vectors, so one of them is enough.

An encoder that lower-cases reads SentEval's tokenised text nearly as the raw one: of 33,784 distinct sentences of STS12-14
and STS-B in both, all-MiniLM-L6-v2 reads 17,744.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distilbench.encoders.encoder import prompt_of, reads_tokens, token_ids

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def distinct_readings(
    model: SentenceTransformer, sentences: Sequence[str], prompt: str | None = None
) -> tuple[list[str], NDArray[np.int64]]:
    """The first sentence of each reading, in order, and of every sentence the position of its reading's."""
    if not reads_tokens(model):
        return list(sentences), np.arange(len(sentences))
    ids = token_ids(model, sentences, prompt_of(model, prompt))
    first: dict[tuple[int, ...], int] = {}
    place = np.array([first.setdefault(tuple(token_ids), len(first)) for token_ids in ids], dtype=np.int64)
    _, starts = np.unique(place, return_index=True)
    return [sentences[int(i)] for i in starts], place
