"""Objectives: their names, and the front, against Optuna's own."""

from __future__ import annotations

import numpy as np
import optuna
import pytest

from distilbench.search.objectives import COSTS, directions, pareto_front

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
