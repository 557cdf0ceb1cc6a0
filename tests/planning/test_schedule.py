"""The schedule of a search: bounds, monotonicity, and the searcher itself played with the same durations."""

from __future__ import annotations

import heapq
import random
from pathlib import Path
from typing import Any

import optuna
import pytest
from search.simulated import Simulation, Tune, in_memory, space_of

from distilbench.planning.cohorts import play_cohorts
from distilbench.planning.schedule import PlannedTrial, list_schedule, play
from distilbench.search.searcher import RungScheduler

LENGTHS = (10.0, 30.0, 90.0)


def drawn(count: int, seed: int) -> list[PlannedTrial]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        pace = rng.uniform(0.5, 2.0)
        found.append(PlannedTrial(number % 3, tuple(pace * t for t in LENGTHS), rng.choice([1, 1, 1, 2, 2, 3])))
    return found


def test_one_worker_does_one_after_the_other() -> None:
    trials = drawn(12, 0)
    alone = play(trials, 1, 8, worker_s=5.0)
    assert alone.makespan_s == pytest.approx(5 + sum(t.chain_s for t in trials))
    assert alone.work_s == pytest.approx(sum(t.chain_s for t in trials))


@pytest.mark.parametrize("seed", range(20))
def test_bounds_and_more_workers_never_slower(seed: int) -> None:
    trials = drawn(40, seed)
    before = float("inf")
    for workers in (1, 2, 3, 4, 7, 8, 9, 16, 40, 41, 1000):
        played = play(trials, workers, max(8, workers), worker_s=4.0, driver_s=0.5)
        assert played.makespan_s <= before + 1e-9
        assert played.makespan_s - 4 >= max(played.work_s / workers, played.longest_s, 40 * 0.5) - 1e-9
        assert played.work_s >= sum(t.chain_s for t in trials) - 1e-9
        before = played.makespan_s


def test_a_trial_cannot_be_split() -> None:
    trials = [PlannedTrial(0, LENGTHS, 3), *(PlannedTrial(1, LENGTHS, 1) for _ in range(7))]
    assert play(trials, 64, 64).makespan_s == 90.0


def test_a_lag_of_one_is_one_trial_at_a_time() -> None:
    trials = drawn(10, 3)
    assert play(trials, 8, 1).makespan_s == pytest.approx(sum(t.chain_s for t in trials))
    assert play(trials, 8, 0).makespan_s <= play(trials, 8, 2).makespan_s


def test_a_verdict_is_waited_for() -> None:
    """The second trial of a dimension is four times as fast, and trains on until the first one has come to the rung."""
    slow, fast = PlannedTrial(0, (40.0, 120.0), 1), PlannedTrial(0, (10.0, 30.0), 1)
    played = play([slow, fast], 2, 8)
    assert played.work_s == 40 + 30, "to its own end, which comes before the verdict"
    assert play([fast, slow], 2, 8).work_s == 50


SLICE = 2.0


def reports(pace: float) -> list[tuple[float, int]]:
    """When a trial reports: at rungs and every slice, with the rungs that it has passed by then."""
    ends = [pace * length for length in LENGTHS]
    times = sorted({*ends, *(SLICE * k for k in range(1, int(ends[-1] / SLICE) + 1))})
    return [(at, sum(end <= at for end in ends)) for at in times]


def searched(simulation: Simulation, workers: int) -> tuple[float, list[PlannedTrial]]:
    """When the real searcher's last trial ends on virtual workers, and its trials as they would be planned."""
    searcher = simulation.searcher(workers)
    scheduler, now, counter = RungScheduler(searcher), 0.0, 0
    events: list[tuple[float, int, str, dict[str, Any], int]] = []
    idle = workers
    paces: dict[int, float] = {}
    while True:
        while idle:
            suggested = searcher.suggest(f"t{counter}")
            if not isinstance(suggested, dict):
                break
            number = int(suggested["number"])
            paces[number] = 0.5 + (number * 7 % 5) / 2
            searcher.begun(f"t{counter}")
            before = simulation.trained.get(number, 0)  # it has waited for its verdict there
            trained = paces[number] * LENGTHS[before - 1] if before else 0.0
            for at, rung in reports(paces[number]):
                if at > trained:
                    heapq.heappush(events, (now + at - trained, number, f"t{counter}", suggested["params"], rung))
            counter, idle = counter + 1, idle - 1
        if not events:
            break
        at, number, trial_id, params, rung = heapq.heappop(events)
        if trial_id not in searcher.live:  # it was stopped
            continue
        now = at
        simulation.trained[number] = rung
        result = simulation.result(number, params)
        if result["done"]:
            searcher.on_trial_complete(trial_id, result)
            idle += 1
        elif scheduler.on_trial_result(None, Tune(trial_id), result) == "STOP":
            searcher.on_trial_complete(trial_id, result)
            idle += 1
    planned = []
    for trial in simulation.study.get_trials():
        number, rungs = trial.number, [int(n.removeprefix("rung-")) for n in trial.user_attrs if n.startswith("rung-")]
        planned.append(
            PlannedTrial(
                trial.user_attrs["params"]["output_dim"], tuple(paces[number] * t for t in LENGTHS), max(rungs)
            )
        )
    return now, planned


def never_fails(params: dict[str, Any]) -> tuple[int, str, bool]:
    return 3, "", False


@pytest.mark.parametrize("stopping", ["halving", "asha", "median", "none"])
@pytest.mark.parametrize("workers", [1, 2, 5, 12])
def test_the_real_searcher_takes_as_long(tmp_path: Path, workers: int, stopping: str) -> None:
    """Its trials, stopped where it stopped them: the play ends within a twentieth of its end. In the play a worker hears of
    a verdict at once, in the searcher when its trial next reports, at most a slice later."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = space_of(tmp_path, stopping=stopping, eta=3, searcher="random" if stopping == "halving" else "tpe")
    simulation = Simulation(in_memory(), space, wanted=36, lag=max(4, workers), outcome=never_fails)
    real, planned = searched(simulation, workers)
    assert len(planned) == 36
    halving = stopping == "halving"
    played = play_cohorts(planned, workers, 3) if halving else play(planned, workers, max(4, workers))
    assert played.makespan_s == pytest.approx(real, rel=0.05)
    assert played.makespan_s <= real + 1e-9


def test_jobs_in_their_order() -> None:
    assert list_schedule([3, 3, 3], 2, worker_s=1) == 7
    assert list_schedule([], 4, worker_s=1) == 0
    assert list_schedule([5.0], 100) == 5


def test_with_cohorts_a_worker_takes_another_trial_while_one_waits() -> None:
    short, long = PlannedTrial(0, (10.0, 30.0), 1), PlannedTrial(0, (10.0, 30.0), 2)
    assert play_cohorts([short, long], 1, 2) == (40.0, 40.0, 30.0)
    assert play_cohorts([short, long], 2, 2) == (30.0, 40.0, 30.0)
    assert play_cohorts([long, short, short], 1, 3).makespan_s == 50.0, "the best goes on when all three were judged"
    assert play_cohorts([long, short], 1, 2, worker_s=5.0, driver_s=1.0).makespan_s == 46.0
    assert play_cohorts([], 3, 2) == (0.0, 0.0, 0.0)
