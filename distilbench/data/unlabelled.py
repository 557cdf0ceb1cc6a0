"""Unlabelled training sentences: from streams, without those that a dev or test set asks about, at most so many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from distilbench.data.reservoir import draw_distinct
from distilbench.data.text import TextStream


@dataclass(frozen=True)
class Drawn:
    """The sentences drawn, of `clean` rows that may be trained on; `dropped` rows are text of dev or test sets."""

    sentences: list[str]
    clean: int
    dropped: int


def draw(streams: Iterable[Iterable[str]], evaluation: Collection[str], limit: int | None) -> Drawn:
    """At most `limit` distinct sentences of all streams together, none of `evaluation`; None: all.

    Raises:
        InputError: as reading a stream does.
    """
    rows = dropped = 0

    def clean() -> Iterator[str]:
        nonlocal rows, dropped
        for text in chain.from_iterable(streams):
            if text in evaluation:
                dropped += 1
            else:
                rows += 1
                yield text

    drawn = draw_distinct(clean(), limit)
    return Drawn(drawn, rows, dropped)


def only_text(stream: TextStream) -> Iterator[str]:
    """The sentences of a stream without their numbers."""
    return (text for _, text in stream)
