"""Events of a sweep: its driver tells them to everything that shows, writes or copies the progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from distilbench.records import TrialRecord

INTERRUPTED = "interrupted"
"""The stage of a driver that Ctrl-C ends."""


class Event(NamedTuple):
    """Something has changed in a sweep; the tally has counted it already."""

    kind: Literal["report", "finished", "stage", "counted", "close"]
    """A trial begins, reports or waits; one has ended, or a training that confirms one has (`record.confirms`); a stage
    begins; a stage has come further; the driver leaves."""
    stage: str = ""
    """"search", "confirm", "score", "done", or `INTERRUPTED`, where a stage begins."""
    record: TrialRecord | None = None
    """The trial or training that has ended."""


Listener = Callable[[Event], None]
"""Is called by the driver, from one thread."""
