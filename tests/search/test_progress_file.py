"""`progress.json`: whole at any moment, at most once a second, and at once when the stage changes."""

from __future__ import annotations

import json
from pathlib import Path

from watched import heard, tally_of

from distilbench.progress.console import ProgressFile


def test_it_is_there_from_the_start_and_tells_the_stage_at_once(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".progress.json.killed.tmp").touch()
    watcher = heard(ProgressFile(tally_of(tmp_path / "r", deadline=5e9)))
    kept = json.loads((tmp_path / "r" / "progress.json").read_text())
    assert (kept["stage"], kept["wanted"], kept["deadline"], kept["running"]) == ("starting", 24, 5e9, [])
    for name in ("search", "confirm", "score", "done"):
        watcher.stage(name)
        assert json.loads((tmp_path / "r" / "progress.json").read_text())["stage"] == name
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == ["log.txt", "progress.json"]


def test_storage_that_is_gone_does_not_end_what_it_shows(tmp_path: Path) -> None:
    watcher = heard(ProgressFile(tally_of(tmp_path / "r")))
    (tmp_path / "r").rename(tmp_path / "aside")
    watcher.stage("search")
    watcher.close()
    assert not (tmp_path / "r").exists()  # nor is a folder made where the storage comes back
    (tmp_path / "aside").rename(tmp_path / "r")
    watcher.stage("confirm")
    assert json.loads((tmp_path / "r" / "progress.json").read_text())["stage"] == "confirm"
