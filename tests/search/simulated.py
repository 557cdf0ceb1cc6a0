"""A search whose trials are simulated: rung values follow from the parameters, workers are as fast as a seed says."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import event

from distilbench.methods.mcr2 import MCR2Params
from distilbench.search.objectives import directions
from distilbench.search.search_plan import Search, make_sampler
from distilbench.search.searcher import RETRIES, RungScheduler, StudySearcher
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space
from distilbench.search.starts import starts_for
from distilbench.search.study import PARAMS, open_study, study_url

YAML = """
method: mcr2
budget: {trials: 20, steps: 90, rungs: 3, eta: 2, stopping: asha}
parameters:
  output_dim: {choices: [4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true}
  clusters: {low: 2, high: 30}
  pairs: {choices: [duplicates, noise]}
  noise: {low: 0.001, high: 0.1, log: true, when: {pairs: noise}}
fixed: {batch_size: 16, lambda: 1}
enqueue: [{lr: 0.001}]
"""
CHOICES = (
    YAML.replace("enqueue: [{lr: 0.001}]\n", "")
    .replace("{low: 0.0001, high: 0.01, log: true}", "{choices: [0.001, 0.01]}")
    .replace("  clusters: {low: 2, high: 30}\n", "  clusters: {choices: [2, 4, 8]}\n")
)
CHOICES = CHOICES.replace(
    "{low: 0.001, high: 0.1, log: true, when: {pairs: noise}}", "{choices: [0.01], when: {pairs: noise}}"
)


class Killed(BaseException):
    """Stands for SIGKILL."""


def space_of(folder: Path, text: str = YAML, **update: Any) -> SearchSpace:
    """The search space in `text`; `update` replaces its searcher, or entries of its budget."""
    (folder / "space.yaml").write_text(text)
    space = load_space(folder / "space.yaml", "mcr2", MCR2Params, native=32)
    searcher = update.pop("searcher", space.searcher)
    return space.model_copy(update={"searcher": searcher, "budget": space.budget.model_copy(update=update)})


def score(params: dict[str, Any], rung: int) -> float:
    """Dev objective at a rung: best at lr 0.003, with noise that the parameters decide."""
    noise = zlib.crc32(repr((params["lr"], params["clusters"], params["noise"], rung)).encode()) / 2**32
    return rung - (math.log10(params["lr"]) + 2.5) ** 2 - abs(params["clusters"] - 9) / 20 + noise


def ends(params: dict[str, Any]) -> tuple[int, str, bool]:
    """(Rungs that a trial reports, why it fails or "", whether its last rung is the one that collapses)."""
    kind = zlib.crc32(repr((params["lr"], params["clusters"])).encode()) % 12
    if kind < 2:
        return kind + 1, "collapsed", True
    if kind == 2:
        return 1, "loss nan", False
    if kind == 3:
        return 0, "loss nan", False
    return (2 if kind == 4 else 3), "", False  # fewer rungs than the others have


def no_event(*_: Any) -> None:
    """Nothing is shown."""


@dataclass
class Events:
    """What a search tells while it runs."""

    ended: list[FrozenTrial] = field(default_factory=list)
    started = progressed = waiting = staticmethod(no_event)

    def finished(self, trial: FrozenTrial) -> None:
        self.ended.append(trial)


class Tune:
    """A trial as Tune's scheduler sees it."""

    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


@dataclass
class Simulation:
    """A search in one study, in any number of sittings; what is trained is kept between them."""

    study: optuna.Study
    space: SearchSpace
    wanted: int
    max_pending: int = 4
    seed: int = 0
    objectives: tuple[str, ...] = ("quality",)
    given: tuple[dict[str, Any], ...] = ()
    trained: dict[int, int] = field(default_factory=dict)
    """Rungs that each trial has trained to, as its folder knows."""
    outcome: Callable[[dict[str, Any]], tuple[int, str, bool]] = ends
    start: bool = False
    """Whether trials report their start, rung 0, too."""

    def starts(self) -> list[dict[str, Any]]:
        share = len(self.objectives) == 1
        return starts_for(self.space, self.wanted, self.given, share_dimensions=share)

    def searcher(self, workers: int = 1, **more: Any) -> StudySearcher:
        """A new one, over what is in the study."""
        search = Search(
            "simulated",
            self.space,
            self.objectives,
            self.wanted,
            self.starts(),
            self.max_pending,
            self.seed,
        )
        made = StudySearcher(self.study, search, workers, more.pop("events", Events()), **more)
        assert made.remaining >= 0
        return made

    def result(self, number: int, params: dict[str, Any]) -> dict[str, Any]:
        """What a worker says: every rung so far."""
        last, failed, collapsed = self.outcome(params)
        at = self.trained.get(number, 0)
        done = at > last or (at == last and (not failed or collapsed))
        at = min(at, last)
        rungs = [
            {
                "rung": r,
                "step": 10 * r,
                "objective": score(params, r),
                "metrics": {"dev_quality": 50 + score(params, r), "latency_ms": params["lr"] * params["output_dim"]},
            }
            for r in range(0 if self.start else 1, at + 1)
        ]
        failing = failed if done else ""
        return {"rungs": rungs, "halt": "", "failed": failing, "collapsed": bool(failing) and collapsed, "done": done}

    def sit(self, workers: int, speeds: int | None = None, deaths: float = 0.0, **more: Any) -> StudySearcher:
        """Run until nothing is left, or the searcher ends it; `speeds` seeds who goes first at each moment.

        `deaths` is the probability that a worker dies before its report: at work, at most as often as a trial may lose one.
        """
        searcher = self.searcher(workers, **more)
        scheduler, rng = RungScheduler(searcher), random.Random(speeds)
        pace = [rng.choice([1, 1, 3, 10]) for _ in range(workers)]
        lost: Counter[int] = Counter()
        seats: dict[int, tuple[str, dict[str, Any]] | None] = dict.fromkeys(range(workers))
        for turn in range(100_000):
            free = [seat for seat, held in seats.items() if held is None]
            rng.shuffle(free)
            for seat in free:
                suggested = searcher.suggest(f"{turn}-{seat}")
                if isinstance(suggested, dict):
                    seats[seat] = (f"{turn}-{seat}", suggested)
            busy = [seat for seat, held in seats.items() if held is not None]
            if not busy:
                assert suggested == "FINISHED", "every worker is free, and nothing is suggested"
                return searcher
            seat = rng.choices(busy, [pace[s] for s in busy])[0]
            trial_id, suggested = seats[seat]  # type: ignore[misc]
            number = suggested["number"]
            if deaths and rng.random() < deaths and lost[number] < RETRIES:
                if rng.random() < 0.5:
                    searcher.begun(trial_id)
                lost[number] += searcher.live[trial_id].begun
                searcher.on_trial_complete(trial_id, None, error=True)
                seats[seat] = None
                continue
            searcher.begun(trial_id)
            self.trained[number] = self.trained.get(number, 0) + rng.choice([0, 1])
            result = self.result(number, suggested["params"])
            if result["done"]:
                searcher.on_trial_complete(trial_id, result)
            elif scheduler.on_trial_result(None, Tune(trial_id), result) == "STOP":
                searcher.on_trial_complete(trial_id, {**result, "done": True})  # as Tune says of what it stops
            else:
                continue
            seats[seat] = None
        raise AssertionError("no end")


def in_memory(several: bool = False) -> optuna.Study:
    return optuna.create_study(directions=["maximize", "minimize"] if several else ["maximize"])


def in_sqlite(folder: Path, several: bool = False) -> optuna.Study:
    storage = optuna.storages.RDBStorage(study_url(folder))
    event.listen(storage.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    storage.engine.dispose()
    return open_study(storage, "s", ["maximize", "minimize"] if several else ["maximize"])  # type: ignore[arg-type]


def content(study: optuna.Study) -> list[str]:
    """All that a study holds of its trials, to be compared exactly (nan is not equal to itself)."""
    return [
        repr(
            (
                t.number,
                t.state.name,
                sorted(t.params.items()),
                t.values,
                t.intermediate_values,
                sorted(t.user_attrs.items()),
            )
        )
        for t in study.get_trials()
    ]


def plain(simulation: Simulation, lag: int) -> list[dict[str, Any]]:
    """The hyper-parameters that Optuna alone suggests, told the same results: by `study.ask` and `study.tell`."""
    s, results = simulation, simulation.study.get_trials()
    study = optuna.create_study(
        directions=directions(s.objectives),
        sampler=make_sampler(s.space, s.seed),
        pruner=optuna.pruners.NopPruner(),
    )
    for start in s.starts():
        study.enqueue_trial(start)
    asked: list[optuna.Trial] = []
    params = []
    for number in range(s.wanted):
        if number >= lag:
            end = results[number - lag]
            own = asked[number - lag]
            for rung, value in end.intermediate_values.items():
                own.report(value, rung)
            study.tell(own, end.values if end.state == TrialState.COMPLETE else None, end.state)
        asked.append(study.ask())
        params.append(s.space.suggest(asked[-1]))
    return params


def suggested(study: optuna.Study) -> list[dict[str, Any]]:
    return [t.user_attrs[PARAMS] for t in study.get_trials()]
