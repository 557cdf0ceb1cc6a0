"""Searches replayed over a table of recorded trials, here a made-up one (benchmarks/replay)."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState

from distilbench.cluster.provenance import provenance
from distilbench.errors import InputError
from distilbench.records import Rung, TrialRecord
from distilbench.search.samplers import make_sampler
from distilbench.search.study import STEPS, trial_params

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from replay.answers import Nearest, Surrogate
from replay.measures import Goal, goal_of, interval, level, measured
from replay.portfolio import foreseen, others, portfolio
from replay.tables import Table, read_table, write_table
from replay.workers import Found, Replayed, replay

SPACE = """
method: mcr2
budget: {trials: 20, steps: 90, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true}
  pairs: {choices: [duplicates, noise]}
  noise: {low: 0.001, high: 0.1, log: true, when: {pairs: noise}}
fixed: {batch_size: 16, lambda: 1, clusters: 4}
"""
SETTINGS = 60


def value(params: dict[str, Any], rung: int) -> float:
    """Best at lr 0.001 and at noise, the more so the longer it trains."""
    far = abs(math.log10(params["lr"]) + 3) + (params["pairs"] != "noise") / 2
    return params["output_dim"] / 8 - far * rung / 3


def record(number: int, params: dict[str, Any], failed: bool = False) -> TrialRecord:
    rungs = [
        Rung(
            rung=r,
            step=s,
            objective=value(params, r),
            metrics={"dev_quality": 50.0, "rung_seconds": 0.5},
            eligible=True,
        )
        for r, s in ((0, 0), (1, 10), (2, 30), (3, 90))
    ]
    return TrialRecord(
        run="made-up",
        number=number,
        state="FAIL" if failed else "COMPLETE",
        reason="collapsed" if failed else "",
        method="mcr2",
        params={"batch_size": 16, "lambda": 1, "clusters": 4, **params},
        seed=0,
        dim=params["output_dim"],
        objective=None if failed else max(r.objective or 0.0 for r in rungs),
        rungs=rungs[:2] if failed else rungs,
        provenance=provenance(None),
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    rng = np.random.default_rng(0)
    records = [
        record(
            n,
            {
                "output_dim": (4, 8)[n % 2],
                "lr": 10 ** rng.uniform(-4, -2),
                "pairs": ("duplicates", "noise")[n // 2 % 2],
                "noise": 10 ** rng.uniform(-3, -1) if n // 2 % 2 else 0.005,
            },
            failed=n == 5,
        )
        for n in range(SETTINGS)
    ]
    return write_table(tmp_path_factory.mktemp("tables") / "made-up.parquet", records, SPACE, 32, "a test")


def play(table: Table, searcher: str = "random", stopping: str = "asha", **more: Any) -> Replayed:
    budget = table.space.budget.model_copy(update={"stopping": stopping})
    space = table.space.model_copy(update={"searcher": searcher, "budget": budget})
    wanted, limit = more.pop("wanted", 24), more.pop("limit", math.inf)
    return replay(
        space,
        more.pop("answers", Nearest(table)),
        lambda taken: make_sampler(space, taken, wanted, 1),
        wanted=wanted,
        limit=limit,
        workers=more.pop("workers", 1),
        max_pending=8,
        seed=more.pop("seed", 0),
        **more,
    )


def trained(result: Replayed) -> list[tuple[dict[str, Any], TrialState]]:
    return [(trial_params(t), t.state) for t in sorted(result.trials, key=lambda t: t.number)]


def test_a_table_keeps_what_was_recorded(table: Table) -> None:
    assert len(table.settings) == SETTINGS and [group.bytes for group in table.groups] == [16, 32]
    setting = table.settings[1]
    assert [r["step"] for r in setting.rungs] == [0, 10, 30, 90]
    assert setting.value == pytest.approx(1.0), "the start is the best rung: the objective falls as it trains"
    assert setting.searched.keys() == {"output_dim", "lr", "pairs"}, "noise is not searched among duplicates"
    assert setting.params["noise"] == table.space.defaults["noise"]
    assert table.settings[5].failed == "collapsed" and len(table.settings[5].rungs) == 2


def test_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("nothing")
    with pytest.raises(InputError, match="no table of recorded trials"):
        read_table(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="no trials to write"):
        write_table(tmp_path / "y.parquet", [], SPACE, 32, "")


def test_the_nearest_unused_setting_answers(table: Table) -> None:
    nearest, asked = Nearest(table), table.settings[7].params
    first, second = nearest.answer(asked), nearest.answer(asked)
    assert first is table.settings[7] and second is not first
    assert second.params["output_dim"] == asked["output_dim"] and second.params["pairs"] == asked["pairs"]
    assert nearest.afresh().answer(asked) is first
    every = [nearest.answer(asked) for _ in range(SETTINGS)]
    assert len({id(setting) for setting in every}) == SETTINGS // 2, (
        "after all of the dimension have answered, it begins again"
    )


@pytest.mark.parametrize("searcher", ["random", "tpe", "cmaes", "nsga2"])
def test_any_number_of_workers_gets_the_same_trials(table: Table, searcher: str) -> None:
    alone, eight = play(table, searcher), play(table, searcher, workers=8)
    assert trained(alone) == trained(eight) and len(alone.trials) == 24
    assert eight.ended_at < alone.ended_at and eight.spent >= alone.spent, "verdicts that come late cost steps"
    used = [repr(sorted(params.items())) for params, _ in trained(alone)]
    assert len(set(used)) == 24, "every setting answers once"


def test_steps_are_those_that_were_trained(table: Table) -> None:
    full = play(table, stopping="none", workers=4)
    assert full.spent == sum(t.user_attrs[STEPS] for t in full.trials)
    assert full.spent == 24 * 90 - 80 * sum(t.state == TrialState.FAIL for t in full.trials)
    halved = play(table)
    assert halved.spent < full.spent / 2
    assert any(t.state == TrialState.PRUNED for t in halved.trials)
    assert play(table, limit=300).spent < 310


def test_brackets_let_some_trials_pass(table: Table) -> None:
    brackets = play(table, hyperband=True, wanted=40)
    stopped = [max(t.intermediate_values) for t in brackets.trials if t.state == TrialState.PRUNED]
    assert {1, 2} == set(stopped)
    whole = sum(t.state == TrialState.COMPLETE for t in brackets.trials)
    assert whole > sum(t.state == TrialState.COMPLETE for t in play(table, wanted=40).trials)


def test_a_surrogate_agrees_with_its_table(table: Table) -> None:
    surrogate = Surrogate(table)
    assert surrogate.agreement > 0.5
    setting = table.settings[11]
    predicted = surrogate.answer(setting.params)
    assert predicted.rungs[-1]["objective"] == pytest.approx(setting.rungs[-1]["objective"], abs=0.15)
    result = play(table, answers=surrogate, searcher="tpe")
    assert len(result.trials) == 24 and result.found


def test_measures() -> None:
    goals = {4: Goal(1.0, 0.9, 0.0), 8: Goal(2.0, 2.0, 1.0)}
    found = [Found(10, 4, 0.9), Found(50, 8, 2.0), Found(60, 4, 0.5)]
    assert level(found, goals) == pytest.approx(1.45) and level(found, goals, 20) == pytest.approx(0.95)
    result = measured(found, goals, 90, full=1.0)
    assert result.regrets == pytest.approx((0.55, 0.55, 0.05))
    assert (result.top_at, result.top_found, result.level_at) == pytest.approx((60 / 180, 1.0, 50 / 90))
    assert measured([], goals, 90, full=1.0).level_at == math.inf
    assert goal_of([3.0, 2.0, 1.0]) == Goal(3.0, 3.0, 2.0)
    mean, low, high = interval([0.0, 1.0, 2.0])
    assert low < mean == 1.0 < high


def test_a_portfolio_has_what_is_good_at_every_dimension(table: Table) -> None:
    ends = [
        replace(s, rungs=s.rungs[-1:]) for s in table.settings if not s.failed
    ]  # no start, which is the best of all
    source = Surrogate(Table("ends", table.space, ends))
    first, second = portfolio([source], 2)
    assert first["pairs"] == "noise" and abs(math.log10(first["lr"]) + 3) < 0.3 and "output_dim" not in first
    assert second != first and len(portfolio([source, source], 500)) == len(ends), "as many as there are"
    assert portfolio([Surrogate(table)], 1), "where no result is above its start, all are alike"


def test_a_portfolio_is_learnt_from_the_same_method_on_other_data(table: Table) -> None:
    elsewhere = Table("elsewhere", table.space, table.settings)
    few = {name: r for name, r in table.space.parameters.items() if name != "lr"}
    fewer = Table("fewer", table.space.model_copy(update={"parameters": few}), [])
    another = Table("another", table.space.model_copy(update={"method": "hpd"}), [])
    assert others(table, [table, elsewhere, fewer, another]) == [elsewhere]


def test_foreseen_settings_come_with_the_best_of_each_group_first(table: Table) -> None:
    ends = [replace(s, rungs=s.rungs[-1:]) for s in table.settings if not s.failed]
    ordered = foreseen(Table("ends", table.space, ends))
    searched = [s.searched for s in ends]
    assert len(ordered) == len(ends) and all(setting in searched for setting in ordered)
    ours = [next(s for s in ends if s.searched == setting) for setting in ordered]
    assert {s.group.bytes for s in ours[:2]} == {s.group.bytes for s in ours[2:4]} == {16, 32}, "in turns"
    first, last = ours[: len(ours) // 4], ours[-len(ours) // 4 :]
    assert np.mean([s.value - s.params["output_dim"] / 8 for s in first]) > 0.5 + np.mean(
        [s.value - s.params["output_dim"] / 8 for s in last]
    )
