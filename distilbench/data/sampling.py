"""Samples of rows with a fixed seed: of a list, of a stream evenly of its sources, and the rows that statistics of embeddings
are taken from."""

from __future__ import annotations

import hashlib
import heapq
import random
import sys
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from distilbench.data.corpus import Rows

SAMPLE = 100_000
"""Training sentences that principal axes are fitted on at most, as in the HPD paper."""
CALIBRATION = 5_000
"""Training sentences that a quantiser is calibrated on at most: 1,000 instead of 20,000 moved STS-B by 0.02 at most."""
CODEBOOK_ROWS = 20_000
"""Training sentences that product codes are fitted on at most: 78 for each of 256 centroids. With 5,000 the STS average of
heads of 32 dimensions in 8 bytes was 0.4 lower."""
_KEY = b"distilbench sentences 0"  # the seed

T = TypeVar("T")
Labelled = tuple[str, str]
"""A sentence, and its source."""


def fixed_sample(items: Iterable[T], limit: int | None) -> list[T]:
    """`limit` of the items, drawn with a fixed seed; all of them, in their order, where there are no more or it is None."""
    everything = list(items)
    if limit is None or len(everything) <= limit:
        return everything
    return random.Random(0).sample(everything, limit)


def draw_evenly(labelled: Iterable[Labelled], limit: int | None) -> tuple[list[str], dict[str, list[str]]]:
    """At most `limit` distinct sentences (None: all), as many of each source as far as it has them.

    Returns the sentences in the order in which they came, and those of each source. A source that has fewer than its share
    gives all it has, and the others share the rest. A sentence of two sources is drawn once.

    Memory: `limit` sentences of each source.
    """
    limit = sys.maxsize if limit is None else limit
    reservoirs: dict[str, Reservoir] = {}
    for arrival, (sentence, source) in enumerate(labelled):
        if not any(sentence in other.drawn for name, other in reservoirs.items() if name != source):
            reservoirs.setdefault(source, Reservoir(limit)).add(arrival, sentence)
    sources, left = dict[str, list[tuple[int, str]]](), limit
    by_size = sorted(reservoirs, key=lambda source: (len(reservoirs[source].drawn), source))
    for position, source in enumerate(by_size):
        share = -(-left // (len(by_size) - position))  # rounded up, so that the limit is reached
        sources[source] = sorted(reservoirs[source].first(share))
        left -= len(sources[source])
    drawn = sorted(pair for of_source in sources.values() for pair in of_source)
    return [text for _, text in drawn], {source: [text for _, text in sources[source]] for source in sorted(sources)}


class Reservoir:
    """At most `limit` distinct sentences of those added.

    Reservoir sampling by random keys: a sentence's key is a keyed hash of its text, and the `limit` smallest stay. So a
    sentence is drawn with the same probability however often it occurs, and which are drawn does not depend on the order.
    """

    def __init__(self, limit: int) -> None:
        self.drawn: set[str] = set()
        self._limit = limit
        self._heap: list[tuple[int, int, str]] = []  # a heap whose first has the largest key: (-key, arrival, sentence)

    def add(self, arrival: int, sentence: str) -> None:
        """Add the sentence that came as number `arrival`."""
        if sentence in self.drawn or self._limit <= 0:
            return
        key = int.from_bytes(hashlib.blake2b(sentence.encode(), digest_size=16, key=_KEY).digest(), "big")
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, (-key, arrival, sentence))
        elif key < -self._heap[0][0]:
            self.drawn.remove(heapq.heapreplace(self._heap, (-key, arrival, sentence))[2])
        else:
            return
        self.drawn.add(sentence)

    def first(self, count: int) -> list[tuple[int, str]]:
        """The arrivals and sentences of the `count` smallest keys."""
        return [(arrival, sentence) for _, arrival, sentence in heapq.nlargest(count, self._heap)]


def sample(train: Rows) -> Rows:
    """The rows that statistics of the teacher's embeddings are taken from: all, or a fixed sample of `SAMPLE`."""
    if len(train) <= SAMPLE:
        return train
    return np.sort(np.random.default_rng(0).choice(train, SAMPLE, replace=False))


def calibration_rows(train: Rows, count: int | None = None) -> Rows:
    """The training rows that quantisers are calibrated on: all, or `count` of them (None: `CALIBRATION`), evenly
    spread."""
    rows = sample(train)
    return rows[np.linspace(0, len(rows) - 1, min(CALIBRATION if count is None else count, len(rows))).astype(np.int64)]
