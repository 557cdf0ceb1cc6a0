"""`progress.json`: whole at any moment, at most once a second, and at once when the stage changes."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from watched import heard, record, report, tally_of

from distilbench.progress import file as progress_file
from distilbench.progress.file import ProgressFile


def test_it_is_there_from_the_start_and_tells_the_stage_at_once(tmp_path: Path) -> None:
    watcher = heard(ProgressFile(tally_of(tmp_path / "r", deadline=5e9)))
    kept = json.loads((tmp_path / "r" / "progress.json").read_text())
    assert (kept["stage"], kept["wanted"], kept["deadline"], kept["running"]) == ("starting", 24, 5e9, [])
    for name in ("search", "confirm", "score", "done"):
        watcher.stage(name)
        assert json.loads((tmp_path / "r" / "progress.json").read_text())["stage"] == name
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == ["log.txt", "progress.json"]


def test_it_is_written_once_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[dict[str, object]] = []
    monkeypatch.setattr(progress_file, "write_json", lambda path, value: writes.append(value))
    now = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watcher = heard(ProgressFile(tally_of(tmp_path)))
    watcher.started(0, {"output_dim": 32})
    watcher.progressed(0, report(5, loss=math.inf))
    assert len(writes) == 1
    now += 1.0
    watcher.progressed(0, report(10, loss=math.inf))
    assert len(writes) == 2
    watcher.finished(record(0))
    assert len(writes) == 2
    watcher.close()
    assert len(writes) == 3
    assert '"step": 10' in json.dumps(writes[1], allow_nan=False)
    assert writes[2]["running"] == [] and writes[2]["counts"] == {"COMPLETE": 1, "PRUNED": 0, "FAIL": 0}


def test_storage_that_is_gone_does_not_end_what_it_shows(tmp_path: Path) -> None:
    watcher = heard(ProgressFile(tally_of(tmp_path / "r")))
    (tmp_path / "r").rename(tmp_path / "aside")
    watcher.stage("search")
    watcher.close()
    assert not (tmp_path / "r").exists()  # nor is a folder made where the storage comes back
    (tmp_path / "aside").rename(tmp_path / "r")
    watcher.stage("confirm")
    assert json.loads((tmp_path / "r" / "progress.json").read_text())["stage"] == "confirm"
