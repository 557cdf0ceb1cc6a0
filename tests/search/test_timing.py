"""The clock of a time budget, and what is a duration."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from watched import failed, record

from distilbench.progress import clock as timing
from distilbench.progress.clock import Clock
from distilbench.records import Rung, TrialRecord
from distilbench.settings.sweep import seconds


class Now:
    """Stands for the clock of the machine."""

    def __init__(self) -> None:
        self.at = 1000.0

    def time(self) -> float:
        return self.at


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[Now]:
    own = Now()
    monkeypatch.setattr(timing.time, "time", own.time)
    yield own


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), (" 2M ", 120), ("1h1m1s", 3661)],
)
def test_durations(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "90", "h", "0s", "-5m", "10x", "1h30", "nans", "infh", "1e999h", "-1h2h", "1_0s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text)


def test_without_a_budget_nothing_ends(now: Now) -> None:
    clock = Clock(None)
    assert clock.search_end(100, 100) == clock.training_end(100) == clock.scoring_end == math.inf
    assert clock.part(3).search_end(1) == math.inf


def test_the_search_ends_before_what_comes_after_it(now: Now) -> None:
    clock = Clock(1000.0)
    with clock.scoring(rows=4):
        now.at += 8
    assert clock.row_s == 2
    clock.finished(trial(10.0, 20.0))
    clock.finished(trial(5.0, 5.0))  # a shorter one
    clock.finished(record(3, state="PRUNED", step=10))
    clock.finished(failed(4, "diverged"))
    assert clock.training_s == 30
    # 6 rows of 2 s, 4 trainings of 30 s, with a margin; workers that start, and the page
    assert clock.search_end(6, 4) == pytest.approx(2000 - 1.5 * (12 + 120) - 20)
    assert clock.training_end(6) == pytest.approx(2000 - 1.5 * 12 - 5)
    assert clock.scoring_end == pytest.approx(1995)


def test_each_method_has_an_equal_share_of_what_is_left(now: Now) -> None:
    clock = Clock(300.0)
    first = clock.part(3)
    assert (first.began, first.end) == (1000, 1100)
    now.at = 1040  # it was done early: the others have more
    second = clock.part(2)
    assert (second.began, second.end) == (1040, 1170)
    now.at = 1250  # it took longer
    assert clock.part(1).end == 1300
    now.at = 1400  # time is over: it hardly begins
    assert 0 < clock.part(1).end - now.at <= 1


def test_what_references_take_is_shared_by_the_methods(now: Now) -> None:
    clock = Clock(300.0)
    first = clock.part(3)
    with first.scoring(rows=4):
        now.at += 60
    assert first.row_s == 15 and first.end == 1140  # 20 of its own 100, and 80 seconds are left as for the others
    clock.row_s, now.at = 15, 1140
    second = clock.part(2)
    with second.scoring(rows=4):  # they were taken over
        now.at += 1
    assert second.row_s == 15 and second.end == 1220.5
    alone = Clock(300.0)
    with alone.scoring(rows=4):
        now.at += 60
    assert alone.end == alone.began + 300


def trial(*rung_seconds: float) -> TrialRecord:
    """A complete trial whose rungs took so long."""
    rungs = [
        Rung(rung=n, step=n, objective=0.0, metrics={"rung_seconds": s}) for n, s in enumerate(rung_seconds, start=1)
    ]
    return record(0).model_copy(update={"rungs": rungs})
