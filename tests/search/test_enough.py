"""When a search is over: what its remaining trials can be expected to add."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from simulated import Simulation, content, in_memory, space_of
from test_transfer import ended

from distilbench.search.enough import LEAST, expected_best, expected_gain, why_enough


def test_the_expected_best_of_some_of_the_values() -> None:
    values = [3.0, 1.0, 2.0, 7.0, 7.0]
    for count in range(1, 6):
        every = [max(drawn) for drawn in itertools.combinations(values, count)]
        assert expected_best(values, count) == pytest.approx(sum(every) / len(every))


def test_the_expected_gain_of_a_doubling() -> None:
    """Of an exponential distribution the expected best of n is H(n): a doubling adds the logarithm of 2."""
    rng = np.random.default_rng(0)
    gains = [expected_gain(list(rng.exponential(size=40)), 40) for _ in range(400)]
    assert np.mean(gains) == pytest.approx(math.log(2), rel=0.1)
    uniform = [expected_gain(list(rng.uniform(size=40)), 40) for _ in range(400)]
    assert np.mean(uniform) > 1 / 41 - 1 / 81, "of a bounded one it is an upper bound"
    assert expected_gain([1.0, 1.0, 1.0], 10) == pytest.approx(0, abs=1e-12)


def test_it_ends_where_no_dimension_can_gain(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    flat = [ended(n, (4, 8)[n % 2], [0.0, 0.0, 0.01 * (n % 3)]) for n in range(2 * LEAST)]
    why = why_enough(flat, 16, space, 0.1)
    assert why.startswith("the other 16 can be expected to add 0.0") and why.endswith("below --enough 0.1")
    assert why_enough(flat, 16, space, 0.001) == ""
    assert why_enough(flat[:-1], 16, space, 0.1) == "", "a dimension has too few"
    rising = [*flat[:-1], ended(15, 8, [0.0, 0.0, 5.0])]
    assert why_enough(rising, 16, space, 0.1) == "", "one dimension may still gain"
    assert why_enough(rising, 16, space, 50.0)
    failed = [*flat[:-1], ended(15, 8, [0.0], "FAIL")]
    assert why_enough(failed, 16, space, 0.1) == "", "one without a student does not count"


@pytest.mark.parametrize("stopping", ["none", "halving"])
def test_the_same_end_for_any_number_of_workers_and_after_a_kill(tmp_path: Path, stopping: str) -> None:
    space = space_of(tmp_path, searcher="random", stopping=stopping)
    contents, ends = set(), set()
    for workers in (1, 3, 8):
        one = Simulation(in_memory(), space, wanted=80, lag=8, enough=1.5, outcome=lambda params: (3, "", False))
        searcher = one.sit(workers, speeds=workers)
        contents.add("\n".join(content(one.study)))
        ends.add(searcher.enough)
    assert len(contents) == 1 and len(ends) == 1
    count = len(one.study.trials)
    assert 2 * LEAST <= count < 80 and f"the other {80 - count} can be expected" in ends.pop()
    again = one.sit(4)
    assert again.enough and again.remaining == 0 and len(one.study.trials) == count, (
        "nothing is begun by a repeated command"
    )
    one.enough = None
    assert one.sit(4).enough == "" and len(one.study.trials) == 80, "without the option it goes on"
