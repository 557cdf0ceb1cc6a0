"""Suggestions that do not depend on how many trials run at once, nor on interruptions.

Optuna's sampler sees a study in memory, in which trials are asked for and told in the order of their numbers: before trial n
is asked for, the trials up to n - lag are told, and no other. So any number of workers up to `lag` gets the same trials, and
an interrupted search repeats the same asks and tells, then goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from distilbench.search.space import SearchSpace

MakeSampler = Callable[[], optuna.samplers.BaseSampler]


class Suggestions:
    """What is suggested for trial 0, 1, 2, ... `starts` are the values that are given to the first ones of them.

    With `lag` 0 every finished trial is told before the next is asked for, in whatever order they finish.
    """

    def __init__(
        self,
        make_sampler: MakeSampler,
        directions: Sequence[str],
        space: SearchSpace,
        starts: Sequence[dict[str, Any]],
        lag: int,
        history: Sequence[FrozenTrial] = (),
    ) -> None:
        self.make_sampler, self.directions, self.space = make_sampler, list(directions), space
        self.starts, self.lag, self.history = starts, lag, history
        self._begin()

    def _begin(self) -> None:
        self.study = optuna.create_study(
            directions=self.directions, sampler=self.make_sampler(), pruner=optuna.pruners.NopPruner()
        )
        for trial in self.history:
            self.study.add_trial(trial)
        self.asked: list[optuna.Trial | None] = []
        self._told: set[int] = set()

    def due(self, number: int) -> range:
        """The trials that have to be finished before trial `number` can be asked for."""
        return range(max(0, number - self.lag + 1)) if self.lag else range(0)

    def ask(self, finished: Callable[[int], FrozenTrial | None]) -> dict[str, Any] | None:
        """The next trial's hyper-parameters; None while a trial that is due has not finished.

        `finished` gives a finished trial by its number.
        """
        number = len(self.asked)
        known = self.due(number) if self.lag else range(number)
        for earlier in (n for n in known if n not in self._told):
            trial = finished(earlier)
            if trial is not None:
                self._tell(earlier, trial)
            elif self.lag:
                return None
        if number < len(self.starts):
            self.study.enqueue_trial(self.starts[number])
        trial_now = self.study.ask()
        self.asked.append(trial_now)
        return self.space.suggest(trial_now)

    def _tell(self, number: int, finished: FrozenTrial) -> None:
        self._told.add(number)
        own = self.asked[number]
        if own is None:  # it was added as a finished trial
            return
        if len(self.directions) == 1:
            for rung, value in finished.intermediate_values.items():
                own.report(value, rung)
        complete = finished.state == TrialState.COMPLETE
        self.study.tell(own, finished.values if complete else None, finished.state)

    def repeat(self, trials: Sequence[FrozenTrial]) -> None:
        """Bring an interrupted search to where it was: `trials` are those that it has begun, by number.

        Where other settings come out than they have (the space or Optuna is another one now), they are taken as they are.
        """
        by_number = {t.number: t for t in trials if t.state.is_finished()}
        for trial in trials:
            params = self.ask(by_number.get)
            own = self.asked[-1] if params is not None else None
            if own is None or own.params != trial.params:
                return self._take(trials)

    def _take(self, trials: Sequence[FrozenTrial]) -> None:
        self._begin()
        for trial in trials:
            if trial.state.is_finished():
                self.study.add_trial(trial)
                self.asked.append(None)
            else:
                self.study.enqueue_trial(trial.params)
                own = self.study.ask()
                self.space.suggest(own)
                self.asked.append(own)
