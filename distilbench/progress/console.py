"""What is shown of a sweep: on a terminal redrawn, or a line for each trial; `log.txt` and `progress.json` in its folder.

Tables and lines also serve `distilbench status`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from distilbench.codes import code_of
from distilbench.events import Event, Listener
from distilbench.progress.tally import STATES, Progress, Running, Tally, best_of
from distilbench.records import Score, TrialRecord
from distilbench.selection import TITLES
from distilbench.storage.files import DiskFull, write_json
from distilbench.storage.retry import require_exists

LAST = 3
"""Finished trials that stay below the table."""
EVERY_S = 0.25
"""Between two drawings, where no trial ends in between."""
COUNT_EVERY_S = 30.0
"""Between two lines that say how far a stage is, where no table does."""
LEAST = 3
"""Running trials shown however small the terminal."""
PROGRESS, LOG = "progress.json", "log.txt"
WRITE_EVERY_S = 1.0
"""Between two writes of `progress.json` within a stage: each waits for the disk."""


def duration(seconds: float) -> str:
    """12 s, 3:05 min, 2:10:00 h."""
    whole = round(max(0.0, seconds))
    minutes, hours = whole // 60, whole // 3600
    if hours:
        return f"{hours}:{minutes % 60:02}:{whole % 60:02} h"
    return f"{minutes}:{whole % 60:02} min" if minutes else f"{whole} s"


def clock(at: float) -> str:
    """The time of day, seconds since the epoch given; with the date where it is another day than today."""
    then, today = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def number_cell(value: float | None, form: str) -> str:
    """`value` as `form` has it, "-" for None."""
    return "-" if value is None else format(value, form)


def counts_line(counts: dict[str, int], wanted: int | None, running: int, waiting: int = 0) -> str:
    """Finished trials by state, and how many run and wait."""
    of = "" if wanted is None else f" of {wanted}"
    states = ", ".join(f"{counts.get(state, 0)} {state}" for state in STATES)
    return f"{sum(counts.values())}{of} trials finished ({states}), {running} running" + (
        f", {waiting} waiting" if waiting else ""
    )


def stage_line(progress: Progress) -> str:
    """The stage, and how far it is where that is counted: "confirm 3 of 12"."""
    return progress.stage + (f" {progress.stage_done} of {progress.stage_total}" if progress.stage_total else "")


def time_line(progress: Progress, now: float) -> str:
    """Time spent, time left, steps per second of all trials."""
    parts = [f"{duration(now - progress.started)} spent"]
    if progress.seconds_left is not None:
        end = progress.updated + progress.seconds_left
        parts.append(f"about {duration(end - now)} left, until {clock(end)}")
    if progress.deadline is not None:
        late = now - progress.deadline
        parts.append(f"deadline in {duration(-late)}" if late < 0 else f"deadline {duration(late)} ago")
    if progress.steps_per_second is not None:
        parts.append(f"{progress.steps_per_second:,.1f} steps/s in all")
    return ", ".join(parts)


def running_table(running: list[Running], most: int) -> Table:
    """A line for each running trial, for `most` of them."""
    table = _table("trial", "bytes", "d", "rung", "step", "steps/s", "loss", "dev", "objective")
    for r in running[:most]:
        place = str(r.number), number_cell(r.bytes, "d"), number_cell(r.dim, "d"), str(r.rung)
        steps = f"{r.step}/{number_cell(r.total_steps, 'd')}", number_cell(r.steps_per_second, ",.1f")
        scores = number_cell(r.loss, ".4g"), number_cell(r.dev, ".2f"), number_cell(r.objective, "+.2f")
        table.add_row(*place, *steps, *scores)
    if len(running) > most:
        table.caption = f"and {len(running) - most} more"
    return table


def best_table(records: Iterable[TrialRecord]) -> Table | None:
    """Return the best trial so far of each number of bytes; None while there is none."""
    best = best_of(records)
    names = list(dict.fromkeys(name for r in best.values() for name in r.values))
    table = _table("bytes", "d", "code", "best trial", "steps", "dev", "objective", *names)
    for group, r in best.items():
        steps = number_cell(None if r.result is None else r.result.step, "d")
        scores = number_cell(r.dev, ".2f"), number_cell(r.objective, "+.2f")
        values = (number_cell(r.values.get(name), ".4g") for name in names)
        table.add_row(str(group), str(r.dim), code_of(r.params), str(r.number), steps, *scores, *values)
    return table if best else None


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), caption_justify="left")
    for name in names:
        table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def scores_told(scores: Iterable[Score]) -> list[str]:
    """Scores with the sets and metrics that they are of: "Spearman STS12 70.10, STSB 80.25", "nDCG@10 quora 84.61"."""
    by_metric: dict[str, list[str]] = {}
    for score in scores:
        by_metric.setdefault(score.metric, []).append(f"{score.set} {score.value:.2f}")
    return [f"{TITLES.get(metric, metric)} {', '.join(values)}" for metric, values in by_metric.items()]


def finished_line(record: TrialRecord, done: int, total: int) -> str:
    """A finished trial in one line: state, steps, dev beside PCA, and why it failed; `done` of `total` are finished.

    PCA has as many dimensions, or as many bytes where the trial is trained for a code.
    """
    count = "[confirms]" if record.confirms else f"[{done:>3}/{total}]"
    stored = f"{record.group.bytes:,} {'byte' if record.group.bytes == 1 else 'bytes'}"
    size = f"{stored:<11} d={record.dim:<4} {code_of(record.params):<7}"
    if student := record.params.get("student"):
        size = f"{student:<10} {size}"
    line = f"{count} trial {record.number:<3} {size} {record.state:<8}"
    if record.rungs:
        result, scores = record.result or record.rungs[-1], []
        dev, pca = result.dev, result.dev_pca
        if dev is not None:
            scores.append(f"dev {dev:.2f}" + ("" if pca is None else f" ({dev - pca:+.2f} to PCA)"))
        if record.values:
            scores += [f"{name} {value:.4g}" for name, value in record.values.items()]
        elif record.objective is not None and (dev is None or pca is None or abs(dev - pca - record.objective) > 1e-6):
            scores.append(f"objective {record.objective:.2f}")
        line += f" after {record.rungs[-1].step} steps" + (f": {', '.join(scores)}" if scores else "")
    return f"{line} {record.reason}" if record.state == "FAIL" or not record.rungs else line


def on_console(tally: Tally, console: Console) -> Listener:
    """The live table on a terminal; lines in a log, a pipe, or a terminal that cannot move its cursor."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveTable(tally, console) if live else FinishedLines(tally, console)


