"""Suggestions that do not depend on how many trials run at once, nor on interruptions.

For every suggestion Optuna's sampler sees a study in memory with the trials before it: those up to n - `max_pending` as they
ended, the later ones RUNNING. So any number of workers up to `max_pending` gets the same trials, and an interrupted search
repeats the same suggestions, then goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from distilbench.search.objectives import directions
from distilbench.search.search_plan import Search
from distilbench.search.stopping import Halving, waits_at_rungs
from distilbench.search.study import LAST, judged_rungs, trial_group
from distilbench.trials.budget import Budget

STREAMS = 1_000_003
"""Between the seeds of the samplers of two students."""
MAX_PENDING = 8
"""Unfinished trials that the sampler ignores, at least: the same on a small machine as on a larger one."""

TrialLookup = Callable[[int], FrozenTrial | None]
"""A trial by its number, RUNNING with its rungs where it has not ended; None where nothing is known of it."""


def default_max_pending(at_once: int) -> int:
    """The number of unfinished trials that the sampler ignores, if so many run at once.

    Above 8 twice as many: with as many as run at once, the slowest of them would hold up all the others.
    """
    return MAX_PENDING if at_once <= MAX_PENDING else 2 * at_once


def visible_outcomes(budget: Budget, lookup: TrialLookup, count: int) -> list[FrozenTrial] | None:
    """How the first `count` trials of a search by halving ended; None while one of them is still to be trained.

    They are judged by themselves, as far as they can be without later ones. Each has then ended, or waits at a rung for a
    trial that comes later: it counts as PRUNED there. So what is visible does not depend on how far the search is, and a
    sampler can learn although trials wait.
    """
    verdicts = Halving(budget)
    trials = [trial for trial in map(lookup, range(count)) if trial is not None]
    if len(trials) < count:
        return None
    for number, trial in enumerate(trials):
        verdicts.enter(number, trial_group(trial))
        for rung, value in judged_rungs(trial).items():
            verdicts.report(number, rung, value)
        if (last := trial.user_attrs.get(LAST)) is not None:
            verdicts.finish(number, last)
        # One that is PRUNED may have been stopped when the search was shorter: it goes no further, whatever is decided.
        if trial.state in (TrialState.FAIL, TrialState.PRUNED):
            verdicts.fail(number)
    verdicts.decide()
    outcomes = []
    for number, trial in enumerate(trials):
        if verdicts.is_pending(number):
            reached = verdicts.runners[number].passed + 1
            values = {rung: value for rung, value in judged_rungs(trial).items() if rung <= reached}
            outcomes.append(create_trial(state=TrialState.PRUNED, intermediate_values=values))
        elif verdicts.runners[number].settled and trial.state.is_finished():
            outcomes.append(trial)
        else:
            return None
    return outcomes


def _with_end(suggested: FrozenTrial, ended: FrozenTrial | None) -> FrozenTrial:
    """A suggested trial in a sampler's study, with the end of `ended`; RUNNING where that is not visible."""
    return create_trial(
        state=ended.state if ended else TrialState.RUNNING,
        values=ended.values if ended and ended.state == TrialState.COMPLETE else None,
        params=suggested.params,
        distributions=suggested.distributions,
        system_attrs=suggested.system_attrs,
        intermediate_values=dict(ended.intermediate_values) if ended else None,
    )


class Suggestions:
    """Suggests trial 0, 1, 2, ... of a search."""

    def __init__(self, search: Search) -> None:
        self.search, self.space, self.directions = search, search.space, directions(search.objectives)
        self.waits = waits_at_rungs(self.space.budget)
        self._begin(stream=0)

    def _begin(self, stream: int) -> None:
        self._stream = stream
        self.asked: list[FrozenTrial] = []
        """The trials that were suggested: what was drawn, and what the sampler notes of it."""
        self._samplers: dict[str | None, BaseSampler] = {}
        """By student."""

    def ask(self, lookup: TrialLookup) -> dict[str, Any] | None:
        """Suggest the next trial's hyper-parameters; None while a trial that they depend on has not finished."""
        number = len(self.asked)
        visible = self._visible(max(0, number - self.search.max_pending + 1), lookup)
        if visible is None:
            return None
        start = dict(self.search.starts[number]) if number < len(self.search.starts) else {}
        if "student" in self.space.parameters:
            start.setdefault("student", self.space.students[number % len(self.space.students)])
        study = self._study(start.get("student") if "student" in self.space.parameters else None, visible)
        if start or number < len(self.search.starts):
            study.enqueue_trial(self.space.in_study(start)[0])
        params = self.space.suggest(study.ask())
        self.asked.append(study.get_trials(deepcopy=False)[-1])
        return params

    def _visible(self, count: int, lookup: TrialLookup) -> list[FrozenTrial] | None:
        """How the first `count` trials ended; None while one of them has not finished."""
        if self.waits:
            learns = self.space.searcher == "tpe"
            return visible_outcomes(self.space.budget, lookup, count) if learns else []
        finished = [trial for trial in map(lookup, range(count)) if trial is not None]
        return finished if len(finished) == count else None

    def _study(self, student: str | None, visible: Sequence[FrozenTrial]) -> optuna.Study:
        """A study for one suggestion, of the trials of one student: values of other students say nothing of it."""
        if student not in self._samplers:
            students = self.space.students
            stream = students.index(student) if student in students else 0
            self._samplers[student] = self.search.make_sampler(self._stream + STREAMS * stream)
        study = optuna.create_study(
            directions=self.directions, sampler=self._samplers[student], pruner=optuna.pruners.NopPruner()
        )
        for number, suggested in enumerate(self.asked):
            if student in (None, suggested.params.get("student")):
                study.add_trial(_with_end(suggested, visible[number] if number < len(visible) else None))
        return study

    def repeat(self, trials: Sequence[FrozenTrial]) -> None:
        """Bring an interrupted search to where it was: `trials` are those that it has begun, by number.

        Where other settings come out than they have (such as of another version of Optuna), all are taken as they are.
        """
        by_number = {t.number: t for t in trials if self.waits or t.state.is_finished()}
        for trial in trials:
            if self.ask(by_number.get) is None or self.asked[-1].params != trial.params:
                self._begin(stream=len(trials))
                self.asked = list(trials)
                break
