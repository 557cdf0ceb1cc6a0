"""Sampling a stream: fixed, distinct, uniform, and in the memory of the sample."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import pytest

from distilbench.data.sampling import draw_evenly, fixed_sample

TEXTS = [f"sentence {i}" for i in range(2000)]


def reservoir(texts: Iterable[str], limit: int) -> list[str]:
    """A draw from one source."""
    return draw_evenly(((text, "") for text in texts), limit)[0]


def test_a_reservoir_does_not_depend_on_order_or_repetition() -> None:
    drawn = reservoir(TEXTS, 100)
    shuffled = TEXTS * 3
    random.Random(1).shuffle(shuffled)
    assert len(set(drawn)) == 100
    assert set(reservoir(shuffled, 100)) == set(drawn)
    assert drawn == sorted(drawn, key=TEXTS.index)


def test_a_smaller_reservoir_is_part_of_a_larger_one() -> None:
    assert set(reservoir(TEXTS, 50)) < set(reservoir(TEXTS, 60))


def test_every_place_of_the_stream_is_drawn_alike() -> None:
    counts = Counter(TEXTS.index(text) // 500 for text in reservoir(TEXTS, 1000))
    assert all(abs(counts[quarter] - 250) < 50 for quarter in range(4)), counts  # 4.5 standard deviations


@pytest.mark.parametrize("limit", [5, 6])
def test_where_there_are_no_more_all_are_kept_once_in_order(limit: int) -> None:
    assert reservoir(["b", "a", "b", "c", "d", "a", "e"], limit) == ["b", "a", "c", "d", "e"]


def test_nothing_asked_for_nothing_drawn() -> None:
    assert reservoir(TEXTS, 0) == fixed_sample(TEXTS, 0) == []


def test_memory_is_that_of_the_sample() -> None:
    class Counted(str):
        """A sentence that knows how many of its kind there are."""

        alive = 0
        most = 0

        def __init__(self, _: str) -> None:
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

        def __del__(self) -> None:
            Counted.alive -= 1

    def stream() -> Iterator[str]:
        for text in TEXTS:
            yield Counted(text)

    assert len(reservoir(stream(), 20)) == 20
    assert Counted.most < 60


def test_sources_share_a_draw_and_a_small_one_gives_all_it_has() -> None:
    labelled = [(text, "large" if i >= 100 else "small" if i >= 5 else "tiny") for i, text in enumerate(TEXTS)]
    drawn, sources = draw_evenly(labelled, 65)
    assert {source: len(texts) for source, texts in sources.items()} == {"large": 30, "small": 30, "tiny": 5}
    assert sources["tiny"] == TEXTS[:5] and sorted(drawn) == sorted(chain(*sources.values()))
    assert len(set(drawn)) == len(drawn) == 65 and drawn == sorted(drawn, key=TEXTS.index)
    shuffled = labelled[:]
    random.Random(1).shuffle(shuffled)
    assert set(draw_evenly(shuffled, 65)[0]) == set(drawn)
    assert draw_evenly(labelled, 10**6)[0] == draw_evenly(labelled, None)[0] == TEXTS
    copies = [(text, "copies") for text, _ in labelled]
    twice = draw_evenly([*labelled, *copies], 65)[0]
    assert len(set(twice)) == len(twice) == 65
