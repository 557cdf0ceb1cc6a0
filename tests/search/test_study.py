"""The study: what the first trials are given, what it holds of each, which trial is the best of its dimension; the front."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from distilbench.methods.mcr2 import MCR2Params
from distilbench.search.objectives import COSTS, directions, pareto_front
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space
from distilbench.search.starts import starts_for
from distilbench.search.study import PARAMS, best_per_group, result_objective, rung_key

YAML = """
method: mcr2
budget: {trials: 6, steps: 90, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [16, 4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true}
  head: {choices: [elu, residual]}
  eps2: {low: 0.1, high: 1}
fixed: {batch_size: 16, clusters: 4, lambda: 1}
enqueue: [{lr: 0.001, head: residual}]
"""


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    (tmp_path / "space.yaml").write_text(YAML)
    return load_space(tmp_path / "space.yaml", "mcr2", MCR2Params, native=32)


@pytest.fixture
def study() -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))


# What the first trials are given


def test_dimensions_share_the_trials_and_the_first_of_each_is_a_setting_of_the_space(space: SearchSpace) -> None:
    starts = starts_for(space, 9)
    assert [s["output_dim"] for s in starts] == [4, 8, 16] * 3
    assert starts[:3] == [{"output_dim": d, "lr": 0.001, "head": "residual"} for d in (4, 8, 16)]
    assert starts[3:] == [{"output_dim": d} for d in (4, 8, 16)] * 2  # the rest is drawn


def test_settings_of_the_space_and_of_the_command_follow_for_every_dimension(space: SearchSpace) -> None:
    space = space.model_copy(update={"enqueue": ({"lr": 0.002}, {"lr": 0.001})})
    starts = starts_for(space, 10, [{"lr": 0.003}, {"output_dim": 8, "lr": 0.004}])
    assert [(s["output_dim"], s["lr"]) for s in starts] == [
        *((d, 0.003) for d in (4, 8, 16)),
        (8, 0.004),
        *((d, 0.002) for d in (4, 8, 16)),
        *((d, 0.001) for d in (4, 8, 16)),
    ]


def test_where_nothing_else_is_searched_each_dimension_is_tried_once(space: SearchSpace) -> None:
    dims = {"output_dim": space.parameters["output_dim"]}
    alone = space.model_copy(update={"parameters": dims, "enqueue": ()})
    for share_dimensions in (True, False):
        starts = starts_for(alone, 9, share_dimensions=share_dimensions)
        assert starts == [{"output_dim": d} for d in (4, 8, 16)]
    assert starts_for(alone.model_copy(update={"parameters": {}}), 9) == [{}]


def test_where_trials_compete_within_bytes_every_number_of_bytes_has_a_start(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(YAML.replace("  lr:", "  bits: {choices: [8, 4]}\n  lr:"))
    space = load_space(tmp_path / "space.yaml", "mcr2", MCR2Params, native=32)
    assert [*space.code_settings] == [2, 4, 8, 16]
    given = [{"lr": 0.002, "bits": 4}, {"lr": 0.003}]
    starts = starts_for(space, 99, given)
    assert [space.bytes_of(start) for start in starts[:7]] == [2, 4, 8, None, None, None, 16]
    assert starts[6] == {"output_dim": 16, "bits": 8}, "of 16 bytes no first setting is sure to be"
    of_sampler = starts_for(space, 20, share_dimensions=False)  # several objectives
    assert [space.bytes_of(start) for start in of_sampler] == [2, 4, 8, 16, None, None, None]
    assert starts[7:10] == of_sampler[4:], "those of the space, whatever their bytes"
    assert all(start.keys() == {"output_dim"} for start in starts[10:]), "the others are drawn"
    for trials in range(1, 14):
        assert starts_for(space, trials, given) == starts[:trials]


# Trials


def finish(study: optuna.Study, dim: int, value: float | None, state: TrialState, **rungs: float) -> None:
    rungs = rungs or ({"r1": value} if value is not None else {})
    study.add_trial(
        optuna.trial.create_trial(
            state=state,
            value=value,
            user_attrs={
                PARAMS: {"output_dim": dim},
                **{rung_key(int(n[1:])): {"step": 1, "objective": v} for n, v in rungs.items()},
            },
        )
    )


# The best


def test_the_best_of_each_dimension_is_complete_and_the_earlier_of_equals(study: optuna.Study) -> None:
    finish(study, 8, -3.0, TrialState.COMPLETE)
    finish(study, 8, -1.0, TrialState.COMPLETE)
    finish(study, 8, -1.0, TrialState.COMPLETE)
    finish(study, 4, 0.0, TrialState.COMPLETE)
    finish(study, 4, -2.0, TrialState.COMPLETE)
    finish(study, 4, None, TrialState.PRUNED, r1=99.0)  # better when it was stopped, but never finished
    finish(study, 4, None, TrialState.FAIL, r1=99.0)
    finish(study, 16, None, TrialState.FAIL)
    study.enqueue_trial({"output_dim": 16})
    best = best_per_group(study.trials)
    assert {dim: [t.number for t in own][:1] for dim, own in best.items()} == {("", 16): [3], ("", 32): [1]}
    assert [t.number for t in best_per_group(study.trials)["", 32]][:2] == [1, 2]
    assert [t.number for t in best_per_group(study.trials)["", 16]] == [3, 4]
    assert list(best) == [("", 16), ("", 32)]


def test_a_result_is_the_best_eligible_rung_and_without_any_the_last(study: optuna.Study) -> None:
    """As in studies of before, whose rungs do not say whether they are eligible."""
    finish(study, 8, 1.0, TrialState.COMPLETE, r1=5.0, r2=1.0)
    assert result_objective(study.trials[0]) == 1.0
    trial = study.trials[0]
    trial.user_attrs |= {
        rung_key(1): {"step": 1, "objective": 9.0, "eligible": False},  # another phase was to come
        rung_key(2): {"step": 2, "objective": 5.0, "eligible": True},
        rung_key(3): {"step": 3, "objective": 4.0, "eligible": True},
    }
    assert result_objective(trial) == 5.0
    trial.user_attrs[rung_key(2)]["collapsed"] = True
    assert result_objective(trial) == 4.0


# The front, against Optuna's own


UP_DOWN = directions(("quality", "bytes"))


def test_front_of_quality_and_bytes() -> None:
    points = [(70, 64), (72, 128), (71, 256), (70, 64), (69, 64), (72, 129), (60, 8)]
    assert pareto_front(points, UP_DOWN).tolist() == [0, 1, 3, 6]
    assert pareto_front([], UP_DOWN).tolist() == []
    assert pareto_front([(1,), (3,), (3,)], ["maximize"]).tolist() == [1, 2]


@pytest.mark.parametrize("objectives", [("quality", "bytes"), ("quality", "latency"), ("quality", *COSTS)])
def test_front_is_optunas(objectives: tuple[str, ...]) -> None:
    towards = directions(objectives)
    points = np.random.default_rng(4).integers(0, 7, (60, len(towards)))  # few values: many ties and equal points
    study = optuna.create_study(directions=towards)
    study.add_trials([optuna.trial.create_trial(values=point.tolist()) for point in points])
    assert pareto_front(points, towards).tolist() == sorted(trial.number for trial in study.best_trials)
