"""The stopping rules: verdicts follow trial numbers, not finishing order, so they do not depend on the number of workers.

A trial is compared with the trials of its own group (`competition_key`) that got as far. With `Verdicts` these are those
of lower numbers; where one of them has still to arrive, the verdict waits for it, and the trial trains on meanwhile. With
`Halving` they are those of lower numbers and the next ones that make up a cohort, and the trial itself waits.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

from distilbench.choices import Stopping
from distilbench.errors import InputError
from distilbench.trials.budget import Budget

MEDIAN_STARTUP = 4
"""Trials of a group that median stopping lets pass a rung before it stops any."""


def goes_on(budget: Budget, value: float, earlier: list[float]) -> bool:
    """Whether a trial with this value passes a rung that the trials of `earlier` values have reached before it.

    Median stopping (Golovin et al. 2017): it does if it is at least their median. Successive halving (Li et al. 2020): if it
    is among the best 1/eta (at least one), itself included.
    """
    if math.isnan(value) or budget.stopping == "none":
        return not math.isnan(value)
    rising = sorted(v for v in earlier if not math.isnan(v))
    if budget.stopping == "median":
        return len(rising) < MEDIAN_STARTUP or value >= statistics.median(rising)
    return value >= least_of_best(sorted([*rising, value]), budget.eta)


def least_of_best(rising: list[float], eta: int) -> float:
    """The least of the best 1/eta (at least one) of values that rise; NaN, which nothing reaches, where there are none."""
    return rising[-max(1, len(rising) // eta)] if rising else math.nan


def stopping_reason(budget: Budget, rung: int) -> str:
    """The reason that a trial stopped at `rung` is given."""
    if budget.stopping in ("halving", "asha"):
        return f"not among the best 1/{budget.eta} at rung {rung}"
    return f"below the median at rung {rung}" if budget.stopping == "median" else f"no finite objective at rung {rung}"


@dataclass
class Runner:
    """What is known of one trial."""

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

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.runners: dict[int, Runner] = {}
        """By trial number."""
        self._groups: dict[Hashable, list[int]] = defaultdict(list)

    def enter(self, number: int, group: Hashable) -> None:
        """Begin a trial."""
        self.runners[number] = Runner()
        self._groups[group].append(number)

    def report(self, number: int, rung: int, value: float) -> None:
        """Note a rung that it has reached. Its start (rung 0), and rungs after the one where it stops, are of no effect."""
        if rung:
            self.runners[number].values.setdefault(rung, value)

    def finish(self, number: int, rung: int) -> None:
        """Note that this is its last rung; before `decide`, as a trial is not stopped there."""
        self.runners[number].last = rung

    def fail(self, number: int) -> None:
        """Note that it reports no more. Verdicts on its rungs still come: it may have had to stop before."""
        self.runners[number].failed = True

    def decide(self) -> None:
        """Decide what can be decided."""
        for numbers in self._groups.values():
            reached: float = math.inf  # the rung that every open trial ahead has passed
            ahead: list[Runner] = []
            for number in numbers:
                runner = self.runners[number]
                self._decide(number, ahead, reached)
                if not runner.settled:
                    reached = min(reached, runner.passed)
                ahead.append(runner)

    def _decide(self, number: int, ahead: list[Runner], reached: float) -> None:
        runner = self.runners[number]
        while runner.stopped is None and (rung := runner.passed + 1) in runner.values:
            if reached < rung:  # one ahead may still arrive at this rung, or never
                return
            earlier = [r.values[rung] for r in ahead if rung in r.values and (r.stopped is None or r.stopped >= rung)]
            if rung == runner.last or goes_on(self.budget, runner.values[rung], earlier):
                runner.passed = rung
            else:
                runner.stopped = rung

    def last_valid_rung(self, number: int) -> int:
        """The last rung that counts, whatever is decided later."""
        runner = self.runners[number]
        return runner.stopped or runner.passed

    def is_pending(self, number: int) -> bool:
        """Whether the trial is not to be trained on before its verdict."""
        return False

    def close(self) -> None:
        """Note that no other trial begins: what waits for one is decided without it."""


class Halving(Verdicts):
    """Asynchronous successive halving in which trials wait for each other (after ASHA, Li et al. 2020, algorithm 2).

    The trials of a group that arrive at a rung are taken in cohorts of eta: at the first rung in the order of their
    numbers, at the others in the order in which they were let through. When the last of a cohort is there, those of the
    cohort go on that are among the best 1/eta of all that have been there. So no trial goes on for being the first, and
    none is trained while its verdict is open. After `close` a last cohort can be smaller, and the best of a group goes on
    in any case.
    """

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.eta = budget.eta
        self.closed = False

    def close(self) -> None:
        """Note that no other trial begins."""
        self.closed = True

    def last_valid_rung(self, number: int) -> int:
        """The rung at which it waits, too: it is trained no further before its verdict, but where that had not been heard."""
        runner = self.runners[number]
        return runner.stopped or min(runner.passed + 1, max(runner.values, default=0))

    def is_pending(self, number: int) -> bool:
        """Whether it is at a rung without a verdict."""
        runner = self.runners[number]
        return not runner.settled and runner.passed + 1 in runner.values

    def decide(self) -> None:
        """Judge every cohort that is whole, from the first rung up."""
        for numbers in self._groups.values():
            queue, rung, closed = numbers, 1, self.closed
            while queue:
                arrived, missing = self._arrived(queue, rung)
                closed = closed and not missing  # nobody else comes to this rung, nor to the next one
                queue, rung = self._let_through(arrived, rung, closed), rung + 1

    def _arrived(self, queue: list[int], rung: int) -> tuple[list[int], bool]:
        """Who of a queue is to be judged, up to the first that may still come; and whether there is such a one."""
        arrived = []
        for number in queue:
            runner = self.runners[number]
            if rung in runner.values:
                if rung == runner.last:
                    runner.passed = rung
                else:
                    arrived.append(number)
            elif not runner.failed:
                return arrived, True
        return arrived, False

    def _let_through(self, arrived: list[int], rung: int, closed: bool) -> list[int]:
        """Judge the cohorts of a rung; those that go on, in the order of going on."""
        going: list[int] = []
        rising: list[float] = []  # the values of all that have been judged, without NaN
        for start in range(0, len(arrived), self.eta):
            cohort = [self.runners[number] for number in arrived[start : start + self.eta]]
            if len(cohort) < self.eta and not closed:
                break
            for value in (runner.values[rung] for runner in cohort):
                if not math.isnan(value):
                    bisect.insort(rising, value)
            least = least_of_best(rising, self.eta)
            for number, runner in zip(arrived[start:], cohort, strict=False):
                if runner.values[rung] >= least:
                    runner.passed = max(runner.passed, rung)
                    going.append(number)
                else:
                    runner.stopped = rung
        return going


def stopping_for(budget: Budget, objectives: int = 1, requested: Stopping | None = None) -> Stopping:
    """The rule of a search: `requested`, or the space's.

    With several objectives what is suggested follows from trials that have ended: none can wait for later ones, and halving
    is asha, or an error if it was requested.
    """
    rule = requested or budget.stopping
    if rule != "halving" or objectives == 1:
        return rule
    if requested:
        raise InputError(
            "--stopping halving: with several --objectives suggestions follow from trials that have ended, and none can wait "
            "for later ones; expected --stopping asha"
        )
    return "asha"


def waits_at_rungs(budget: Budget) -> bool:
    """Whether trials wait for their verdicts, which are then students that can be chosen."""
    return budget.stopping == "halving"
