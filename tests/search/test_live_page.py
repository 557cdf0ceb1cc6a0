"""The page of a sweep at work: there with the first trial, not written all the time, never in the way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from watched import heard, record, tally_of

from distilbench.events import Event
from distilbench.progress.console import ProgressFile
from distilbench.records import append_records
from distilbench.reporting.page import EVERY_S, LivePage
from distilbench.storage.files import write_json


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that has begun."""
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    write_json(folder / "config.json", {"searcher": "tpe", "budget.steps": 450})
    return folder


def test_it_shows_trials_settings_and_stage_before_any_score(run: Path, tmp_path: Path) -> None:
    page = LivePage(tmp_path / "report", "r", [run])
    heard(ProgressFile(tally_of(run))).stage("search")
    page(Event("stage", "search"))
    assert not (tmp_path / "report").exists()  # nothing has ended
    append_records(run / "trials.jsonl", [record(0)])
    page.due = 0.0
    page(Event("finished", record=record(0)))
    index = (tmp_path / "report" / "index.html").read_text()
    assert "is not done: stage “search”, 1 of 24 trials have ended" in index
    [own] = (tmp_path / "report" / "runs").glob("*.html")
    assert "tpe" in own.read_text() and "1 trial:" in own.read_text()


def test_it_is_written_now_and_then_and_when_a_stage_begins(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    append_records(run / "trials.jsonl", [record(0)])
    page = LivePage(tmp_path / "report", "r", [run])
    page(Event("finished", record=record(0)))

    def trials() -> str:
        index = (tmp_path / "report" / "index.html").read_text()
        return index.split("<span>")[1].split("<")[0]

    assert trials() == "1 trial"
    append_records(run / "trials.jsonl", [record(1)])
    page(Event("finished", record=record(1)))
    assert trials() == "1 trial"
    now += EVERY_S
    page(Event("finished", record=record(1)))
    assert trials() == "2 trials"
    append_records(run / "trials.jsonl", [record(2)])
    page(Event("stage", "confirm"))
    assert trials() == "3 trials"
