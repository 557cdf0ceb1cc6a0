"""`progress.json` in the run's folder: how far a sweep is, for `distilbench status` in another terminal."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from distilbench.progress.tally import Tally
from distilbench.records import TrialRecord
from distilbench.storage.files import DiskFull, write_json
from distilbench.storage.patience import require
from distilbench.watchers import Watcher

PROGRESS = "progress.json"
EVERY_S = 1.0
"""Between two writes within a stage: each waits for the disk."""


class ProgressFile(Watcher):
    """Writes the state of a sweep at most once a second, and whenever the stage changes."""

    def __init__(self, tally: Tally) -> None:
        self.tally, self.path = tally, tally.plan.run / PROGRESS
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def started(self, number: int, params: dict[str, Any]) -> None:
        """Write that it runs."""
        self._write_if_old()

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        """Write how far it is."""
        self._write_if_old()

    def waiting(self, number: int) -> None:
        """Write that it waits."""
        self._write_if_old()

    def finished(self, record: TrialRecord) -> None:
        """Write that it has ended."""
        self._write_if_old()

    def stage(self, name: str) -> None:
        """Write it at once."""
        self._write()

    def close(self) -> None:
        """Write what is not written yet."""
        self._write()

    def _write_if_old(self) -> None:
        if time.monotonic() - self.written >= EVERY_S:
            self._write()

    def _write(self) -> None:
        self.written = time.monotonic()
        with contextlib.suppress(OSError, DiskFull):  # what only shows the sweep does not end it
            require(self.path.parent)
            write_json(self.path, self.tally.progress().model_dump())
