"""The study: what is queued, who survives a rung, which trial is the best of its dimension."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from distilbench.methods.mcr2 import Params
from distilbench.search.space import SearchSpace, load_space
from distilbench.search.study import (
    best_per_dimension,
    finished_trials,
    open_study,
    queue_trials,
    rung_values,
    sqlite_url,
    survives,
    trial_dimension,
)

YAML = """
method: mcr2
budget: {trials: 6, steps: 90, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [16, 4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true, paper: 0.001}
  head: {choices: [elu, residual], paper: residual}
  eps2: {low: 0.1, high: 1}
fixed: {batch_size: 16, clusters: 4, lambda: 1}
"""


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    (tmp_path / "space.yaml").write_text(YAML)
    return load_space(tmp_path / "space.yaml", "mcr2", Params, native=32)


@pytest.fixture
def fixed_space(tmp_path: Path) -> SearchSpace:
    """One dimension, not searched."""
    text = YAML.replace("  output_dim: {choices: [16, 4, 8]}\n", "").replace("fixed: {", "fixed: {output_dim: 8, ")
    (tmp_path / "fixed.yaml").write_text(text)
    return load_space(tmp_path / "fixed.yaml", "mcr2", Params, native=32)


@pytest.fixture
def study() -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))


def run(study: optuna.Study, space: SearchSpace) -> list[dict[str, object]]:
    """Hyper-parameters of every queued trial, in order."""
    drawn = []
    while study.get_trials(states=(TrialState.WAITING,)):
        trial = study.ask()
        drawn.append(space.suggest(trial))
        study.tell(trial, 0.0)
    return drawn


# Queueing


def test_dimensions_share_the_trials_and_the_first_of_each_is_the_published_setting(
    study: optuna.Study, space: SearchSpace
) -> None:
    queue_trials(study, space, 9)
    drawn = run(study, space)
    assert [d["output_dim"] for d in drawn] == [4, 8, 16] * 3
    for d in drawn[:3]:
        assert (d["lr"], d["head"]) == (0.001, "residual")
    assert len({d["lr"] for d in drawn[3:]}) == 6 and 0.001 not in {d["lr"] for d in drawn[3:]}
    assert len({d["eps2"] for d in drawn}) == 9  # not published: drawn


def test_shares_differ_by_one_at_most(study: optuna.Study, space: SearchSpace) -> None:
    queue_trials(study, space, 8)
    assert Counter(d["output_dim"] for d in run(study, space)) == {4: 3, 8: 3, 16: 2}


def test_a_repeated_command_queues_nothing_and_a_larger_one_the_rest(study: optuna.Study, space: SearchSpace) -> None:
    queue_trials(study, space, 4)
    queue_trials(study, space, 4)
    assert len(study.trials) == 4
    first = run(study, space)
    queue_trials(study, space, 9)
    queue_trials(study, space, 2)  # fewer than there are
    drawn = first + run(study, space)
    assert [d["output_dim"] for d in drawn] == [4, 8, 16] * 3  # the turns go on where they stopped


def test_a_fixed_dimension_gets_every_trial_and_one_published_setting(
    study: optuna.Study, fixed_space: SearchSpace
) -> None:
    queue_trials(study, fixed_space, 3)
    drawn = run(study, fixed_space)
    assert [d["output_dim"] for d in drawn] == [8, 8, 8]
    assert [d["lr"] == 0.001 for d in drawn] == [True, False, False]
    assert {trial_dimension(t, fixed_space) for t in study.trials} == {8}


def test_what_is_queued_survives_the_process(tmp_path: Path, space: SearchSpace) -> None:
    url = sqlite_url(tmp_path / "study.db")
    queue_trials(open_study(url, "s", seed=0), space, 5)
    again = open_study(url, "s", seed=0)
    assert len(again.get_trials(states=(TrialState.WAITING,))) == 5
    assert again.direction == optuna.study.StudyDirection.MAXIMIZE
    queue_trials(again, space, 5)
    assert len(again.trials) == 5


def test_the_seed_decides_the_draws(tmp_path: Path, space: SearchSpace) -> None:
    def draws(name: str, seed: int) -> list[object]:
        study = open_study(sqlite_url(tmp_path / f"{name}.db"), "s", seed)
        queue_trials(study, space, 6)
        return [d["eps2"] for d in run(study, space)]

    assert draws("one", 0) == draws("two", 0) != draws("three", 1)


# Rungs


@pytest.mark.parametrize(
    ("value", "peers", "eta", "wanted"),
    [
        (1.0, [1.0], 3, True),  # alone: the best of one
        (-5.0, [-5.0], 3, True),
        (1.0, [1.0, 2.0], 3, False),
        (2.0, [1.0, 2.0], 3, True),
        (2.0, [3.0, 2.0, 1.0], 3, False),
        (3.0, [3.0, 2.0, 1.0], 3, True),
        (5.0, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 3, True),  # the second of six: a third
        (4.0, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 3, False),
        (4.0, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 2, True),
        (2.0, [2.0, 2.0, 2.0], 3, True),  # equals share their place
        (math.nan, [math.nan], 3, False),
        (1.0, [math.nan, 1.0, math.nan], 3, True),  # what is no number is no competitor
        (-math.inf, [-math.inf, 1.0], 3, False),
    ],
)
def test_survivors(value: float, peers: list[float], eta: int, wanted: bool) -> None:
    assert survives(value, peers, eta) is wanted


def finish(study: optuna.Study, dim: int, value: float | None, state: TrialState, **rungs: float) -> None:
    study.add_trial(
        optuna.trial.create_trial(
            state=state,
            value=value,
            params={"output_dim": dim, "lr": 0.001},
            distributions={
                "output_dim": CategoricalDistribution((16, 4, 8)),
                "lr": FloatDistribution(0.0001, 0.01, log=True),
            },
            intermediate_values={int(name[1:]): v for name, v in rungs.items()},
        )
    )


def test_only_trials_of_one_dimension_and_rung_compete(study: optuna.Study, space: SearchSpace) -> None:
    finish(study, 4, 3.0, TrialState.COMPLETE, r1=1.0, r2=3.0)
    finish(study, 4, None, TrialState.PRUNED, r1=0.5)
    finish(study, 8, None, TrialState.PRUNED, r1=9.0)
    finish(study, 4, None, TrialState.FAIL)
    study.enqueue_trial({"output_dim": 4})  # a queued trial has reported nothing
    assert sorted(rung_values(study, space, 4, 1)) == [0.5, 1.0]
    assert rung_values(study, space, 4, 2) == [3.0]
    assert rung_values(study, space, 8, 2) == []


# The best


def test_the_best_of_each_dimension_is_complete_and_the_earlier_of_equals(
    study: optuna.Study, space: SearchSpace
) -> None:
    finish(study, 8, -3.0, TrialState.COMPLETE)
    finish(study, 8, -1.0, TrialState.COMPLETE)
    finish(study, 8, -1.0, TrialState.COMPLETE)
    finish(study, 4, 0.0, TrialState.COMPLETE)
    finish(study, 4, -2.0, TrialState.COMPLETE)
    finish(study, 4, None, TrialState.PRUNED, r1=99.0)  # better when it was stopped, but never finished
    finish(study, 4, None, TrialState.FAIL, r1=99.0)
    finish(study, 16, None, TrialState.FAIL)
    study.enqueue_trial({"output_dim": 16})
    best = best_per_dimension(study, space)
    assert {dim: trial.number for dim, trial in best.items()} == {4: 3, 8: 1}
    assert list(best) == [4, 8]


def test_no_trial_no_best(study: optuna.Study, space: SearchSpace) -> None:
    assert best_per_dimension(study, space) == {}


def test_finished_trials_are_those_with_an_end(study: optuna.Study, space: SearchSpace) -> None:
    finish(study, 8, 1.0, TrialState.COMPLETE)
    study.enqueue_trial({"output_dim": 4})
    finish(study, 8, None, TrialState.PRUNED)
    study.enqueue_trial({"output_dim": 4})
    finish(study, 8, None, TrialState.FAIL)
    study.ask()  # running
    assert [t.number for t in finished_trials(study)] == [0, 2, 4]
