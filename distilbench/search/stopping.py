"""Which trials stop at a rung, decided in the order of their numbers: however many run at once, the verdicts are the same.

A trial is compared with the trials of lower numbers and of its own group (`stored.rival_group`) that got as far. Where one of
those has still to arrive, the verdict waits for it, and the trial trains on meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from distilbench.choices import Stopping
from distilbench.trials.budget import Budget

MEDIAN_STARTUP = 4
"""Trials of a group that median stopping lets pass a rung before it stops any."""

Rule = Callable[[float, list[float]], bool]
"""(value, values of the earlier trials at that rung) -> whether the trial goes on."""


def asha(value: float, peers: list[float], eta: int) -> bool:
    """Asynchronous successive halving (Li et al. 2020): is `value` among the best 1/eta (at least one), itself included?"""
    if math.isnan(value):
        return False
    ranked = sorted([*(p for p in peers if not math.isnan(p)), value], reverse=True)
    return value >= ranked[max(1, len(ranked) // eta) - 1]


def median(value: float, peers: list[float]) -> bool:
    """Median stopping (Golovin et al. 2017): is `value` at least the median of the earlier ones?"""
    if math.isnan(value):
        return False
    comparable = [p for p in peers if not math.isnan(p)]
    return len(comparable) < MEDIAN_STARTUP or value >= statistics.median(comparable)


def stopping_rule(budget: Budget) -> Rule:
    """The rule that a budget names."""
    rules: dict[Stopping, Rule] = {
        "asha": lambda value, peers: asha(value, peers, budget.eta),
        "median": median,
        "none": lambda value, peers: not math.isnan(value),
    }
    return rules[budget.stopping]


def stopping_reason(budget: Budget, rung: int) -> str:
    """Why a trial was stopped at `rung`."""
    if budget.stopping == "asha":
        return f"not among the best 1/{budget.eta} at rung {rung}"
    return f"below the median at rung {rung}" if budget.stopping == "median" else f"no finite objective at rung {rung}"


@dataclass
class _Runner:
    group: Hashable
    values: dict[int, float] = field(default_factory=dict)
    passed: int = 0
    """The last rung at which it is known to go on."""
    stopped: int | None = None
    """The rung at which it has to stop."""
    last: int | None = None
    """Its last rung, once it is there: no verdict is needed at it."""
    failed: bool = False

    @property
    def settled(self) -> bool:
        """Whether nothing more is to be decided about it."""
        end = max(self.values, default=0) if self.failed else self.last
        return self.stopped is not None or (end is not None and self.passed >= end)


class Verdicts:
    """The verdicts of one search. Trials enter in the order of their numbers."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._runners: dict[int, _Runner] = {}
        self._open: dict[Hashable, list[int]] = defaultdict(list)
        self._peers: dict[tuple[Hashable, int], list[tuple[int, float]]] = defaultdict(list)

    def enter(self, number: int, group: Hashable) -> None:
        """A trial begins."""
        self._runners[number] = _Runner(group)
        self._open[group].append(number)

    def restore(self, number: int, group: Hashable, values: dict[int, float]) -> None:
        """A trial that ended in an earlier sitting, with the rungs at which it was judged."""
        self._runners[number] = runner = _Runner(group, failed=True)
        for rung, value in values.items():
            self.report(number, rung, value)
        runner.passed = max(runner.values, default=0)
        for rung, value in runner.values.items():
            self._peers[group, rung].append((number, value))

    def report(self, number: int, rung: int, value: float) -> None:
        """It has reached a rung. Its start (rung 0), and what it says after the rung at which it stops, are of no effect."""
        if rung:
            self._runners[number].values.setdefault(rung, value)

    def finish(self, number: int, rung: int) -> None:
        """It has reported its last rung; to be said before that is settled, as a trial is not stopped there."""
        self._runners[number].last = rung

    def fail(self, number: int) -> None:
        """It reports no more. Verdicts on the rungs that it has reported still come: it may have had to stop before."""
        self._runners[number].failed = True

    def settle(self) -> None:
        """Decide what can be decided."""
        for group, numbers in self._open.items():
            reached, still = math.inf, []  # the rung that every open trial ahead has passed
            for number in numbers:
                runner = self._runners[number]
                self._decide(number, runner, reached)
                if not runner.settled:
                    reached = min(reached, runner.passed)
                    still.append(number)
            self._open[group] = still

    def _decide(self, number: int, runner: _Runner, reached: float) -> None:
        while runner.stopped is None and (rung := runner.passed + 1) in runner.values:
            if reached < rung:  # one ahead may still arrive at this rung, or never
                return
            peers, value = self._peers[runner.group, rung], runner.values[rung]
            if rung == runner.last or self.rule(value, [v for n, v in peers if n < number]):
                runner.passed = rung
            else:
                runner.stopped = rung
            peers.append((number, value))

    def passed(self, number: int) -> int:
        """The last rung at which the trial is known to go on."""
        return self._runners[number].passed

    def settled(self, number: int) -> bool:
        """Whether nothing is left to be decided about the trial."""
        return self._runners[number].settled

    def stopped(self, number: int) -> int | None:
        """The rung at which it has to stop; None where that is not (yet) known."""
        return self._runners[number].stopped
