"""A sweep on the driver's own console: a table that is kept up to date, or a line per finished trial where none can be."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from distilbench.progress.tables import (
    best_table,
    counts_line,
    duration,
    finished_line,
    running_table,
    stage_line,
    time_line,
)
from distilbench.progress.tally import Progress, Tally
from distilbench.records import TrialRecord
from distilbench.watchers import Watcher

LAST = 3
"""Finished trials that stay below the table."""
EVERY_S = 0.25
"""Between two drawings, where no trial ends in between."""
COUNT_EVERY_S = 30.0
"""Between two lines that say how far a stage is, where no table does."""
LEAST = 3
"""Running trials shown however small the terminal."""


def on_console(tally: Tally, console: Console) -> Watcher:
    """The live table on a terminal; lines in a log, a pipe, or a terminal that cannot move its cursor."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveTable(tally, console) if live else FinishedLines(tally, console)


class CountedLines:
    """Prints how far one of several stages is, with the time left, now and then and when it is over."""

    def __init__(self, console: Console, every_s: float = COUNT_EVERY_S) -> None:
        self.console, self.every_s = console, every_s
        self.begin("")

    def begin(self, name: str) -> None:
        """The stage of this name begins: "trained"."""
        self.name, self.began, self.told_at = name, time.monotonic(), time.monotonic()

    def counted(self, done: int, total: int) -> None:
        """So much of it is done."""
        now = time.monotonic()
        if done and (done == total or now - self.told_at >= self.every_s):
            self.told_at = now
            left = (total - done) * (now - self.began) / done
            line = f"{self.name} {done} of {total}" + (f", about {duration(left)} left" if done < total else "")
            self.console.print(line, markup=False)


class FinishedLines(Watcher):
    """Prints a line for each finished trial, and now and then how far the stage after the search is."""

    def __init__(self, tally: Tally, console: Console) -> None:
        self.tally, self.console = tally, console
        self.counts = CountedLines(console)

    def finished(self, record: TrialRecord) -> None:
        """Print its line."""
        line = finished_line(record, len(self.tally.records), self.tally.plan.trials)
        self.console.print(line, markup=False)

    def stage(self, name: str) -> None:
        """Count from here on what it does."""
        self.counts.begin({"confirm": "trained", "score": "scored"}.get(name, name))

    def counted(self, done: int, total: int) -> None:
        """Say it, unless it was said just before."""
        self.counts.counted(done, total)


class LiveTable(Watcher):
    """Running trials, counts, the best of each number of bytes, and the time left, redrawn in place.

    A failed trial also leaves a line above.
    """

    def __init__(self, tally: Tally, console: Console) -> None:
        self.tally, self.console = tally, console
        self.last: deque[str] = deque(maxlen=LAST)
        # Drawn only when something is told: a thread that draws by itself would draw what is just being changed.
        self.live = Live(console=console, auto_refresh=False)
        self.live.start()
        self.drawn = 0.0

    def started(self, number: int, params: dict[str, Any]) -> None:
        """Show it among the running."""
        self._draw_if_old()

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        """Show how far it is."""
        self._draw_if_old()

    def waiting(self, number: int) -> None:
        """Show it no longer among the running."""
        self._draw_if_old()

    def finished(self, record: TrialRecord) -> None:
        """Move it to the finished ones."""
        line = finished_line(record, len(self.tally.records), self.tally.plan.trials)
        self.last.append(line)
        if record.state == "FAIL":
            self.console.print(line, markup=False)
        self._draw()

    def stage(self, name: str) -> None:
        """Say where the sweep is."""
        if name == "done":
            self.close()
        self._draw()

    def counted(self, done: int, total: int) -> None:
        """Show it."""
        self._draw()

    def close(self) -> None:
        """Leave the table as it is."""
        self._draw()
        self.live.stop()

    def _draw_if_old(self) -> None:
        if time.monotonic() - self.drawn >= EVERY_S:
            self._draw()

    def _draw(self) -> None:
        if self.live.is_started:
            self.live.update(self._picture(self.tally.progress()), refresh=True)
            self.drawn = time.monotonic()

    def _picture(self, progress: Progress) -> RenderableType:
        best = best_table(self.tally.records.values())
        head = [
            f"{progress.run}: {progress.method}, {stage_line(progress)}; {progress.resources}",
            counts_line(progress.counts, progress.wanted, len(progress.running), progress.waiting),
            time_line(progress, progress.updated),
        ]
        below: list[RenderableType] = [] if best is None else ["", best]
        below += [_line(line) for line in self.last]
        lines_around = len(head) + (best.row_count + 2 if best else 0) + len(self.last) + 4
        running = running_table(progress.running, max(LEAST, self.console.size.height - lines_around))
        return Group(*(_line(line) for line in head), "", running, *below)


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
