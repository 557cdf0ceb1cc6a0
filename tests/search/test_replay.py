"""Searches replayed over a table of recorded trials, here a made-up one (benchmarks/replay)."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState

from distilbench.cluster.provenance import provenance
from distilbench.records import Rung, TrialRecord
from distilbench.search.search_plan import make_sampler
from distilbench.search.study import STEPS, trial_params

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from replay.answers import Nearest
from replay.tables import Table, write_table
from replay.workers import Replayed, replay

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
        lambda taken: make_sampler(space, taken),
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


@pytest.mark.parametrize("searcher", ["random", "tpe"])
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