class CountedLines:
    """Prints how far one of several stages is, with the time left, now and then and when it is over."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begin("")

    def begin(self, name: str) -> None:
        """The stage of this name begins: "trained"."""
        self.name, self.began, self.told_at = name, time.monotonic(), time.monotonic()

    def counted(self, done: int, total: int) -> None:
        """So much of it is done."""
        now = time.monotonic()
        if done and (done == total or now - self.told_at >= COUNT_EVERY_S):
            self.told_at = now
            left = f", about {duration((total - done) * (now - self.began) / done)} left" if done < total else ""
            self.console.print(f"{self.name} {done} of {total}{left}", markup=False)


class FinishedLines:
    """Prints a line for each finished trial, and now and then how far the stage after the search is."""

    def __init__(self, tally: Tally, console: Console) -> None:
        self.tally, self.console, self.counts = tally, console, CountedLines(console)

    def __call__(self, event: Event) -> None:
        """Print what the event adds."""
        if event.record:
            line = finished_line(event.record, len(self.tally.records), self.tally.trials)
            self.console.print(line, markup=False)
        elif event.kind == "stage":
            self.counts.begin({"confirm": "trained", "score": "scored"}.get(event.stage, event.stage))
        elif event.kind == "counted":
            self.counts.counted(self.tally.done, self.tally.total)


class LiveTable:
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

    def __call__(self, event: Event) -> None:
        """Draw the table anew, unless a mere report comes just after the last drawing."""
        if event.record:
            self.last.append(finished_line(event.record, len(self.tally.records), self.tally.trials))
            if event.record.state == "FAIL":
                self.console.print(self.last[-1], markup=False)
        if self.live.is_started and (event.kind != "report" or time.monotonic() - self.drawn >= EVERY_S):
            self.live.update(self._picture(self.tally.progress()), refresh=True)
            self.drawn = time.monotonic()
        if event.kind == "close" or event.stage == "done":
            self.live.stop()

    def _picture(self, progress: Progress) -> RenderableType:
        best = best_table(self.tally.records.values())
        head = [
            f"{progress.run}: {progress.method}, {stage_line(progress)}; {progress.resources}",
            counts_line(progress.counts, progress.wanted, len(progress.running), progress.waiting),
            time_line(progress, progress.updated),
        ]
        lines_around = len(head) + (best.row_count + 2 if best else 0) + len(self.last) + 4
        running = running_table(progress.running, max(LEAST, self.console.size.height - lines_around))
        below: list[RenderableType] = [] if best is None else ["", best]
        return Group(*map(_line, head), "", running, *below, *map(_line, self.last))


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


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
        self.tally, self.path, self.log = tally, tally.run / PROGRESS, RunLog(tally.run)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.parent.glob(f".{PROGRESS}.*.tmp"):  # of a driver that was killed at it
            leftover.unlink(missing_ok=True)
        self._write()

    def __call__(self, event: Event) -> None:
        """Write what has changed."""
        if event.record:
            self.log.line(finished_line(event.record, len(self.tally.records), self.tally.trials))
        elif event.kind == "stage":
            self.log.line(f"stage {event.stage}")
        if event.kind in ("stage", "close") or time.monotonic() - self.written >= WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        self.written = time.monotonic()
        with contextlib.suppress(OSError, DiskFull):  # what only shows the sweep does not end it
            require_exists(self.path.parent)
            write_json(self.path, self.tally.progress().model_dump())
