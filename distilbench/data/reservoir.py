"""A fixed random sample of a stream of sentences, in bounded memory."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from itertools import chain

from distilbench.data.tables import fixed_sample

HELD = 500_000
"""Distinct sentences held in memory (some 125 MB) before sampling turns to a reservoir."""

_KEY = b"distilbench sentences 0"  # the seed


def draw_distinct(sentences: Iterable[str], limit: int | None, in_memory: int = HELD) -> list[str]:
    """`limit` distinct sentences, drawn with a fixed seed; all of them, in order, where there are no more or it is None.

    Of `in_memory` distinct sentences or fewer the draw is `fixed_sample`'s: it is a key of embeddings and runs that exist.
    Of a longer stream it is a `reservoir`, which holds no more than `limit` sentences.
    """
    stream: Iterator[str] = iter(sentences)
    first: dict[str, None] = {}
    for sentence in stream:
        first[sentence] = None
        if limit is not None and len(first) > max(limit, in_memory):
            return reservoir(chain(first, stream), limit)
    return fixed_sample(first, limit)


def reservoir(sentences: Iterable[str], limit: int) -> list[str]:
    """`limit` distinct sentences in the order in which they came; all distinct ones where there are no more.

    Reservoir sampling by random keys: a sentence's key is a keyed hash of its text, and the `limit` smallest stay. So a
    sentence is drawn with the same probability however often it occurs, and which are drawn does not depend on the order.
    """
    if limit <= 0:
        return []
    heap: list[tuple[int, int, str]] = []  # a heap whose first has the largest key: (-key, arrival, sentence)
    drawn: set[str] = set()
    for arrival, sentence in enumerate(sentences):
        if sentence in drawn:
            continue
        key = int.from_bytes(hashlib.blake2b(sentence.encode(), digest_size=16, key=_KEY).digest(), "big")
        if len(heap) < limit:
            heapq.heappush(heap, (-key, arrival, sentence))
        elif key < -heap[0][0]:
            drawn.remove(heapq.heapreplace(heap, (-key, arrival, sentence))[2])
        else:
            continue
        drawn.add(sentence)
    return [sentence for _, _, sentence in sorted(heap, key=lambda keyed: keyed[1])]
