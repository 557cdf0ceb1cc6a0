"""Suggestions that do not depend on how many trials run at once, nor on interruptions.

Optuna's sampler sees a study in memory, in which trials are asked for and told in the order of their numbers: before trial n
is asked for, the trials up to n - `max_pending` are told, and no other. So any number of workers up to `max_pending` gets the
same trials, and an interrupted search repeats the same asks and tells, then goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from distilbench.search.objectives import directions
from distilbench.search.samplers import GENERATIONS, LEARNS_NOTHING
from distilbench.search.search_plan import Search
from distilbench.search.space import GIVEN
from distilbench.search.stopping import waits_at_rungs
from distilbench.search.study import trial_params
from distilbench.search.visible_history import TrialLookup, VisibleHistory

INTERSECTION = GENERATIONS | {"gp"}
"""Searchers that model only the parameters which every trial has: one trial without a parameter would blind them to it."""
STREAMS = 1_000_003
"""Between the seeds of the samplers of two students."""
MAX_PENDING = 8
"""Unfinished trials that the sampler ignores, at least: the same on a small machine as on a larger one."""


def default_max_pending(at_once: int) -> int:
    """The number of unfinished trials that the sampler ignores by default, if so many run at once.

    Above 8 twice as many: with as many as run at once, the slowest of them would hold up all the others.
    """
    return MAX_PENDING if at_once <= MAX_PENDING else 2 * at_once


class Suggestions:
    """Suggests trial 0, 1, 2, ... of a search.

    With successive halving, in which trials wait for later ones, a suggestion that depends on results follows from the
    `VisibleHistory` of the trials up to n - `max_pending`.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.space, self.directions = search, search.space, directions(search.objectives)
        self.waits = waits_at_rungs(self.space.budget)
        self._rebuilds = self.waits and self.space.searcher not in LEARNS_NOTHING
        """Whether every suggestion has a study of its own, since what is visible of a trial that waits changes."""
        self._begin(stream=0)

    def _begin(self, stream: int) -> None:
        self._stream, self.patience = stream, self.search.make_patience()
        self.exhausted = False
        """Whether there is nothing more to ask for, since no student improves the front any more."""
        self.asked: list[optuna.Trial] = []
        self.params: list[dict[str, Any]] = []
        """All hyper-parameters of each trial that was asked for."""
        self._reported = 0
        self._studies: dict[str | None, optuna.Study] = {}
        self._visible_history = VisibleHistory(self.space.budget)
        self._slim: dict[int, tuple[FrozenTrial, FrozenTrial]] = {}
        """By identity: a trial that ended, or waits, and the same for a sampler."""

    def study_of(self, student: str | None) -> optuna.Study:
        """The sampler's study of one student, where the student is searched: values of other students say nothing of it."""
        if student not in self._studies:
            students = self.space.students
            stream = students.index(student) if student in students else 0
            self._studies[student] = self._new_study(self.search.make_sampler(self._stream + STREAMS * stream))
        return self._studies[student]

    def _new_study(self, sampler: optuna.samplers.BaseSampler) -> optuna.Study:
        return optuna.create_study(directions=self.directions, sampler=sampler, pruner=optuna.pruners.NopPruner())

    def ask(self, lookup: TrialLookup) -> dict[str, Any] | None:
        """Suggest the next trial's hyper-parameters.

        None while a trial that the suggestion depends on has not finished, and once the search is `exhausted`.
        """
        number = len(self.asked)
        visible: list[FrozenTrial] | None = []
        if self._rebuilds:
            visible = self._visible_history.first(self._visible_count(number), self.params, lookup)
        elif not self.waits and not self._report(lookup, self._visible_count(number)):
            return None
        start = None if visible is None else self._start(number, lookup)
        if visible is None or start is None:
            return None
        student = start.get("student") if "student" in self.space.parameters else None
        study = self._rebuilt(student, visible) if self._rebuilds else self.study_of(student)
        if start or number < len(self.search.starts):
            study.enqueue_trial(self.space.in_study(start)[0])
        trial = study.ask()
        params = self.space.suggest(trial)
        self.asked.append(trial)
        self.params.append(params)
        return params

    def _visible_count(self, number: int) -> int:
        """The number of trials, from the first on, that the suggestion of trial `number` depends on."""
        return max(0, number - self.search.max_pending + 1)

    def _start(self, number: int, lookup: TrialLookup) -> dict[str, Any] | None:
        """The values that trial `number` is given; None where no student improves the front (any more, or for now)."""
        start = dict(self.search.starts[number]) if number < len(self.search.starts) else {}
        searched = "student" in self.space.parameters
        students: list[Any] = list(self.space.students) if searched else [None]
        if not start.keys() - GIVEN:  # what somebody chose is tried in any case
            every, students = students, self._improving(students)
            if not students and self._report(lookup, number):  # a trial that was under way may have improved something
                students = self._improving(every)
                self.exhausted = not students
            if not students:
                return None
            if start.get("student") not in students:
                start.pop("student", None)
        if searched:
            start.setdefault("student", students[number % len(students)])
        return start

    def _improving(self, students: Sequence[Any]) -> list[Any]:
        return [student for student in students if not self.patience.is_exhausted(student)]

    def _report(self, lookup: TrialLookup, count: int) -> bool:
        """Report the first `count` trials to the sampler, in their order. Returns True when all of them have finished."""
        while self._reported < count:
            trial = lookup(self._reported)
            if trial is None:
                return False
            self._end(self.asked[self._reported], trial)
            self.patience.report(trial)
            self._reported += 1
        return True

    def _end(self, asked_trial: optuna.Trial, finished: FrozenTrial) -> None:
        if not self._has_all_parameters(finished):
            asked_trial.study.tell(asked_trial, state=TrialState.FAIL)
            return
        if len(self.directions) == 1:
            for rung, value in finished.intermediate_values.items():
                asked_trial.report(value, rung)
        complete = finished.state == TrialState.COMPLETE
        asked_trial.study.tell(asked_trial, finished.values if complete else None, finished.state)

    def _rebuilt(self, student: str | None, visible: Sequence[FrozenTrial]) -> optuna.Study:
        """A study for one suggestion: the visible trials of a student as they stand, the later ones RUNNING."""
        study = self._new_study(self.study_of(student).sampler)
        for trial in (*map(self._for_sampler, visible), *self.asked[len(visible) :]):
            if student in (None, trial.params.get("student")) and self._has_all_parameters(trial):
                study.add_trial(trial if isinstance(trial, FrozenTrial) else _running(trial))
        return study

    def _for_sampler(self, trial: FrozenTrial) -> FrozenTrial:
        """A finished trial without its metrics, made once: they are most of what is copied for every suggestion."""
        if id(trial) not in self._slim:
            slim = create_trial(
                state=trial.state,
                value=trial.value if trial.state == TrialState.COMPLETE else None,
                params=trial.params,
                distributions=trial.distributions,
                intermediate_values=trial.intermediate_values,
            )
            self._slim[id(trial)] = trial, slim
        return self._slim[id(trial)][1]

    def repeat(self, trials: Sequence[FrozenTrial]) -> None:
        """Bring an interrupted search to where it was: `trials` are those that it has begun, by number.

        Where other settings come out than they have (such as of another version of Optuna), all are taken as they are.
        """
        by_number = {t.number: t for t in trials if self.waits or t.state.is_finished()}
        for trial in trials:
            if self.ask(by_number.get) is None or self.asked[-1].params != trial.params:
                self._take(trials, by_number.get)
                break

    def _take(self, trials: Sequence[FrozenTrial], lookup: TrialLookup) -> None:
        self._begin(stream=len(trials))
        for number, trial in enumerate(trials):
            if not self.waits:
                self._report(lookup, self._visible_count(number))
            self.asked.append(self._as_begun(trial))
            self.params.append(trial_params(trial))

    def _as_begun(self, trial: FrozenTrial) -> optuna.Trial:
        """Put it into the study as RUNNING, as `ask` would."""
        whole, study = self._has_all_parameters(trial), self.study_of(trial.params.get("student"))
        params, distributions = (trial.params, trial.distributions) if whole else ({}, {})
        study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))
        begun = optuna.Trial(study, study.get_trials(deepcopy=False)[-1]._trial_id)
        if self.space.searcher in GENERATIONS:
            _ = begun.relative_params  # drawn for its side effect: the trial's generation
        return begun

    def _has_all_parameters(self, trial: FrozenTrial | optuna.Trial) -> bool:
        """Whether the sampler can use it: the trial has all parameters that the space searches, or may lack some."""
        if self.space.searcher not in INTERSECTION:
            return True
        values = {**self.space.fixed, **self.space.defaults, **trial.params}
        active = (name for name, r in self.space.parameters.items() if r.active(values))
        return all(self.space.searched(name, values)[0] in trial.params for name in active)


def _running(trial: optuna.Trial) -> FrozenTrial:
    return create_trial(state=TrialState.RUNNING, params=trial.params, distributions=trial.distributions)
