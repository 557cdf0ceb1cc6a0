"""`python -m platform.sweep` and `.compare` as a user runs them, in a folder of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import optuna
import psutil
from driver import door_environment
from typer.testing import CliRunner, Result

from distilbench.cli import app
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.search.study import load_study

ROOT = Path(__file__).resolve().parents[2]


class Command:
    """A command on a small data folder; `run` is the folder that it works in."""

    def __init__(self, kind: str, folder: Path, data: Path, encoder: Path, store: Path, *arguments: str) -> None:
        self.kind, self.folder, self.store, self.run = kind, folder, store, folder / "runs" / "r"
        self.command = [sys.executable, "-m", f"platform.{kind}", *arguments, "--name", "r", "--no-dashboard"]
        self.command += ["--data", str(data), "--teacher", str(encoder), "--cpus", "2"]
        self.command += ["--runs", str(folder / "runs")]
        self.command += ["--store", str(store)]

    def start(self, *more: str) -> subprocess.Popen[str]:
        log = (self.folder / "log.txt").open("a")
        command, env = [*self.command, *more], door_environment()
        # A job in the background of a shell ignores Ctrl-C, and so would what is started from it.
        return subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, text=True, preexec_fn=_hears_ctrl_c
        )

    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    def here(self, *more: str) -> Result:
        """The same in this process, on its Ray cluster: without the 10 to 20 s that a process and a cluster take to start."""
        return CliRunner().invoke(app, [self.kind, *self.command[3:], *more], catch_exceptions=False)

    def done(self, *more: str) -> str:
        """What `here` printed, after it ended well."""
        result = self.here(*more)
        assert result.exit_code == 0, result.output
        return result.output

    def refused(self, *more: str) -> str:
        """The one message of a command that found bad input."""
        result = self.here(*more)
        assert result.exit_code == 2, result.output
        return result.stderr

    def study(self) -> optuna.Study:
        return load_study(self.run)

    def trials(self) -> list[TrialRecord]:
        return [r for r in read_records(self.run / "trials.jsonl") if isinstance(r, TrialRecord)]

    def confirmations(self) -> list[TrialRecord]:
        return [r for r in read_records(self.run / "confirmations.jsonl") if isinstance(r, TrialRecord)]

    def page(self) -> str:
        return (self.folder / "reports" / "r" / "index.html").read_text()

    def scores(self) -> list[ScoreRecord]:
        return [r for r in read_records(self.run / "scores.jsonl") if isinstance(r, ScoreRecord)]

    def files(self) -> dict[str, bytes]:
        """The records as they are on disk."""
        return {path.name: path.read_bytes() for path in self.run.glob("*.jsonl")}

    def leftovers(self) -> list[Path]:
        """What a killed writer may leave in the run and the store, and vectors that were not deleted after scoring."""
        paths = [p for root in (self.run, self.store) for p in root.rglob("*")]
        return [p for p in paths if p.suffix == ".tmp" or ".partial" in p.name or p.name == "encoded.json"]


def _hears_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(condition: Callable[[], object]) -> None:
    """Wait as long as it takes: pytest's timeout ends what never happens."""
    while not condition():
        time.sleep(0.05)


def workers(driver: int, name: str) -> list[psutil.Process]:
    """Processes below `driver` in which Ray runs `name`: a trial's method or a task's function."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if any(name in part for part in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


TIMES = ("rung_seconds", "peak_mb", "latency_ms")


def told(records: Iterable[TrialRecord]) -> dict[tuple[int, int], dict[str, Any]]:
    """Everything of each trial or confirmation that does not depend on the clock, by number and seed."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for record in records:
        assert (record.number, record.seed) not in found, "recorded twice"
        known = record.model_dump(exclude={"provenance"})
        for rung in known["rungs"]:
            rung["metrics"] = {k: v for k, v in rung["metrics"].items() if k not in TIMES}
        found[record.number, record.seed] = known
    return found


def scored(records: Iterable[ScoreRecord]) -> dict[str, list[dict[str, Any]]]:
    """The scores of each row by its record's id."""
    return {r.record_id: [s.model_dump() for s in r.scores] for r in records}


SPACE = """
method: mcr2
budget: {{trials: 6, steps: {steps}, rungs: 3, eta: 2, confirm: {{seeds: 2}}}}
parameters:
  output_dim: {{choices: [4, 8]}}
  lambda: {{low: 0.1, high: 2, log: true}}
  lr: {{low: 0.0001, high: 0.01, log: true}}
fixed: {{batch_size: 16, clusters: 4}}
enqueue: [{{lambda: 1}}]
"""
LONG = 900
"""Steps of a trial that can be killed in its middle."""


def make_sweep(
    folder: Path, data: Path, encoder: Path, store: Path, steps: int, *arguments: str, space: str = ""
) -> Command:
    """The command of a sweep of mcr2 over six trials, or of another search space."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(space or SPACE.format(steps=steps))
    method = next((line.split()[1] for line in space.splitlines() if line.startswith("method:")), "mcr2")
    given = ("--method", method, "--space", str(folder / "space.yaml"), *arguments)
    return Command("sweep", folder, data, encoder, store, *given)
