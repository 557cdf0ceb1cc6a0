"""The results that a suggestion may follow from in a search by successive halving, however many trials run at once.

The trials up to n - `max_pending` are judged by themselves (`search.stopping.Halving`), as far as they can be without later
ones. Each of them has then ended, or waits at a rung for a trial that comes later; of those that wait, the rungs that they
have reported count. So what is visible does not depend on how far the search is, and a sampler can learn although trials
wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState, create_trial

from distilbench.codes import competition_key
from distilbench.search.stopping import Halving
from distilbench.search.study import LAST, PARAMS, STEPS, rung_key, trial_rungs
from distilbench.trials.budget import Budget

TrialLookup = Callable[[int], FrozenTrial | None]
"""A trial by its number, RUNNING with its rungs where it has not ended; None where nothing is known of it."""


class VisibleHistory:
    """The first trials of a search, as they stand without the others."""

    def __init__(self, budget: Budget) -> None:
        self.verdicts, self.entered = Halving(budget), 0
        self._final: dict[int, FrozenTrial] = {}
        """Trials of which nothing more will be known."""
        self._stopped: dict[tuple[int, int], FrozenTrial] = {}
        """Trials that wait, by number and rung."""
        self._last_answer: list[FrozenTrial] = []

    def first(self, count: int, params: Sequence[Mapping[str, Any]], lookup: TrialLookup) -> list[FrozenTrial] | None:
        """The first `count` trials, whose hyper-parameters are `params`; None while one of them is still to be trained.

        A trial that waits is PRUNED at its rung.
        """
        if count == len(self._last_answer):
            return self._last_answer
        for number in range(self.entered, count):
            self.verdicts.enter(number, competition_key(dict(params[number])))
        self.entered = max(self.entered, count)
        open_trials: dict[int, FrozenTrial] = {}
        for number in (n for n in range(count) if n not in self._final):
            if (trial := lookup(number)) is None:
                return None
            open_trials[number] = trial
            self._report(number, trial)
        self.verdicts.decide()
        visible = dict(self._final)
        for number, trial in open_trials.items():
            if (seen := self._as_visible(number, trial)) is None:
                return None
            visible[number] = seen
        self._last_answer = [visible[number] for number in range(count)]
        return self._last_answer

    def _report(self, number: int, trial: FrozenTrial) -> None:
        for rung, value in judged_rungs(trial).items():
            self.verdicts.report(number, rung, value)
        if (last := trial.user_attrs.get(LAST)) is not None:
            self.verdicts.finish(number, last)
        # One that is PRUNED may have been stopped when the search was shorter: it goes no further, whatever is decided.
        if trial.state in (TrialState.FAIL, TrialState.PRUNED):
            self.verdicts.fail(number)

    def _as_visible(self, number: int, trial: FrozenTrial) -> FrozenTrial | None:
        if self.verdicts.is_pending(number):
            at = number, self.verdicts.passed(number) + 1
            if at not in self._stopped:
                self._stopped[at] = stopped_at(trial, at[1])
            return self._stopped[at]
        if not (self.verdicts.is_settled(number) and trial.state.is_finished()):
            return None
        self._final[number] = trial
        return trial


def judged_rungs(trial: FrozenTrial) -> dict[int, float]:
    """The objectives by which a trial is judged: at each rung after its start at which it had not collapsed."""
    rungs = {rung: values for rung, values in trial_rungs(trial).items() if rung and not values.get("collapsed")}
    return {rung: math.nan if values["objective"] is None else values["objective"] for rung, values in rungs.items()}


def stopped_at(trial: FrozenTrial, last: int) -> FrozenTrial:
    """The trial as it would be, had it been stopped at this rung."""
    rungs = {rung: values for rung, values in trial_rungs(trial).items() if rung <= last}
    return create_trial(
        state=TrialState.PRUNED,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={
            PARAMS: trial.user_attrs[PARAMS],
            STEPS: rungs[last]["step"],
            **{rung_key(rung): values for rung, values in rungs.items()},
        },
        intermediate_values={rung: value for rung, value in judged_rungs(trial).items() if rung <= last},
    )
