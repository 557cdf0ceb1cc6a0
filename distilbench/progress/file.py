"""A sweep in its run's folder: `progress.json` for `distilbench status` in another terminal, and `log.txt`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from distilbench.events import Event
from distilbench.progress.console import finished_line
from distilbench.progress.tally import Tally
from distilbench.storage.files import DiskFull, write_json
from distilbench.storage.retry import require_exists

PROGRESS = "progress.json"
LOG = "log.txt"
EVERY_S = 1.0
"""Between two writes of `progress.json` within a stage: each waits for the disk."""


class RunLog:
    """The log of one run, which every driver of the run appends to."""

    def __init__(self, run: Path) -> None:
        self.path = run / LOG

    def line(self, text: str) -> None:
        """Append a line with its time. Where it cannot be written it is left out, and the run goes on."""
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}\n")


class ProgressFile:
    """Writes `progress.json` at most once a second and when a stage begins; a line in the log for each stage and trial."""

    def __init__(self, tally: Tally) -> None:
        self.tally, self.path, self.log = tally, tally.plan.run / PROGRESS, RunLog(tally.plan.run)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def __call__(self, event: Event) -> None:
        """Write what has changed."""
        if event.record:
            self.log.line(finished_line(event.record, len(self.tally.records), self.tally.plan.trials))
        elif event.kind == "stage":
            self.log.line(f"stage {event.stage}")
        if event.kind in ("stage", "close") or time.monotonic() - self.written >= EVERY_S:
            self._write()

    def _write(self) -> None:
        self.written = time.monotonic()
        with contextlib.suppress(OSError, DiskFull):  # what only shows the sweep does not end it
            require_exists(self.path.parent)
            write_json(self.path, self.tally.progress().model_dump())
