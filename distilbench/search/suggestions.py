"""Suggestions that do not depend on how many trials run at once, nor on interruptions.

For every suggestion Optuna's sampler sees a study in memory with the trials before it: those up to n - `max_pending` as they
ended, the later ones RUNNING. So any number of workers up to `max_pending` gets the same trials, and an interrupted search
repeats the same suggestions, then goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
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
    """The number of unfinished trials that the sampler ignores, if so many run at once.

    Above 8 twice as many: with as many as run at once, the slowest of them would hold up all the others.
    """
    return MAX_PENDING if at_once <= MAX_PENDING else 2 * at_once


class Suggestion(NamedTuple):
    """What was suggested for a trial: the parameters that were drawn, and what the sampler keeps of it."""

    params: dict[str, Any]
    distributions: dict[str, BaseDistribution]
    system_attrs: Mapping[str, Any]


class Suggestions:
    """Suggests trial 0, 1, 2, ... of a search.

    With successive halving, in which trials wait for later ones, a suggestion that depends on results follows from the
    `VisibleHistory` of the trials up to n - `max_pending`.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.space, self.directions = search, search.space, directions(search.objectives)
        self.waits = waits_at_rungs(self.space.budget)
        self._begin(stream=0)

    def _begin(self, stream: int) -> None:
        self._stream, self.patience = stream, self.search.make_patience()
        self.exhausted = False
        """Whether there is nothing more to ask for, since no student improves the front any more."""
        self.asked: list[Suggestion] = []
        self.params: list[dict[str, Any]] = []
        """All hyper-parameters of each trial that was asked for."""
        self._reported = 0
        self._samplers: dict[str | None, BaseSampler] = {}
        self._kept: dict[str | None, dict[str, Any]] = {}
        """By student: what its sampler keeps of the study, such as the parents of a generation."""
        self._visible_history = VisibleHistory(self.space.budget)
        self._slim: dict[int, tuple[FrozenTrial, FrozenTrial]] = {}
        """By identity: a trial that ended, or waits, and the same for a sampler."""

    def ask(self, lookup: TrialLookup) -> dict[str, Any] | None:
        """Suggest the next trial's hyper-parameters.

        None while a trial that the suggestion depends on has not finished, and once the search is `exhausted`.
        """
        number = len(self.asked)
        visible = self._visible(max(0, number - self.search.max_pending + 1), lookup)
        start = None if visible is None else self._start(number, lookup)
        if visible is None or start is None:
            return None
        student = start.get("student") if "student" in self.space.parameters else None
        study = self._study(student, visible)
        if start or number < len(self.search.starts):
            study.enqueue_trial(self.space.in_study(start)[0])
        trial = study.ask()
        params = self.space.suggest(trial)
        attrs = study.get_trials(deepcopy=False)[-1].system_attrs
        self._kept[student] = study._storage.get_study_system_attrs(study._study_id)
        self.asked.append(Suggestion(trial.params, trial.distributions, attrs))
        self.params.append(params)
        return params

    def _visible(self, count: int, lookup: TrialLookup) -> list[FrozenTrial] | None:
        """The first `count` trials as the sampler sees them; None while one of them has not finished."""
        if self.waits:
            learns = self.space.searcher not in LEARNS_NOTHING
            return self._visible_history.first(count, self.params, lookup) if learns else []
        finished = [trial for trial in map(lookup, range(count)) if trial is not None]
        return finished if len(finished) == count and self._report(lookup, count) else None

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
        """Count what the first `count` trials have improved. Returns True when all of them have finished."""
        while self._reported < count:
            if (trial := lookup(self._reported)) is None:
                return False
            self.patience.report(trial)
            self._reported += 1
        return True

    def _study(self, student: str | None, visible: Sequence[FrozenTrial]) -> optuna.Study:
        """A study for one suggestion, of the trials of one student: values of other students say nothing of it."""
        if student not in self._samplers:
            students = self.space.students
            stream = students.index(student) if student in students else 0
            self._samplers[student] = self.search.make_sampler(self._stream + STREAMS * stream)
        study = optuna.create_study(
            directions=self.directions, sampler=self._samplers[student], pruner=optuna.pruners.NopPruner()
        )
        for key, value in self._kept.get(student, {}).items():
            study._storage.set_study_system_attr(study._study_id, key, value)
        for number, suggested in enumerate(self.asked):
            if student in (None, suggested.params.get("student")):
                trial = self._for_sampler(suggested, visible[number] if number < len(visible) else None)
                if self._has_all_parameters(trial):
                    study.add_trial(trial)
        return study

    def _for_sampler(self, suggested: Suggestion, ended: FrozenTrial | None) -> FrozenTrial:
        """A trial without its metrics, which are most of what would be copied each time; RUNNING if it is not visible."""
        if ended is not None and id(ended) in self._slim:
            return self._slim[id(ended)][1]
        complete = ended is not None and ended.state == TrialState.COMPLETE
        slim = create_trial(
            state=TrialState.RUNNING if ended is None else ended.state,
            values=ended.values if ended is not None and complete else None,
            params=suggested.params,
            distributions=suggested.distributions,
            system_attrs=dict(suggested.system_attrs),
            intermediate_values=ended.intermediate_values if ended is not None else {},
        )
        if ended is not None:
            self._slim[id(ended)] = ended, slim
        return slim

    def repeat(self, trials: Sequence[FrozenTrial]) -> None:
        """Bring an interrupted search to where it was: `trials` are those that it has begun, by number.

        Where other settings come out than they have (such as of another version of Optuna), all are taken as they are.
        """
        by_number = {t.number: t for t in trials if self.waits or t.state.is_finished()}
        for trial in trials:
            if self.ask(by_number.get) is None or self.asked[-1].params != trial.params:
                self._begin(stream=len(trials))
                self.asked = [Suggestion(t.params, t.distributions, {}) for t in trials]
                self.params = [trial_params(t) for t in trials]
                break

    def _has_all_parameters(self, trial: FrozenTrial) -> bool:
        """Whether the sampler can use it: the trial has all parameters that the space searches, or may lack some."""
        if self.space.searcher not in INTERSECTION:
            return True
        values = {**self.space.fixed, **self.space.defaults, **trial.params}
        active = (name for name, r in self.space.parameters.items() if r.active(values))
        return all(self.space.searched(name, values)[0] in trial.params for name in active)
