"""A sweep on a console: redrawn in place on a terminal, a line per finished trial elsewhere; `progress.json`."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from watched import failed, heard, record, report, tally_of

from distilbench.progress.console import (
    LOG,
    FinishedLines,
    LiveTable,
    ProgressFile,
    RunLog,
    duration,
    finished_line,
    on_console,
)
from distilbench.records import TrialRecord


def terminal(height: int = 30) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=110, height=height, soft_wrap=True, _environ={"TERM": "xterm"}
    )


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue()).replace("\r", "")


def last_frame(console: Console, run: str) -> str:
    return text(console).rpartition(f"{run}: ")[2]


def tell(watcher: Any) -> None:
    """Four trials: one runs, one of each end."""
    watcher.stage("search")
    for number in range(4):
        watcher.started(number, {"output_dim": 32})
    watcher.progressed(0, report(50, rung=1, objective=-1.25, dev_score=78.75))
    watcher.finished(record(1, objective=1.5))
    watcher.finished(record(2, state="PRUNED", step=50, objective=-3.0))
    watcher.finished(failed(3, "loss is nan [bold]after[/bold] 7 steps"))


def test_no_terminal_gets_a_line_for_each_finished_trial(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), soft_wrap=True)
    show = on_console(tally_of(tmp_path, earlier=(record(9),)), console)
    assert isinstance(show, FinishedLines)
    watcher = heard(show)
    tell(watcher)
    watcher.finished(record(1, confirms=True))
    watcher.stage("done")
    watcher.close()
    assert text(console).splitlines() == [
        "[  2/24] trial 1   128 bytes   d=32   float32 COMPLETE after 450 steps: dev 81.50 (+1.50 to PCA)",
        "[  3/24] trial 2   128 bytes   d=32   float32 PRUNED   after 50 steps: dev 77.00 (-3.00 to PCA)",
        "[  4/24] trial 3   128 bytes   d=32   float32 FAIL     loss is nan [bold]after[/bold] 7 steps",
        "[confirms] trial 1   128 bytes   d=32   float32 COMPLETE after 450 steps: dev 80.50 (+0.50 to PCA)",
    ]


def test_a_terminal_gets_a_table_that_is_redrawn(tmp_path: Path) -> None:
    console = terminal()
    show = on_console(tally_of(tmp_path / "my-run"), console)
    assert isinstance(show, LiveTable)
    watcher = heard(show)
    tell(watcher)
    watcher.close()
    frame = last_frame(console, "my-run")
    assert frame.startswith("mcr2, search; 4 trials at once")
    assert "3 of 24 trials finished (1 COMPLETE, 1 PRUNED, 1 FAIL), 1 running" in frame
    assert re.search(
        r"^ +0 +128 +32 +1 +50/450 +10\.0 +0\.25 +78\.75 +-1\.25$", frame.replace("  \n", "\n"), re.MULTILINE
    )
    assert re.search(r"^ *128 +32 +float32 +1 +450 +81\.50 +\+1\.50", frame, re.MULTILINE)
    assert re.search(r" spent, about [\d:]+ (s|min|h) left, until (\d{4}-\d\d-\d\d )?\d\d:\d\d", frame)
    assert "10.0 steps/s in all" in frame
    # the failure once above the table, where it stays, and once among the last of each later frame
    assert text(console).count("FAIL     loss is nan [bold]after[/bold] 7 steps") >= 2


def test_the_log_of_a_run_has_a_line_for_each_trial_and_stage(tmp_path: Path) -> None:
    tell(heard(ProgressFile(tally_of(tmp_path))))
    RunLog(tmp_path).line("scored a row\n")
    lines = (tmp_path / LOG).read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", line)[:24] for line in lines] == [
        "stage search",
        "[  1/24] trial 1   128 b",
        "[  2/24] trial 2   128 b",
        "[  3/24] trial 3   128 b",
        "scored a row",
    ]
    RunLog(tmp_path / "nowhere").line("a run's folder that is gone does not end it")


def test_the_picture_fits_the_terminal(tmp_path: Path) -> None:
    console = terminal(height=20)
    watcher = heard(LiveTable(tally_of(tmp_path / "my-run"), console))
    for number in range(60):
        watcher.started(number, {"output_dim": 32})
    for number in range(100, 104):
        watcher.finished(record(number, dim=number))
    watcher.close()
    frame = last_frame(console, "my-run").rstrip("\n").splitlines()
    assert len(frame) <= 20
    shown = sum(bool(re.match(r" +\d+ +128 +32 +0 ", line)) for line in frame)
    assert shown >= 3 and f"and {60 - shown} more" in "\n".join(frame)


def test_lines_of_what_is_not_common() -> None:
    # a pair task's objective is not the distance to PCA; a collapsed trial has rungs and a reason
    assert finished_line(record(1, objective=84.0, rungs=record(1).rungs), 1, 2).endswith(
        "dev 80.50 (+0.50 to PCA), objective 84.00"
    )
    collapsed = record(2, state="FAIL", reason="collapsed: effective rank 1.1", step=50)
    assert finished_line(collapsed, 1, 2).endswith(
        "after 50 steps: dev 80.50 (+0.50 to PCA) collapsed: effective rank 1.1"
    )
    several = record(3, values={"quality": 81.25, "bytes": 128})
    assert finished_line(several, 1, 2).endswith("(+0.50 to PCA), quality 81.25, bytes 128")
    assert [duration(s) for s in (0.4, 59, 61, 7260, -3)] == ["0 s", "59 s", "1:01 min", "2:01:00 h", "0 s"]


def coded(number: int, dim: int, bits: int, **changes: Any) -> TrialRecord:
    return record(number, dim=dim, params={"output_dim": dim, "bits": bits}, **changes)


def test_trials_for_a_code_say_their_bytes(tmp_path: Path) -> None:
    line = finished_line(coded(1, 32, 4), 1, 2)
    assert re.search(r"trial 1   16 bytes    d=32   int4    COMPLETE after 450 steps: dev 80\.50", line)
    assert "1 byte " in finished_line(coded(1, 8, 1), 1, 2)
    assert "trial 1   128 bytes   d=32   float32 COMPLETE" in finished_line(record(1), 1, 2)
    console = terminal()
    watcher = heard(LiveTable(tally_of(tmp_path / "my-run"), console))
    watcher.started(7, {"output_dim": 64, "bits": 1})
    for found in (coded(0, 32, 4, objective=1.0), coded(1, 16, 8, objective=2.0), coded(2, 16, 1, objective=0.5)):
        watcher.finished(found)
    watcher.close()
    frame = last_frame(console, "my-run")
    assert re.search(r"^ *trial +bytes +d +rung", frame, re.MULTILINE) and re.search(
        r"^ +7 +8 +64 +0 ", frame, re.MULTILINE
    )
    assert re.search(r"^bytes +d +code +best trial", frame, re.MULTILINE)
    assert re.search(r"^ +2 +16 +binary +2 ", frame, re.MULTILINE)
    assert re.search(r"^ +16 +16 +int8 +1 +450 +82\.00 +\+2\.00", frame, re.MULTILINE)  # above trial 0 of as many bytes


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
