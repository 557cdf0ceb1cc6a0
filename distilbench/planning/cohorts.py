"""When the trials of a search by successive halving begin and end on c workers: `schedule`, for trials that wait at rungs.

As `search.stopping.Halving` has it, the trials of a group are judged at a rung in cohorts of eta. Which ones go on is known
here, so all cohorts are known before: at the first rung they are the trials in the order of their numbers, at a later one
those that went on, in the same order. A worker that is free takes the trial of the lowest number that may go on, or else
begins the next one. No trial waits for a suggestion, and none is trained while its verdict is open:

    max(work / c, longest) <= makespan - worker_s
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence

from distilbench.planning.schedule import PlannedTrial, Played


def play_cohorts(
    trials: Sequence[PlannedTrial], workers: int, eta: int, *, worker_s: float = 0.0, driver_s: float = 0.0
) -> Played:
    """Play a search of `trials`, in the order of their numbers."""
    cohort_of, missing = _cohorts(trials, eta)
    arrived: dict[int, list[int]] = defaultdict(list)
    reached = [0] * len(trials)
    ready: list[int] = []  # numbers of trials that may go on
    events: list[tuple[float, int]] = []  # (when a trial is at its next rung, its number)
    now = end = started = worker_s
    work, begun, idle = 0.0, 0, workers
    while True:
        while idle and (ready or begun < len(trials)):
            if ready:
                number, start = heapq.heappop(ready), now
            else:
                number, begun = begun, begun + 1
                started = start = max(now, started + driver_s)
            times_s = (0.0, *trials[number].rungs_s)
            spent = times_s[reached[number] + 1] - times_s[reached[number]]
            work, idle = work + spent, idle - 1
            heapq.heappush(events, (start + spent, number))
        if not events:
            break
        now, number = heapq.heappop(events)
        reached[number] += 1
        end, idle = now, idle + 1
        cohort = cohort_of.get((number, reached[number]))
        if cohort is None:  # its last rung
            continue
        arrived[cohort].append(number)
        missing[cohort] -= 1
        if not missing[cohort]:
            for member in arrived[cohort]:
                if trials[member].end > reached[member]:
                    heapq.heappush(ready, member)
    return Played(end, work, max((trial.chain_s for trial in trials), default=0.0))


def _cohorts(trials: Sequence[PlannedTrial], eta: int) -> tuple[dict[tuple[int, int], int], list[int]]:
    """The cohort of a trial (by number) at a rung, and how many each cohort has."""
    cohort_of: dict[tuple[int, int], int] = {}
    sizes: list[int] = []
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for number, trial in enumerate(trials):
        by_group[trial.group].append(number)
    for members in by_group.values():
        rung, going = 1, members
        while going := [n for n in going if len(trials[n].rungs_s) > rung]:
            for first in range(0, len(going), eta):
                cohort = going[first : first + eta]
                cohort_of |= {(n, rung): len(sizes) for n in cohort}
                sizes.append(len(cohort))
            going = [n for n in going if trials[n].end > rung]
            rung += 1
    return cohort_of, sizes
