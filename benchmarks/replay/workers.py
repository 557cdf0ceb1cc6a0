"""A search on virtual workers: the product's searcher, suggestions and stopping rules, without Ray and without training."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from distilbench.codes import CompetitionKey
from distilbench.search.search_plan import Search
from distilbench.search.searcher import RungScheduler, StudySearcher
from distilbench.search.space import SearchSpace
from distilbench.search.starts import starts_for
from distilbench.search.stopping import Runner, Verdicts
from distilbench.search.study import is_candidate, result_objective, trial_group
from distilbench.search.suggestions import Suggestions, TrialLookup
from distilbench.trials.budget import Budget
from replay.answers import Answers
from replay.tables import Recorded

SLICES = 27
"""Reports of a whole training: a real trial reports every five seconds, and hears there of its verdict."""
PACES = (0.5, 1.0, 1.5, 2.0)
"""How fast a trial trains, drawn for each."""


class Found(NamedTuple):
    """A trial that has ended with a student, or waits with one for its verdict: a search that ends now can choose it."""

    spent: int
    """Steps that all trials together have been trained by then."""
    group: CompetitionKey
    value: float


@dataclass
class Replayed:
    """One search."""

    found: list[Found]
    """In the order in which trials ended."""
    spent: int
    trials: list[FrozenTrial]
    ended_at: float
    """In units of a worker's steps."""


@dataclass(frozen=True, kw_only=True)
class ReplayedSearch(Search):
    """A search with a sampler of its own, whose trials are answered."""

    sampler_of: Callable[[int], optuna.samplers.BaseSampler]
    answers: Answers

    def make_sampler(self, stream: int) -> optuna.samplers.BaseSampler:
        """The benchmark's own."""
        return self.sampler_of(stream)


class Answered(Suggestions):
    """Suggestions whose trials have the settings that answer them, which are what the sampler learns from."""

    search: ReplayedSearch

    def __init__(self, search: ReplayedSearch) -> None:
        self.answers, self.answered = search.answers, list[Recorded]()
        super().__init__(search)

    def ask(self, lookup: TrialLookup) -> dict[str, Any] | None:
        """As the product asks; then the setting that is trained instead takes the suggested one's place."""
        params = super().ask(lookup)
        if params is None:
            return None
        setting = self.answers.answer(params)
        self.answered.append(setting)
        drawn, distributions = self.space.in_study(setting.searched)
        attrs = self.asked[-1].system_attrs
        self.asked[-1] = create_trial(
            state=TrialState.RUNNING, params=drawn, distributions=distributions, system_attrs=attrs
        )
        return dict(setting.params)


