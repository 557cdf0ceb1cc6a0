"""The clock of a time budget, what is a duration, and how much text is read within it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from samples import make_data, random_sentences, write_tsv
from watched import failed, record

from distilbench.commands.corpus import load_corpus
from distilbench.commands.text_budget import limits_within_budget
from distilbench.data.requirements import NO_REQUIREMENTS
from distilbench.prepare.encode import CorpusEncoding
from distilbench.progress import clock as timing
from distilbench.progress.clock import Clock
from distilbench.records import Rung, TrialRecord
from distilbench.settings.sweep import SweepSettings, seconds


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
    with clock.scoring():
        now.at += 2
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
    clock.late_rows = 4  # what is scored after all else has its time
    assert clock.search_end(6, 4) == pytest.approx(2000 - 1.5 * (20 + 120) - 20)
    assert clock.training_end(6) == pytest.approx(2000 - 1.5 * 20 - 5)
    assert clock.scoring_end == pytest.approx(2000 - 1.5 * 8 - 5) and clock.late_end == 1995
    assert clock.peers_end == now.at + 100
    now.at = 1950
    assert clock.peers_end == 1995
    assert Clock(None).peers_end == math.inf


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


def test_what_the_teacher_takes_is_shared_by_the_methods(now: Now) -> None:
    clock = Clock(300.0)
    first = clock.part(3)
    with first.scoring():
        now.at += 60
    assert first.row_s == 60 and first.end == 1140  # 20 of its own 100, and 80 seconds are left as for the others
    clock.row_s, now.at = 60, 1140
    second = clock.part(2)
    with second.scoring():  # it was taken over
        now.at += 1
    assert second.row_s == 60 and second.end == 1220.5
    alone = Clock(300.0)
    with alone.scoring():
        now.at += 60
    assert alone.end == alone.began + 300


def test_a_search_without_a_student_takes_time_of_the_methods_after_it(now: Now) -> None:
    clock = Clock(300.0)
    first = clock.part(3)
    with first.scoring():
        now.at += 30
    assert first.search_end(10) < first.first_end(10) == first.end == 1120
    now.at = 1130  # its first students were there late
    first.keep_half()
    assert first.end == first.scoring_end == 1130 + 60 + 15
    assert first.training_end(10) == 1130 + 30, "what the search has trained is saved whatever scoring takes"
    now.at = 1190
    assert clock.part(2).end == 1190 + 55
    last = clock.part(1)
    assert last.first_end(10) == last.search_end(10), "nobody comes after it"
    now.at = 1290
    last.keep_half()
    assert last.end == 1300 and last.training_end(10) == 1295 and last.scoring_end < 1300


# Text


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with more documents, sentences and pairs than a budget brings them down to."""
    folder = make_data(tmp_path_factory.mktemp("searched") / "data", pairs=1500, sentences=6000)
    rows: list[list[object]] = [[f"d{i}", text, 0] for i, text in enumerate(random_sentences(2500, seed=9))]
    write_tsv(folder / "quora" / "corpus.tsv", ["doc_id", "text", "is_beir_query"], rows)
    return folder


def limits(monkeypatch: pytest.MonkeyPatch, store: Path, data: Path, rate: float, **asked: Any) -> dict[str, int]:
    """The limits of text for a data folder, with a teacher that encodes `rate` sentences a second."""
    monkeypatch.setattr(CorpusEncoding, "rate", lambda self, sentences: rate)
    settings = SweepSettings(method="hpd", data=str(data), store=store, **asked)
    corpus = load_corpus(settings, NO_REQUIREMENTS, Console(quiet=True))
    lower = limits_within_budget(settings, corpus, Console(quiet=True))
    shorter = load_corpus(settings.model_copy(update=lower), NO_REQUIREMENTS, Console(quiet=True))
    assert len(shorter.sentences) < len(corpus.sentences) or not lower
    return lower


def test_a_slow_teacher_reads_less_text_in_a_short_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, searched: Path
) -> None:
    of_rate = functools.partial(limits, monkeypatch, tmp_path, searched)
    assert of_rate(100) == {}, "there is no budget"
    assert of_rate(1000, time_budget="10m") == {}
    assert of_rate(0.1, time_budget="10m") == {"max_sentences": 2000, "max_pairs": 1000, "max_documents": 1000}
    assert of_rate(0.1, time_budget="10m", max_sentences=20_000).keys() == {"max_pairs", "max_documents"}
    slow, fast = (of_rate(rate, time_budget="10m")["max_sentences"] for rate in (80, 83))
    assert 2000 < slow < fast


def test_what_the_sets_take_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, searched: Path) -> None:
    """Where the user asks for all documents, they are counted; where the budget leaves some out, they are not."""
    told: list[int] = []
    for asked in ({}, {"max_documents": 20_000}):
        monkeypatch.setattr(CorpusEncoding, "rate", lambda self, sentences: 0.1)
        settings = SweepSettings(method="hpd", data=str(searched), store=tmp_path, time_budget="10m", **asked)
        corpus, console = load_corpus(settings, NO_REQUIREMENTS, Console(quiet=True)), Console(record=True, width=300)
        limits_within_budget(settings, corpus, console)
        (count,) = re.findall(r"The sets to score on have ([\d,]+) texts", console.export_text())
        told.append(int(count.replace(",", "")))
    assert told[0] < told[1] == len(corpus.scored_rows)


def trial(*rung_seconds: float) -> TrialRecord:
    """A complete trial whose rungs took so long."""
    rungs = [
        Rung(rung=n, step=n, objective=0.0, metrics={"rung_seconds": s}) for n, s in enumerate(rung_seconds, start=1)
    ]
    return record(0).model_copy(update={"rungs": rungs})
