"""Unlabelled training sentences: from streams, without those that a dev or test set asks about, at most so many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from distilbench.data.reservoir import draw_distinct, draw_evenly

Labelled = tuple[str, str]
"""A sentence, and its source."""


@dataclass(frozen=True)
class Drawn:
    """The sentences drawn, of `clean` rows that may be trained on; `dropped` rows are text of dev or test sets.

    `sources`: how many were drawn of each source, where they were drawn evenly from several.
    """

    sentences: list[str]
    clean: int
    dropped: int
    sources: dict[str, int]


def draw(
    streams: Iterable[Iterable[Labelled]], evaluation: Collection[str], limit: int | None, *, evenly: bool = False
) -> Drawn:
    """At most `limit` distinct sentences of all streams together, none of `evaluation`; None: all.

    `evenly`: as many of each source, as far as it has them (`draw_evenly`).

    Raises:
        InputError: as reading a stream does.
    """
    rows = dropped = 0

    def clean() -> Iterator[Labelled]:
        nonlocal rows, dropped
        for text, source in chain.from_iterable(streams):
            if text in evaluation:
                dropped += 1
            else:
                rows += 1
                yield text, source

    if evenly and limit is not None:
        sentences, sources = draw_evenly(clean(), limit)
        return Drawn(sentences, rows, dropped, sources)
    drawn = draw_distinct((text for text, _ in clean()), limit)
    return Drawn(drawn, rows, dropped, {})