class Brackets(Verdicts):
    """Hyperband's brackets (Li et al. 2018; asynchronous as in Li et al. 2020): every bracket is an ASHA that begins a rung
    later than the one before it, and trials take turns among them as often as they are cheap."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        rungs, eta = budget.rungs, budget.eta
        shares = [(bracket, -(-rungs * eta**bracket // (bracket + 1))) for bracket in reversed(range(rungs))]
        turns = [(k / share, rungs - 1 - bracket) for bracket, share in shares for k in range(share)]
        self.turns = [skipped for _, skipped in sorted(turns)]
        self._spared: dict[int, int] = {}

    def enter(self, number: int, group: Any) -> None:
        """A trial begins, in the bracket whose turn it is."""
        self._spared[number] = self.turns[number % len(self.turns)]
        super().enter(number, (group, self._spared[number]))

    def _decide(self, number: int, ahead: list[Runner], reached: float) -> None:
        runner = self.runners[number]
        while runner.passed < self._spared.get(number, 0) and runner.passed + 1 in runner.values:
            runner.passed += 1
        super()._decide(number, ahead, reached)


@dataclass
class _Events:
    """What ended, and after how many steps of all trials."""

    found: list[Found] = field(default_factory=list)
    trials: list[FrozenTrial] = field(default_factory=list)
    spent: int = 0
    student_of: Callable[[int], tuple[CompetitionKey, float]] = field(kw_only=True)
    """A trial by its number -> its group, and the objective of the student that it has so far (NaN: none)."""

    def started(self, number: int, params: dict[str, Any]) -> None:
        pass

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        pass

    def waiting(self, number: int) -> None:
        self._find(*self.student_of(number))

    def finished(self, trial: FrozenTrial) -> None:
        self.trials.append(trial)
        if is_candidate(trial):
            self._find(trial_group(trial), result_objective(trial))

    def _find(self, group: CompetitionKey, value: float) -> None:
        if value == value:
            self.found.append(Found(self.spent, group, value))


def replay(
    space: SearchSpace,
    answers: Answers,
    sampler_of: Callable[[int], optuna.samplers.BaseSampler],
    *,
    wanted: int,
    limit: float,
    workers: int,
    max_pending: int,
    seed: int,
    hyperband: bool = False,
    suggestions_type: type[Answered] = Answered,
    **more: Any,
) -> Replayed:
    """Search until `wanted` trials have ended, or `limit` steps are spent.

    `sampler_of` makes a sampler for a stream of draws; `seed` draws how fast trials train.
    """
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler())
    search = ReplayedSearch(
        name="replayed",
        space=space,
        objectives=("quality",),
        wanted=wanted,
        starts=more.pop("starts", starts_for(space, wanted)),
        max_pending=max_pending,
        seed=seed,
        sampler_of=sampler_of,
        answers=answers,
        **more,
    )

    class Searcher(StudySearcher):
        pass

    Searcher.suggestions_type = suggestions_type

    def student_of(number: int) -> tuple[CompetitionKey, float]:
        setting = searcher.suggestions.answered[number]
        so_far = [rung for rung in setting.rungs if rung["step"] <= at[number]]
        return setting.group, Recorded(setting.params, setting.searched, so_far).judged

    events = _Events(student_of=student_of)
    searcher = Searcher(study, search, workers, events)
    if hyperband:
        searcher.verdicts = Brackets(space.budget)
    scheduler, paces = RungScheduler(searcher), random.Random(seed)
    queue: list[tuple[float, int, int, str]] = []
    at: dict[int, int] = {}
    now, idle, count = 0.0, workers, 0
    pace: dict[int, float] = {}
    while events.spent < limit:
        while idle:
            suggested = searcher.suggest(str(count))
            if not isinstance(suggested, dict):
                break
            number = int(suggested["number"])
            pace[number] = pace.get(number) or paces.choice(PACES)
            searcher.begun(str(count))
            at.setdefault(number, 0)  # it may have waited for its verdict
            heapq.heappush(
                queue, (now + _slice(searcher.suggestions.answered[number]) / pace[number], number, count, str(count))
            )
            count, idle = count + 1, idle - 1
        if not queue:
            break
        now, number, _, trial_id = heapq.heappop(queue)
        setting = searcher.suggestions.answered[number]
        before, last = at[number], _last(setting)
        at[number] = min(last, before + _slice(setting))
        events.spent += at[number] - before
        result = _result(setting, at[number])
        if result["done"]:
            searcher.on_trial_complete(trial_id, result)
        elif scheduler.on_trial_result(None, _Tune(trial_id), result) == "STOP":
            searcher.on_trial_complete(trial_id, result)
        else:
            heapq.heappush(queue, (now + _slice(setting) / pace[number], number, count, trial_id))
            continue
        idle += 1
    return Replayed(events.found, events.spent, events.trials, now)


class _Tune(NamedTuple):
    """A trial as Tune's scheduler sees it."""

    trial_id: str


def _last(setting: Recorded) -> int:
    return max((int(rung["step"]) for rung in setting.rungs), default=1) or 1


def _slice(setting: Recorded) -> int:
    return max(1, -(-_last(setting) // SLICES))


def _result(setting: Recorded, step: int) -> dict[str, Any]:
    """What a worker says after so many steps."""
    rungs, done = [rung for rung in setting.rungs if rung["step"] <= step], step >= _last(setting)
    failed = setting.failed if done else ""
    return {"rungs": rungs, "halt": "", "failed": failed, "collapsed": bool(failed), "done": done, "step": step}
