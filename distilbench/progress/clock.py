"""A time budget: when the search has to end so that confirmation and scoring still fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distilbench.records import TrialRecord

MOST_RESERVED = 0.5
"""The largest share of the time left at the begin of the search that is kept for what comes after it."""
MARGIN = 1.5
"""Factor on the estimates: exporting and embedding a student is not in them."""
MUCH = 0.1
"""The share of the budget that has to be left for methods to go on which had used up theirs."""
PEERS = 0.1
"""The share of the budget that FAISS's own codes may take, after all else."""
START_S = 15.0
"""Until the workers that confirm are there: torch and an encoder's class take 5 to 10 s to import."""
PUBLISH_S = 5.0
"""For the tie groups and the page."""


class Clock:
    """The time of one sweep. It is told of what ends: a complete trial's time is the estimate of a confirmation's."""

    def __init__(self, budget_s: float | None, began: float | None = None) -> None:
        self.began = time.time() if began is None else began
        self.end = math.inf if budget_s is None else self.began + budget_s
        self.row_s = 0.0
        self.training_s = 0.0
        """Seconds of the longest complete trial; before there is one, of stopped ones if they had gone on to their ends."""
        self.complete = False
        self.steps_of: Callable[[Mapping[str, Any]], int] = lambda params: 0
        """Hyper-parameters of a trial -> its optimiser steps, where it is trained to its end."""
        self.parts, self.limit = 1, self.end
        """Among how many methods the time was shared that this is a share of, and when all of it ends."""
        self.searched = -math.inf
        """When the search was over."""
        self.late_rows = 0
        """Encoders that are scored after all else, and are to have their time."""

    def part(self, parts: int) -> Clock:
        """The clock of the next of so many methods: an equal share of the time that is left."""
        now = time.time()
        share = Clock(None if math.isinf(self.end) else max(1.0, self.end - now) / parts, now)
        share.row_s, share.parts, share.limit = self.row_s, parts, self.end
        return share

    def keep_half(self) -> None:
        """Leave at least half a share for what comes after a search that took longer, at the cost of the methods after it."""
        self.searched = time.time()
        self.end = min(self.limit, max(self.end, self.searched + (self.end - self.began) / 2 + START_S))

    @property
    def is_limited(self) -> bool:
        """Whether there is a time budget."""
        return not math.isinf(self.end)

    @property
    def much_left(self) -> bool:
        """Whether there is a time budget of which at least `MUCH` is left."""
        return self.is_limited and self.end - time.time() >= MUCH * (self.end - self.began)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Time the scoring of the teacher. It is that of all methods, so all give of their time for it.

        Where another method's was taken over, its time for it is what is known.
        """
        began = time.time()
        yield
        seconds = time.time() - began
        self.row_s = max(self.row_s, seconds)
        self.end += seconds * (1 - 1 / self.parts)

    def search_end(self, rows: int, trainings: float = 0.0) -> float:
        """When a search has to end (seconds since the epoch) before so many encoders are scored, so many trained in turn."""
        return self._before_end(rows, MARGIN * trainings * self.training_s + START_S)

    def first_end(self, rows: int, trainings: float = 0.0) -> float:
        """When a search has to end that has no student of some size yet: with its share, the last one as any other."""
        return self.end if self.limit > self.end else self.search_end(rows, trainings)

    def training_end(self, rows: int) -> float:
        """When confirming trainings have to end before so many encoders are scored."""
        # Students of the search have to be saved at least.
        first = min(self.searched + 2 * START_S, self.end - PUBLISH_S)
        return max(first, self._before_end(rows, most=MOST_RESERVED / 2))

    @property
    def scoring_end(self) -> float:
        """When the last student is begun to be scored; the last of several methods leaves time for what comes after all."""
        return self.end if self.limit > self.end else self._before_end(most=MOST_RESERVED / 4)

    @property
    def late_end(self) -> float:
        """When the last of the encoders is begun to be scored that are scored after all else."""
        return self.end - PUBLISH_S

    @property
    def peers_end(self) -> float:
        """When the last of FAISS's own codes is begun to be scored, where scoring what comes after all else begins now."""
        return min(self.late_end, time.time() + PEERS * (self.end - self.began))

    def _before_end(self, rows: int = 0, more_s: float = 0.0, most: float = MOST_RESERVED) -> float:
        """Before so many encoders are scored, `more_s` seconds of other work, and what is scored after all else."""
        reserve = MARGIN * (rows + self.late_rows) * self.row_s + more_s + PUBLISH_S
        return self.end - min(reserve, most * (self.end - self.began)) if self.is_limited else self.end

    def finished(self, record: TrialRecord) -> None:
        """Note how long a complete trial took, or would have taken one that was stopped."""
        if record.state == "COMPLETE":
            self.training_s = max(self.training_s if self.complete else 0.0, record.seconds)
            self.complete = True
        elif record.state == "PRUNED" and not self.complete and record.rungs[-1].step:
            whole = max(1.0, self.steps_of(record.params) / record.rungs[-1].step)
            self.training_s = max(self.training_s, record.seconds * whole)
