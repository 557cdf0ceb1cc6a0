"""`log.txt` in the run's folder: a line, with its time, for each stage, trial, training and scored row."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from distilbench.progress.tables import finished_line
from distilbench.progress.tally import Tally
from distilbench.records import TrialRecord
from distilbench.watchers import Watcher

LOG = "log.txt"


class RunLog:
    """The log of one run, which every driver of the run appends to."""

    def __init__(self, run: Path) -> None:
        self.path = run / LOG

    def line(self, text: str) -> None:
        """Append a line. What only tells of the run does not end it: where it cannot be written it is left out."""
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}\n")


class LoggedSearch(Watcher):
    """Writes a line for each stage and each finished trial."""

    def __init__(self, tally: Tally) -> None:
        self.tally, self.log = tally, RunLog(tally.plan.run)

    def finished(self, record: TrialRecord) -> None:
        """Write its line."""
        self.log.line(finished_line(record, len(self.tally.records), self.tally.plan.trials))

    def stage(self, name: str) -> None:
        """Write that it begins."""
        self.log.line(f"stage {name}")
