"""The progress of a run, from the files in its folder alone: no Ray, no torch, no study."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from rich.console import Console, RenderableType
from rich.text import Text

from distilbench.errors import InputError, invalid
from distilbench.events import INTERRUPTED
from distilbench.machine import process_mark
from distilbench.progress.console import (
    PROGRESS,
    best_table,
    counts_line,
    duration,
    finished_line,
    running_table,
    stage_line,
    time_line,
)
from distilbench.progress.tally import Progress, count_states
from distilbench.records import ON_DEMONSTRATION, TrialRecord, read_trials
from distilbench.reporting.runs import TRIAL_FILES, latest_scores

LAST = 5
"""Finished trials that are told one by one."""
MOST_RUNNING = 40


class RunStatus(NamedTuple):
    """The state of one run by its files."""

    folder: Path
    method: str
    wanted: int | None
    """Trials; None where it is no sweep."""
    progress: Progress | None
    """None before the search, and of a comparison."""
    trials: list[TrialRecord]
    """In the order in which they ended."""
    confirmations: list[TrialRecord]
    rows: dict[str, int]
    """Leaderboard rows scored so far by role."""
    demonstration: bool = False
    """Whether its scores are of the demonstration corpus."""

    @property
    def at_work(self) -> bool | None:
        """Whether the driver lives; None where that cannot be known: on another machine, or not begun."""
        if self.progress is None or self.progress.host != socket.gethostname():
            return None
        mark = process_mark(self.progress.pid)
        return mark is not None and (not self.progress.process or mark == self.progress.process)

    @property
    def done(self) -> bool:
        """Whether the driver has said so."""
        return self.progress is not None and self.progress.stage == "done"

    def lines(self) -> Iterator[RenderableType]:
        """Lines and tables for a terminal."""
        progress, alive, now = self.progress, self.at_work is not False, time.time()
        yield Text(f"{self.folder}: {self.method}, {self._driver(now)}", style="bold")
        if self.demonstration:
            yield Text(f"Scores are {ON_DEMONSTRATION}.")
        live, waiting = (progress.running, progress.waiting) if progress and alive else ([], 0)
        if self.wanted is not None:
            yield Text(counts_line(count_states(self.trials), self.wanted, len(live), waiting))
        if progress and not self.done:
            if alive:
                yield Text(time_line(progress, now))
            elif numbers := ", ".join(str(r.number) for r in progress.running):
                yield Text(f"interrupted: trials {numbers}; the command that ran them continues them")
        if live:
            yield running_table(live, MOST_RUNNING)
        if (best := best_table(self.trials)) is not None:
            yield best
        ended, last = len(self.trials), self.trials[-LAST:]
        for number, record in enumerate(last, start=ended - len(last) + 1):
            yield Text(finished_line(record, number, ended if self.wanted is None else self.wanted))
        if self.confirmations:
            failed = sum(r.state == "FAIL" for r in self.confirmations)
            yield Text(f"{len(self.confirmations)} confirmations" + (f", {failed} of them failed" if failed else ""))
        if self.rows:
            roles = ", ".join(f"{count} {role}" for role, count in self.rows.items())
            yield Text(f"{sum(self.rows.values())} rows scored ({roles})")

    def _driver(self, now: float) -> str:
        progress = self.progress
        if progress is None:
            unprepared = "no trial begun: its data is being prepared, or that was interrupted"
            return "no progress.json: a comparison" if self.trials or self.rows else unprepared
        ago = f"{duration(now - progress.updated)} ago"
        if self.done:
            return f"done {ago}"
        if progress.stage == INTERRUPTED and not self.at_work:
            return f"interrupted {ago}; the same command goes on"
        stage, process = stage_line(progress), f"process {progress.pid}"
        match self.at_work:
            case None:
                return f"stage {stage}; its driver is on {progress.host} ({process}), last heard of {ago}"
            case True:
                return f"stage {stage}; its driver is at work ({process}), last heard of {ago}"
        return f"stopped in stage {stage}: its driver ({process}) is gone, last heard of {ago}"


def run_statuses(folder: Path) -> list[RunStatus]:
    """The run in `folder`, and those in its subfolders."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected that of a run, such as runs/NAME")
    folders = [folder, *sorted(p for p in folder.iterdir() if p.is_dir())]
    statuses = [status for run in folders if (status := _status(run)) is not None]
    if not statuses:
        raise InputError(f"{folder}: no run's config.json in it or in its subfolders; expected such as runs/NAME")
    return statuses


def _status(folder: Path) -> RunStatus | None:
    """The status of the run in `folder`; None where there is none, such as where config.json is a model's."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict) or "corpus_fingerprint" not in config:
        return None
    progress, scores = _progress(folder / PROGRESS), latest_scores(folder)
    records = read_trials(*(folder / file for file in TRIAL_FILES))
    return RunStatus(
        folder,
        str(config.get("method", "comparison")),
        progress.wanted if progress else config.get("trials"),
        progress,
        list({r.number: r for r in records if not r.confirms}.values()),
        [r for r in records if r.confirms],
        dict(Counter(score.role for score in scores)),
        bool(config.get("demonstration")) or any(score.demonstration for score in scores),
    )


def _progress(path: Path) -> Progress | None:
    try:
        return Progress.model_validate_json(path.read_bytes()) if path.exists() else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {invalid(error)}") from None


def print_status(statuses: Iterable[RunStatus], console: Console) -> None:
    """Print each run's lines, with an empty one between two runs."""
    for number, status in enumerate(statuses):
        for line in (*([""] if number else []), *status.lines()):
            console.print(line)
