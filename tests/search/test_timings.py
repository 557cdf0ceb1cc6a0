"""What a sweep notes of its stages, and a plan from the times of a finished one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from watched import record

from distilbench.commands.plan import plan
from distilbench.errors import InputError
from distilbench.events import Event
from distilbench.machine import GPU_PEAK, PEAK
from distilbench.records import Rung, TrialRecord, append_records
from distilbench.settings.commands import PlanSettings
from distilbench.stage_times import StageTimes, StageTiming, keep, keep_start, note_pool, read_timings, timed_stage
from distilbench.storage.files import write_json


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """4 trials of 10 steps by 2 workers in 20 s."""
    monkeypatch.setattr("distilbench.stage_times._pools", [])
    write_json(tmp_path / "config.json", {"budget.steps": 10})
    append_records(tmp_path / "trials.jsonl", [record(number) for number in range(4)])
    keep(tmp_path, StageTiming(stage="start", seconds=5), StageTiming(stage="prepare", seconds=8, count=1000))
    keep(
        tmp_path,
        StageTiming(stage="search", seconds=12, count=3, workers=2),
        StageTiming(stage="search", seconds=8, count=1, workers=2),
    )
    keep(tmp_path, StageTiming(stage="confirm", seconds=4, count=2, workers=2), StageTiming(stage="score", seconds=3))
    return tmp_path


def planned(run: Path, **wanted: Any) -> dict[str, Any]:
    return plan(PlanSettings(finished=str(run), **wanted), run, Console(quiet=True))


@pytest.mark.parametrize(
    ("wanted", "changed"),
    [
        ({}, {}),
        ({"trials": 40}, {"search": 200}),
        ({"trials": 40, "workers": 8}, {"search": 50, "confirm": 1}),
        ({"steps": 30}, {"search": 60, "confirm": 12}),
        ({"sentences": 4000}, {"prepare": 32}),
    ],
)
def test_stages_scale_with_what_they_depend_on(run: Path, wanted: dict[str, int], changed: dict[str, float]) -> None:
    took = {"start": 5, "prepare": 8, "search": 20, "confirm": 4, "score": 3}
    found = planned(run, **wanted)
    assert {stage["name"]: stage["took_s"] for stage in found["stages"]} == took
    assert {stage["name"]: stage["planned_s"] for stage in found["stages"]} == took | changed
    assert found["seconds"] == sum((took | changed).values()) and found["dollars"] is None


def test_a_run_without_a_search_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--from"):
        planned(tmp_path)


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


def test_a_pool_of_another_run_is_not_this_ones(tmp_path: Path) -> None:
    note_pool(StageTiming(stage="Teacher encoding", seconds=9.0))
    keep_start(tmp_path, 2.0)
    with timed_stage(tmp_path, "prepare"):
        note_pool(StageTiming(stage="Tokens", seconds=1.0))
    assert [t.stage for t in read_timings(tmp_path)] == ["start", "Tokens", "prepare"]
