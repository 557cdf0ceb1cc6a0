"""When the trials of a search begin and end on c workers: Tune's part and the searcher's, replayed with planned durations.

Trials begin in the order of their numbers. With S_n the start of trial n, E_n the end of its training and F_n when it is told
to the study,

    S_n = max(S_(n-1) + driver,                        the driver is one process
              the time at which a worker is free,      of c, which have all started after `worker_s`
              max of F_j for j <= n - lag)             the searcher suggests n from those (0: it waits for none)

A trial that reaches rung r at R(n, r) has its verdict once all trials of lower number and of its group are known
to have passed that rung or to have stopped before, and trains on until then:

    V(n, r) = max(R(n, r), V(n, r-1), V(j, min(r, end_j)) for j < n of its group)
    E_n = min(V(n, end_n), R(n, last)),   F_n = max(E_n, V(n, end_n))

All is made of maxima, sums and minima of increasing terms: more workers, or a larger lag, never end a search later. Nor can
it end before its work is done on all workers, nor before its longest trial, which is one chain of steps:

    max(work / c, longest) <= makespan - worker_s
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class PlannedTrial:
    """A trial: what it competes within, seconds from its start to each rung in turn, and the rung (from 1) where it ends."""

    group: Hashable
    rungs_s: tuple[float, ...]
    end: int

    @property
    def chain_s(self) -> float:
        """From its start to its end, if it waits for nothing."""
        return self.rungs_s[self.end - 1]


class Played(NamedTuple):
    """One search played."""

    makespan_s: float
    """From the first worker asked for to the last trial told."""
    work_s: float
    """The steps of all trials, with those that they train while a verdict is awaited."""
    longest_s: float
    """The longest chain of one trial."""


def play(
    trials: Sequence[PlannedTrial], workers: int, lag: int, *, worker_s: float = 0.0, driver_s: float = 0.0
) -> Played:
    """Play a search of `trials`, in the order of their numbers."""
    free = [worker_s] * min(workers, len(trials))
    told_s: list[float] = []
    told_until: list[float] = []  # the latest of told[0..n]
    verdicts: dict[tuple[Hashable, int], float] = defaultdict(float)
    started, work = worker_s, 0.0
    for number, trial in enumerate(trials):
        due = told_until[number - lag] if lag and number >= lag else 0.0
        start = max(started + driver_s, heapq.heappop(free), due)
        verdict_s = 0.0
        for rung in range(1, trial.end + 1):
            key = (trial.group, rung)
            verdict_s = max(verdict_s, start + trial.rungs_s[rung - 1], verdicts[key])
            verdicts[key] = verdict_s
        for rung in range(trial.end + 1, len(trial.rungs_s) + 1):  # those behind it need not wait for it there
            verdicts[trial.group, rung] = max(verdicts[trial.group, rung], verdict_s)
        end = min(verdict_s, start + trial.rungs_s[-1])
        heapq.heappush(free, end)
        told_s.append(max(end, verdict_s))
        told_until.append(max(told_s[-1], told_until[-1] if told_until else 0.0))
        work += end - start
        started = start
    longest = max((trial.chain_s for trial in trials), default=0.0)
    return Played(told_until[-1] if told_until else 0.0, work, longest)


def list_schedule(durations: Sequence[float], workers: int, worker_s: float = 0.0) -> float:
    """When the last of these jobs ends, each on the first worker that is free, in their order: the confirmation."""
    free = [worker_s] * max(1, min(workers, len(durations)))
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free) if durations else 0.0
