"""Suggestions that do not depend on how many trials run at once, nor on interruptions.

Optuna's sampler sees a study in memory, in which trials are asked for and told in the order of their numbers: before trial n
is asked for, the trials up to n - lag are told, and no other. So any number of workers up to `lag` gets the same trials, and
an interrupted search repeats the same asks and tells, then goes on as if nothing had been.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from distilbench.search.known import Known, KnownTrials
from distilbench.search.moving import Moving
from distilbench.search.samplers import GENERATIONS
from distilbench.search.space import GIVEN, SearchSpace
from distilbench.search.stopping import LEARNS_NOTHING, waits_at_rungs
from distilbench.search.study import starts_after, trial_params
from distilbench.search.transfer import TURN, best_elsewhere, is_at

MakeSampler = Callable[[int], optuna.samplers.BaseSampler]
"""Number of trials that are taken as they are -> a fresh sampler; another number gives another stream of random draws."""
Finished = Known
"""A finished trial by its number; None where it has not finished, or, with halving, as it is: RUNNING, with its rungs."""
IsOver = Callable[[Sequence[FrozenTrial], int], str]
"""(Trials that the next suggestion may depend on, its number) -> why the search ends before it; "" where it goes on."""
INTERSECTION = GENERATIONS | {"gp"}
"""Searchers that model only the parameters which every trial has: one trial without a parameter would blind them to it."""
STREAMS = 1_000_003
"""Between the seeds of the samplers of two students."""
LAG = 8
"""Trials that may be under way when the next is suggested, at least: the same on a small machine as on a larger one."""


def default_lag(at_once: int) -> int:
    """How far apart trials are suggested where the user does not say it and so many run at once.

    Above 8 twice as many: with as many as run at once, the slowest of them would hold up all the others.
    """
    return LAG if at_once <= LAG else 2 * at_once


def never_over(told: Sequence[FrozenTrial], number: int) -> str:
    """A search that goes on to its last trial."""
    return ""


class Suggestions:
    """What is suggested for trial 0, 1, 2, ... `starts` are the values that are given to the first ones of them.

    With `lag` 0 every finished trial is told before the next is asked for, in whatever order they finish.
    With `transfer` every other trial of an output dimension is given what did best at the others (`search.transfer`).
    With successive halving, in which trials wait for later ones, a suggestion that depends on results follows from what
    `search.known` says of the trials up to n - lag.
    """

    def __init__(
        self,
        make_sampler: MakeSampler,
        directions: Sequence[str],
        space: SearchSpace,
        starts: Sequence[dict[str, Any]],
        lag: int,
        history: Sequence[FrozenTrial] = (),
        moving: Callable[[], Moving] = lambda: Moving(None, ()),
        transfer: bool = False,
        is_over: IsOver = never_over,
    ) -> None:
        self.make_sampler, self.directions, self.space = make_sampler, list(directions), space
        self.starts, self.lag, self.history, self.make_moving = starts, lag, history, moving
        self.transfer, self.is_over = transfer, is_over
        self._repeating = False
        self.over = ""
        """Why no other trial is suggested, where the search has found enough."""
        self._begin(0)

    def _begin(self, trials_taken: int) -> None:
        self._taken, self.moving = trials_taken, self.make_moving()
        self.rested = False
        """Whether there is nothing more to ask for, since no student moves the front any more."""
        self._studies: dict[str | None, optuna.Study] = {}
        for trial in self.history:
            if self.space.searcher in GENERATIONS:
                self._end(self._as_begun(trial), trial)
            elif self._visible(trial):
                self.study_of(trial.params.get("student")).add_trial(trial)
        self.asked: list[optuna.Trial] = []
        self.params: list[dict[str, Any]] = []
        """All hyper-parameters of each trial that was asked for."""
        self._untold: list[int] = []
        self.known = KnownTrials(self.space.budget)
        self._told_trials: dict[int, tuple[FrozenTrial, FrozenTrial]] = {}
        """By identity: a trial that ended, or waits, and the same for a sampler."""

    @property
    def waits(self) -> bool:
        """Whether trials wait at rungs for later ones."""
        return waits_at_rungs(self.space.budget)

    @property
    def learns(self) -> bool:
        """Whether a suggestion depends on the results of earlier trials."""
        return self.space.searcher not in LEARNS_NOTHING or self.transfer or self.is_over is not never_over

    def _study_for(self, student: str | None, finished: Finished) -> optuna.Study:
        """The study that the next trial of a student is asked for in."""
        study = self.study_of(student)
        if not (self.waits and self.learns):
            return study
        told = self._told(finished)
        made = optuna.create_study(directions=self.directions, sampler=study.sampler, pruner=optuna.pruners.NopPruner())
        ended = [t for t in map(self._for_sampler, (*self.history, *told)) if self._is_of(t.params, student)]
        made.add_trials([t for t in ended if self._visible(t)])
        for asked_trial in self.asked[len(told) :]:
            if self._is_of(asked_trial.params, student) and self._visible(asked_trial):
                made.add_trial(_Told.of(TrialState.RUNNING, asked_trial.params, asked_trial.distributions))
        return made

    def _for_sampler(self, trial: FrozenTrial) -> FrozenTrial:
        """A finished trial without its metrics, made once."""
        if id(trial) not in self._told_trials:
            self._told_trials[id(trial)] = trial, _as_ended(trial)
        return self._told_trials[id(trial)][1]

    def _is_of(self, params: Mapping[str, Any], student: str | None) -> bool:
        return student is None or params.get("student") == student

    def study_of(self, student: str | None) -> optuna.Study:
        """The sampler's study of one student, where the student is searched: values of other students say nothing of it."""
        if student not in self._studies:
            students = self.space.students
            stream = students.index(student) if student in students else 0
            sampler = self.make_sampler(self._taken + STREAMS * stream)
            self._studies[student] = optuna.create_study(
                directions=self.directions, sampler=sampler, pruner=optuna.pruners.NopPruner()
            )
        return self._studies[student]

    def due(self, number: int) -> range:
        """The trials that have to be finished before trial `number` can be asked for.

        With halving a trial can wait for trials that begin after it: none has to be finished.
        """
        return range(0) if self.waits else self._before(number)

    def _before(self, number: int) -> range:
        """With halving there is no lag of 0: what has ended by chance would be the worst of all."""
        lag = (self.lag or LAG) if self.waits else self.lag
        return range(max(0, number - lag + 1)) if lag else range(0)

    def _is_known(self, finished: Finished) -> bool:
        """Whether everything is known that the next suggestion depends on."""
        if not (self.waits and self.learns):
            return True
        return self.known.first(len(self._before(len(self.asked))), self.params, finished) is not None

    def ask(self, finished: Finished) -> dict[str, Any] | None:
        """The next trial's hyper-parameters; None while a trial that is due has not finished, and where enough is found."""
        number = len(self.asked)
        if not self._is_known(finished) or self.ends(finished) or not self._catch_up(finished, self.due(number)):
            return None
        start = dict(self.starts[number]) if number < len(self.starts) else {}
        searched = "student" in self.space.parameters
        students: list[Any] = list(self.space.students) if searched else [None]
        if start.keys() - GIVEN:  # somebody chose it: it is tried in any case
            going = students
        else:
            going = [student for student in students if not self.moving.rests(student)]
            if not going:  # unless a trial that is under way moves something
                if not self._catch_up(finished, range(number)):
                    return None
                going = [student for student in students if not self.moving.rests(student)]
                if not going:
                    self.rested = True
                    return None
            if start.get("student") not in going:
                start.pop("student", None)
        if searched:
            start.setdefault("student", going[number % len(going)])
        if self.transfer and not start.keys() - GIVEN:
            start |= self._from_elsewhere(start, finished)
        study = self._study_for(start.get("student") if searched else None, finished)
        if start or number < len(self.starts):
            study.enqueue_trial(self.space.in_study(start)[0])
        trial_now = study.ask()
        params = self.space.suggest(trial_now)
        self._add(trial_now, params)
        return params

    def ends(self, finished: Finished) -> bool:
        """Whether no other trial is suggested, since enough is found."""
        if self.over or self._repeating or self.is_over is never_over:
            return bool(self.over)
        if self._is_known(finished) and self._catch_up(finished, self.due(len(self.asked))):
            self.over = self.is_over(self._told(finished), len(self.asked))
        return bool(self.over)

    def _from_elsewhere(self, given: dict[str, Any], finished: Finished) -> dict[str, Any]:
        """What did best at the other dimensions, where it is the turn of that; from the trials that are told by now."""
        before = sum(is_at(params, given) for params in self.params)
        if before % TURN != TURN - 1:
            return {}
        return best_elsewhere(given, self.params, self._told(finished), self.space)

    def _told(self, finished: Finished) -> list[FrozenTrial]:
        """The trials that the next suggestion may depend on."""
        if self.waits:
            return self.known.first(len(self._before(len(self.asked))), self.params, finished) or []
        untold = set(self._untold)
        return [trial for n in range(len(self.asked)) if n not in untold and (trial := finished(n)) is not None]

    def _add(self, trial: optuna.Trial, params: dict[str, Any]) -> None:
        self._untold.append(len(self.asked))
        self.asked.append(trial)
        self.params.append(params)

    def _catch_up(self, finished: Finished, due: range) -> bool:
        """Tell what is due before the next trial; whether all of it has finished."""
        for earlier in list(self._untold):
            if self.lag and earlier not in due:
                break
            trial = finished(earlier)
            if trial is not None:
                self._end(self.asked[earlier], trial)
                self.moving.tell(trial)
                self._untold.remove(earlier)
            elif self.lag or due:
                return False
        return True

    def _end(self, asked_trial: optuna.Trial, finished: FrozenTrial) -> None:
        if not self._visible(finished):
            asked_trial.study.tell(asked_trial, state=TrialState.FAIL)
            return
        if len(self.directions) == 1:
            for rung, value in finished.intermediate_values.items():
                asked_trial.report(value, rung)
        complete = finished.state == TrialState.COMPLETE
        asked_trial.study.tell(asked_trial, finished.values if complete else None, finished.state)

    def repeat(self, trials: Sequence[FrozenTrial], taken: int = 0) -> None:
        """Bring an interrupted search to where it was: `trials` are those that it has begun, by number.

        The first `taken` of them come from another search space and are taken as they are. All are, where other settings
        come out than they have (Optuna is another one now; without a lag, that is usual).
        """
        by_number = {t.number: t for t in trials if self.waits or t.state.is_finished()}
        if taken:
            self.starts = starts_after(self.starts, trials[:taken])
            self._take(trials[:taken], by_number.get)
        self._repeating = True  # these have begun
        for trial in trials[taken:]:
            params = self.ask(by_number.get)
            if params is None or self.asked[-1].params != trial.params:
                self._take(trials, by_number.get)
                break
        self._repeating = False

    def _take(self, trials: Sequence[FrozenTrial], finished: Finished) -> None:
        self._begin(len(trials))
        for trial in trials:
            self._catch_up(finished, self.due(len(self.asked)))
            self._add(self._as_begun(trial), trial_params(trial))

    def _as_begun(self, trial: FrozenTrial) -> optuna.Trial:
        """Put it into the study as RUNNING, as `ask` would."""
        visible, study = self._visible(trial), self.study_of(trial.params.get("student"))
        study.add_trial(_as_running(trial.params, trial.distributions) if visible else _as_running({}, {}))
        begun = optuna.Trial(study, study.get_trials(deepcopy=False)[-1]._trial_id)
        if self.space.searcher in GENERATIONS:
            _ = begun.relative_params  # drawn for its side effect: the trial's generation
        return begun

    def _visible(self, trial: FrozenTrial | optuna.Trial) -> bool:
        """Whether the sampler can use it: the trial has all parameters that the space searches, or may lack some."""
        if self.space.searcher not in INTERSECTION:
            return True
        values = {**self.space.fixed, **self.space.defaults, **trial.params}
        active = (name for name, r in self.space.parameters.items() if r.active(values))
        return all(self.space.searched(name, values)[0] in trial.params for name in active)


class _Told(FrozenTrial):  # type: ignore[misc]
    """A trial that a study made anew for every suggestion is told of. Nothing in it changes but its number there, so that a
    study shares all the rest of it."""

    @classmethod
    def of(
        cls,
        state: TrialState,
        params: Mapping[str, Any],
        distributions: Mapping[str, BaseDistribution],
        value: float | None = None,
        intermediate_values: Mapping[int, float] = MappingProxyType({}),
    ) -> _Told:
        """As `create_trial`, which it spares the check of every value."""
        ended = datetime.now() if state.is_finished() else None
        return cls(
            number=-1, trial_id=-1, state=state, value=value, datetime_start=datetime.now(), datetime_complete=ended,
            params=dict(params), distributions=dict(distributions), user_attrs={}, system_attrs={},
            intermediate_values=dict(intermediate_values),
        )  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any]) -> _Told:
        return copy.copy(self)


def _as_ended(trial: FrozenTrial) -> FrozenTrial:
    """A finished trial without its metrics."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    return _Told.of(trial.state, trial.params, trial.distributions, value, trial.intermediate_values)


def _as_running(params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    return create_trial(state=TrialState.RUNNING, params=dict(params), distributions=dict(distributions))
