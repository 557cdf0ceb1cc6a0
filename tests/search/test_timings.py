"""What a sweep notes of its stages."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched import record

from distilbench.events import Event
from distilbench.machine import GPU_PEAK, PEAK
from distilbench.records import Rung, TrialRecord
from distilbench.stage_times import StageTimes, StageTiming, read_timings

DRIVER_MB = 512.0


def trial(number: int, *peaks: float) -> TrialRecord:
    metrics = [{PEAK: peak, GPU_PEAK: 2 * peak} for peak in peaks]
    rungs = [Rung(rung=i, step=i, objective=None, metrics=of_rung) for i, of_rung in enumerate(metrics)]
    return record(number, state="FAIL", objective=None, rungs=rungs)


@pytest.fixture(autouse=True)
def no_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process had pools for which no run was there."""
    monkeypatch.setattr("distilbench.stage_times._pools", [])
    monkeypatch.setattr("distilbench.stage_times.peak_mb", lambda: DRIVER_MB)


def test_stages_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("distilbench.stage_times.time.monotonic", lambda: now[0])
    times = StageTimes(tmp_path, workers=3)
    now[0] = 110.0
    times(Event("stage", "search"))
    for number in range(4):
        times(Event("finished", record=trial(number, 100.0, 700.0 - number)))
    now[0] = 140.0
    times(Event("stage", "confirm"))
    times(Event("finished", record=trial(1, 900.0)))
    now[0] = 145.0
    times(Event("stage", "score"))
    now[0] = 147.5
    times(Event("stage", "done"))
    times(Event("close"))
    assert read_timings(tmp_path) == [
        StageTiming(
            stage="search", seconds=30.0, count=4, workers=3, driver_mb=DRIVER_MB, worker_mb=700.0, gpu_mb=1400.0
        ),
        StageTiming(
            stage="confirm", seconds=5.0, count=1, workers=3, driver_mb=DRIVER_MB, worker_mb=900.0, gpu_mb=1800.0
        ),
        StageTiming(stage="score", seconds=2.5, workers=3, driver_mb=DRIVER_MB),
    ]
