"""The state of a running sweep: what runs, what has ended, what it will still take; and who is told of it."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from distilbench.codes import CompetitionKey, vector_bytes
from distilbench.events import Event, Listener
from distilbench.machine import process_mark
from distilbench.records import TrialRecord
from distilbench.storage.files import DiskFull

STATES = ("COMPLETE", "PRUNED", "FAIL")
STAGES = ("starting", "search", "confirm", "score", "done")


class Running(BaseModel):
    """A running trial at its last report; what nothing was reported of yet is None."""

    model_config = ConfigDict(frozen=True)

    number: int
    dim: int | None
    bytes: int | None = None
    """Bytes of a stored vector."""
    rung: int = 0
    """The last one finished."""
    step: int = 0
    total_steps: int | None = None
    steps_per_second: float | None = None
    loss: float | None = None
    objective: float | None = None
    """At the last rung, as `dev`."""
    dev: float | None = None
    """The dev score x 100 that students are selected by."""


class Progress(BaseModel):
    """The progress of a sweep: `progress.json` in its folder holds it, and it is shown while the sweep runs."""

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[1] = 1
    run: str
    method: str
    stage: str
    """One of `STAGES`."""
    pid: int
    """The driver's process number; `process` tells it from a later process of the same number."""
    process: str
    host: str
    started: float
    """When this driver's search began, seconds since the epoch; `updated` and `deadline` likewise."""
    updated: float
    deadline: float | None
    wanted: int
    resources: str
    counts: dict[str, int]
    """Finished trials by state, those of earlier drivers included."""
    running: list[Running]
    waiting: int = 0
    """Trials without a worker that wait for a verdict."""
    steps_per_second: float | None
    """The steps a second of all running trials together, as each last reported it."""
    seconds_left: float | None
    """To the end of the search, or of the stage after it; None where nothing tells."""
    stage_done: int = 0
    """Trainings that have confirmed a trial, or students scored, of `stage_total`; 0 of 0 at other stages."""
    stage_total: int = 0


