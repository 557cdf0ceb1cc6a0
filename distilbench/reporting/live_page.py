"""The leaderboard of a sweep that is still at work: a page that can be reloaded."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from distilbench.events import INTERRUPTED, Event
from distilbench.storage.files import DiskFull

EVERY_S = 20.0
"""Between two writes, and longer where writing takes long: it shall not take more than SHARE of the driver's time."""
SHARE = 0.05


class LivePage:
    """Writes the report of the runs in `folders` into `report` when a stage begins, and now and then as trials end.

    Ties, and what `write_report` leaves out of a live page, are left to the end.
    """

    def __init__(self, report: Path, title: str, folders: Sequence[Path]) -> None:
        self.report, self.title, self.folders = report, title, tuple(folders)
        self.due = 0.0

    def __call__(self, event: Event) -> None:
        """Write the page when a stage begins, and when a trial has ended and the last page is old.

        At the end of all, the whole report follows; after an interruption nothing shall take time.
        """
        if event.stage not in ("", "done", INTERRUPTED) or (event.record and time.monotonic() >= self.due):
            self._write()

    def _write(self) -> None:
        from distilbench.reporting.page import write_report
        from distilbench.reporting.runs import read_runs

        began = time.monotonic()
        with contextlib.suppress(OSError, DiskFull):  # what only shows the sweep does not end it
            records = read_runs(self.folders, unfinished=True)
            if records:
                write_report(records, self.report, title=self.title, folders=self.folders, live=True)
        self.due = time.monotonic() + max(EVERY_S, (time.monotonic() - began) / SHARE)
