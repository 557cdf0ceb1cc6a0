"""Watchers of a sweep: what its driver tells to everything that shows or logs how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilbench.records import TrialRecord

INTERRUPTED = "interrupted"
"""The stage of a driver that Ctrl-C ends."""


@dataclass(frozen=True)
class SweepPlan:
    """What a driver sets out to do."""

    run: Path
    """The run's folder; its name is the run's."""
    method: str
    trials: int
    """Wanted in all, those of earlier drivers included."""
    resources: str = ""
    """How trials share the cluster, in words."""
    deadline: float | None = None
    """Seconds since the epoch at which the search ends; None where it ends with the trials."""
    halved: tuple[int, int] | None = None
    """(Rungs, eta) of a search whose trials wait at rungs, where the best 1/eta go on; None: trials do not wait."""
    earlier: tuple[TrialRecord, ...] = ()
    """Trials that drivers before this one finished."""


class Watcher:
    """Is told by the driver, from one thread, what happens in a sweep; one that does not care leaves it out."""

    def started(self, number: int, params: dict[str, Any]) -> None:
        """Trial `number` has been given to a worker."""

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        """A report of a running trial, about every 5 s.

        It has "rung" (the last finished one), "step", "total_steps", "steps_per_second" and "loss" (None before the
        first), and at the end of a rung also "objective" and metrics such as "dev_score".
        """

    def waiting(self, number: int) -> None:
        """A trial waits for its verdict at a rung; its worker takes another one, and the trial may be started again."""

    def finished(self, record: TrialRecord) -> None:
        """A trial ended: COMPLETE, PRUNED or FAIL; or a training that confirms one did (`record.confirms`)."""

    def stage(self, name: str) -> None:
        """The driver is now at "search", "confirm", "score" or "done"; or leaves, at `INTERRUPTED`."""

    def counted(self, done: int, total: int) -> None:
        """Of the present stage so much is done: trainings at "confirm", students at "score"."""

    def close(self) -> None:
        """The driver leaves, finished or not; nothing more will be told."""
