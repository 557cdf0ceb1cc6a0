"""`distilbench status`: how far a run is, from its folder alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from watched import failed, heard, record, report, tally_of

from distilbench.cli import app
from distilbench.commands.status import run_statuses
from distilbench.progress.console import ProgressFile
from distilbench.progress.tally import Tally
from distilbench.records import ScoreRecord, append_records
from distilbench.storage.files import write_json

ROOT = Path(__file__).resolve().parents[2]


def begin(folder: Path, **more: Any) -> Path:
    """A sweep's folder as its driver leaves it before anything is prepared."""
    write_json(folder / "config.json", {"corpus_fingerprint": "f", "method": "mcr2", "trials": 24, **more})
    return folder


def searching(folder: Path) -> Tally:
    """A sweep in which one trial runs and three have ended; what its driver would tell the watcher."""
    begin(folder)
    watcher = heard(ProgressFile(tally_of(folder)))
    watcher.stage("search")
    watcher.started(7, {"output_dim": 64})
    watcher.progressed(7, report(120, rung=1, objective=-0.75, dev_score=79.25))
    for found in (record(0), record(1, dim=8, state="PRUNED", step=50), failed(2, "loss is nan [at] step 7")):
        append_records(folder / "trials.jsonl", [found])
        watcher.finished(found)
    watcher.close()
    return watcher


def score(role: str, name: str) -> ScoreRecord:
    named = {"record_id": f"{role}-{name}", "label": name, "role": role, "method": name}
    empty = {
        "teacher": "t",
        "start": "",
        "trial": None,
        "hyperparameters": {},
        "scores": [],
        "indexes": [],
        "model": "",
    }
    corpus = {"corpus": "c", "corpus_fingerprint": "f", "demonstration": False}
    sizes = {"dim": 32, "bytes_per_vector": 128, "parameters": 1, "seed": 0}
    return ScoreRecord(run="r", provenance=record(0).provenance, **named, **empty, **corpus, **sizes)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["status", *map(str, arguments)])


def shown(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_a_run_at_work(tmp_path: Path) -> None:
    searching(tmp_path / "r")
    out = shown(tmp_path / "r")
    assert f"mcr2, stage search; its driver is at work (process {os.getpid()}), last heard of " in out
    assert "3 of 24 trials finished (1 COMPLETE, 1 PRUNED, 1 FAIL), 1 running" in out
    assert " spent, about " in out and "10.0 steps/s in all" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["7", "256", "64", "1", "120/450", "10.0", "0.25", "79.25", "-0.75"] in rows
    assert ["128", "32", "float32", "0", "450", "80.50", "+0.50"] in rows
    assert "[  3/24] trial 2   128 bytes   d=32   float32 FAIL     loss is nan [at] step 7" in out
    assert "confirmations" not in out and "rows scored" not in out and "interrupted" not in out


def test_a_killed_driver(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path; from test_status import searching\n"
        "searching(Path(sys.argv[1])); print('told', flush=True); input()"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "r"), *map(str, Path(__file__).parents[:2])],
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with driver:
        assert driver.stdout and driver.stdout.readline() == "told\n"
        assert f"at work (process {driver.pid})" in shown(tmp_path / "r")
        driver.kill()
    out = shown(tmp_path / "r")
    assert f"stopped in stage search: its driver (process {driver.pid}) is gone, last heard of" in out
    assert "interrupted: trials 7; the command" in out and "0 running" in out and " left" not in out


def test_a_finished_run_with_confirmations_and_rows(tmp_path: Path) -> None:
    watcher = searching(tmp_path / "r")
    append_records(tmp_path / "r" / "trials.jsonl", [record(0, seed=1, confirms=True), record(0, confirms=True)])
    rows = [score("teacher", "t"), score("baseline", "pca"), score("student", "mcr2"), score("student", "mcr2")]
    append_records(tmp_path / "r" / "scores.jsonl", rows)
    watcher.stage("done")
    out = shown(tmp_path / "r")
    assert "mcr2, done " in out and "3 of 24 trials finished" in out and " left" not in out
    assert "2 confirmations\n" in out
    assert "3 rows scored (1 teacher, 1 baseline, 1 student)" in out  # the student's later record replaces the earlier
    assert shown(tmp_path / "r", "--watch").splitlines()[1:] == out.splitlines()[1:]  # and ends


def test_several_methods_in_one_folder(tmp_path: Path) -> None:
    searching(tmp_path / "both" / "mcr2")
    begin(tmp_path / "both" / "hpd", method="hpd")
    write_json(tmp_path / "both" / "model" / "config.json", {"model_type": "bert"})
    out = shown(tmp_path / "both")
    assert out.index("both/hpd: hpd, no trial begun") < out.index("both/mcr2: mcr2, stage search")
    assert "model" not in out
    assert [s.folder.name for s in run_statuses(tmp_path / "both")] == ["hpd", "mcr2"]
    begin(tmp_path / "both", method="several")
    assert [s.method for s in run_statuses(tmp_path / "both")] == ["several", "hpd", "mcr2"]


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda folder: None, "no such folder; expected that of a run"),
        (lambda folder: folder.write_text("x"), "no such folder"),
        (lambda folder: folder.mkdir(), "no run's config.json in it or in its subfolders"),
        (lambda folder: write_json(folder / "config.json", {"model_type": "bert"}), "no run's config.json"),
        (
            lambda folder: write_json(begin(folder) / "progress.json", {"stage": 1}),
            "progress.json: run: Field required",
        ),
        (lambda folder: (begin(folder) / "progress.json").write_text("{"), "progress.json: the file: Invalid JSON"),
        (lambda folder: (begin(folder) / "trials.jsonl").write_text("{}\n"), "trials.jsonl, row 1"),
    ],
)
def test_what_is_no_run_is_named(tmp_path: Path, make: Any, wanted: str) -> None:
    make(tmp_path / "r")
    result = invoke(tmp_path / "r")
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"error: {tmp_path / 'r'}") and wanted in result.stderr


def test_it_loads_nothing_heavy(tmp_path: Path) -> None:
    searching(tmp_path / "r")
    code = (
        "import sys; from distilbench.cli import app\n"
        "heavy = ('ray', 'torch', 'optuna', 'transformers', 'pandas')\n"
        "try:\n    app(['status', sys.argv[1]])\n"
        "finally:\n    print('loaded', *(m for m in heavy if m in sys.modules))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "r")]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    assert "stage search" in done.stdout and done.stdout.splitlines()[-1] == "loaded"