class Tally:
    """Counts what a driver tells, then tells the listeners; `progress()` is the state at this moment.

    `trials` are wanted in all, those included that `earlier` drivers finished. `resources` says in words what each has. The
    search ends at `deadline` (seconds since the epoch); None where it ends with the trials.
    """

    def __init__(
        self,
        run: Path,
        method: str,
        trials: int,
        resources: str = "",
        deadline: float | None = None,
        earlier: Iterable[TrialRecord] = (),
    ) -> None:
        self.run, self.method, self.trials, self.resources, self.deadline = run, method, trials, resources, deadline
        self.listeners: list[Listener] = []
        self.began = time.time()
        self.process = process_mark(os.getpid()) or ""
        self.at, self.at_since = STAGES[0], self.began
        self.done, self.total = 0, 0
        self.running: dict[int, Running] = {}
        self.waiting_trials: dict[int, Running] = {}
        """Those without a worker, at their last report: they wait for a verdict."""
        self.records = {r.number: r for r in earlier if not r.confirms}
        self.ended_before = len(self.records)

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            with contextlib.suppress(OSError, DiskFull):  # what only shows the sweep does not end it
                listener(event)

    def started(self, number: int, params: dict[str, Any]) -> None:
        """Count a trial that has been given to a worker among the running."""
        dim = int(params["output_dim"]) if "output_dim" in params else None
        size = None if dim is None else vector_bytes(params, dim)
        self.running[number] = self.waiting_trials.pop(number, Running(number=number, dim=dim, bytes=size))
        self._tell(Event("report"))

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        """Note how far a running trial is; it reports about every 5 s.

        `result` has "rung" (the last finished one), "step", "total_steps", "steps_per_second" and "loss" (None before the
        first), and at the end of a rung also "objective" and metrics such as "dev_score".
        """
        before = self.running.get(number, Running(number=number, dim=None))
        self.running[number] = before.model_copy(
            update={
                "rung": int(result.get("rung", before.rung)),
                "step": int(result["step"]),
                "total_steps": int(result["total_steps"]) if result.get("total_steps") else before.total_steps,
                "steps_per_second": finite(result.get("steps_per_second")),
                "loss": finite(result.get("loss")),
                "objective": finite(result.get("objective", before.objective)),
                "dev": finite(result.get("dev_score", before.dev)),
            }
        )
        self._tell(Event("report"))

    def waiting(self, number: int) -> None:
        """Count a trial that waits for its verdict at a rung no longer among the running; it may be started again."""
        if number in self.running:
            self.waiting_trials[number] = self.running.pop(number)
        self._tell(Event("report"))

    def finished(self, record: TrialRecord) -> None:
        """Count a trial that is COMPLETE, PRUNED or FAIL among the finished, or among the confirmations."""
        self.running.pop(record.number, None)
        self.waiting_trials.pop(record.number, None)
        if not record.confirms:
            self.records[record.number] = record
        self._tell(Event("finished", record=record))

    def stage(self, name: str) -> None:
        """Note the stage; from "score" on, no trial runs."""
        self.at, self.at_since, self.done, self.total = name, time.time(), 0, 0
        if name in ("score", "done"):
            self.running.clear()
        self._tell(Event("stage", stage=name))

    def counted(self, done: int, total: int) -> None:
        """Note how far the stage is: trainings at "confirm", students at "score"."""
        self.done, self.total = done, total
        self._tell(Event("counted"))

    def close(self) -> None:
        """Say that the driver leaves, finished or not."""
        self._tell(Event("close"))

    def progress(self) -> Progress:
        """The state now."""
        now = time.time()
        speeds = [r.steps_per_second for r in self.running.values() if r.steps_per_second is not None]
        return Progress(
            run=self.run.name,
            method=self.method,
            stage=self.at,
            pid=os.getpid(),
            process=self.process,
            host=socket.gethostname(),
            started=self.began,
            updated=now,
            deadline=self.deadline,
            wanted=self.trials,
            resources=self.resources,
            counts=count_states(self.records.values()),
            running=sorted(self.running.values(), key=lambda r: r.number),
            waiting=len(self.waiting_trials),
            steps_per_second=sum(speeds) if speeds else None,
            seconds_left=self.seconds_left(now),
            stage_done=self.done,
            stage_total=self.total,
        )

    def seconds_left(self, now: float) -> float | None:
        """To the end of the search, at the rate so far, or to its deadline where that is sooner.

        A running trial counts as the share of its steps that it has been trained, one that was stopped as a whole one. A
        stage after the search takes as long for each of what is left as for those that are done.
        """
        if self.at not in ("starting", "search"):
            return (self.total - self.done) * (now - self.at_since) / self.done if self.done else None
        begun = [*self.running.values(), *self.waiting_trials.values()]
        done = len(self.records) - self.ended_before + sum(r.step / r.total_steps for r in begun if r.total_steps)
        until = [] if self.deadline is None else [max(0.0, self.deadline - now)]
        if done:
            until.append(max(0.0, self.trials - self.ended_before - done) * (now - self.began) / done)
        return min(until, default=None)


def finite(value: Any) -> float | None:
    """A number as float; None for NaN, infinities, and anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def count_states(records: Iterable[TrialRecord]) -> dict[str, int]:
    """Count the trials that ended COMPLETE, PRUNED and FAIL."""
    counts = Counter[str](r.state for r in records)
    return {state: counts[state] for state in STATES}


def best_of(records: Iterable[TrialRecord]) -> dict[CompetitionKey, TrialRecord]:
    """The trial with the highest objective of each group (`TrialRecord.group`), groups rising; the earlier of equals.

    A stopped trial takes part where its student had its final form.
    """
    scored = [r for r in records if r.is_candidate and r.objective is not None and not r.confirms]
    best = {r.group: r for r in sorted(scored, key=lambda r: (r.objective, -r.number))}
    return {group: best[group] for group in sorted(best)}
