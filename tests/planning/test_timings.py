"""What a sweep notes of its stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.cluster.provenance import provenance
from distilbench.records import TrialRecord
from distilbench.stage_times import StageTimes, Took, note_pool, read_timings, timed_stage


def trial(number: int) -> TrialRecord:
    return TrialRecord(
        run="r",
        number=number,
        state="FAIL",
        reason="x",
        method="pca",
        params={},
        seed=0,
        dim=4,
        objective=None,
        rungs=[],
        provenance=provenance(),
    )


@pytest.fixture(autouse=True)
def no_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process had pools for which no run was there."""
    monkeypatch.setattr("distilbench.stage_times._pools", [])


def test_stages_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("distilbench.stage_times.time.monotonic", lambda: now[0])
    times = StageTimes(tmp_path, workers=3)
    now[0] = 110.0
    times.stage("search")
    for number in range(4):
        times.finished(trial(number))
    now[0] = 140.0
    times.stage("confirm")
    times.finished(trial(1))
    now[0] = 145.0
    times.stage("score")
    now[0] = 147.5
    times.stage("done")
    times.close()
    assert read_timings(tmp_path) == [
        Took(stage="search", seconds=30.0, count=4, workers=3),
        Took(stage="confirm", seconds=5.0, count=1, workers=3),
        Took(stage="score", seconds=2.5, workers=3),
    ]


def test_a_stage_that_fails_is_no_rate(tmp_path: Path) -> None:
    note_pool(Took(stage="Tokens", seconds=4.0, count=100, first_s=1.0))
    with timed_stage(tmp_path, "prepare", 7):
        pass
    with pytest.raises(RuntimeError), timed_stage(tmp_path, "report"):
        raise RuntimeError("no")
    assert [(took.stage, took.count) for took in read_timings(tmp_path)] == [("Tokens", 100), ("prepare", 7)]
