"""`python -m platform.sweep` and `.compare` as a user runs them, in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import optuna
import psutil

from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.search.study import sqlite_url

ROOT = Path(__file__).resolve().parents[2]


class Command:
    """A command on a small data folder; `run` is the folder that it works in."""

    def __init__(self, kind: str, folder: Path, data: Path, encoder: Path, store: Path, *arguments: str) -> None:
        self.folder, self.store, self.run = folder, store, folder / "runs" / "r"
        self.command = [sys.executable, "-m", f"platform.{kind}", *arguments, "--name", "r", "--no-dashboard"]
        self.command += ["--data", str(data), "--teacher", str(encoder), "--cpus", "2"]
        self.command += ["--runs", str(folder / "runs"), "--reports", str(folder / "reports")]
        self.command += ["--store", str(store)]

    def start(self, *more: str) -> subprocess.Popen[str]:
        log = (self.folder / "log.txt").open("a")
        return subprocess.Popen([*self.command, *more], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, text=True)

    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    def finish(self, *more: str) -> str:
        done = subprocess.run(
            [*self.command, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def study(self) -> optuna.Study:
        return optuna.load_study(study_name="r", storage=sqlite_url(self.run / "study.db"))

    def trials(self) -> list[TrialRecord]:
        return [r for r in read_records(self.run / "trials.jsonl") if isinstance(r, TrialRecord)]

    def scores(self) -> list[ScoreRecord]:
        return [r for r in read_records(self.run / "scores.jsonl") if isinstance(r, ScoreRecord)]

    def files(self) -> tuple[bytes, bytes]:
        """The records as they are on disk."""
        return (self.run / "scores.jsonl").read_bytes(), (self.run / "trials.jsonl").read_bytes()

    def leftovers(self) -> list[Path]:
        """What a killed writer may leave, and vectors that were not deleted after scoring."""
        paths = [p for root in (self.folder, self.store) for p in root.rglob("*")]
        return [p for p in paths if p.suffix == ".tmp" or ".partial" in p.name or p.name == "encoded.json"]


def wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
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


def kill_driver(driver: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait for Ray's processes to notice."""
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    psutil.wait_procs(children, timeout=60)
