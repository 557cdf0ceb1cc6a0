"""fANOVA, beside Optuna's and beside sums over a whole grid."""

from __future__ import annotations

import itertools

import numpy as np
import optuna
import pytest
from sklearn.ensemble import RandomForestRegressor

from distilbench.reporting.fanova import TREES, variance_shares


def test_numbers_have_the_shares_that_optuna_finds():
    rng = np.random.default_rng(0)
    x_NP = rng.random((40, 3)) * [1, 10, 100]
    y_N = np.sin(5 * x_NP[:, 0]) + 0.1 * x_NP[:, 1] * (x_NP[:, 2] > 50) + 0.1 * rng.standard_normal(40)
    ranges = {f"p{k}": optuna.distributions.FloatDistribution(low, high) for k, (low, high) in enumerate(ends(x_NP))}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for row, value in zip(x_NP, y_N, strict=True):
        params = {f"p{k}": float(v) for k, v in enumerate(row)}
        study.add_trial(optuna.create_trial(params=params, distributions=ranges, value=float(value)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=TREES, seed=0)
    expected = evaluator.evaluate(study)
    found = variance_shares(list(x_NP.T), [False] * 3, y_N, seed=0)
    assert found.shares == pytest.approx([expected[f"p{k}"] for k in range(3)], rel=1e-9)


def ends(x_NP):
    return zip(x_NP.min(axis=0).tolist(), x_NP.max(axis=0).tolist(), strict=True)


def test_categories_by_the_predictions_at_every_setting():
    rng = np.random.default_rng(1)
    a_N, b_N = rng.integers(0, 4, 60).astype(float), rng.integers(0, 3, 60).astype(float)
    y_N = (a_N == 2) * 3.0 + (b_N == 1) * (a_N != 0) + 0.1 * rng.standard_normal(60)
    found = variance_shares([a_N, b_N], [True, True], y_N, seed=3)

    grid = np.array(list(itertools.product(range(4), range(3))), dtype=float)
    code = lambda a, b: np.concatenate([a[:, None] == np.arange(4), b[:, None] == np.arange(3)], axis=1).astype(float)  # noqa: E731
    forest = RandomForestRegressor(n_estimators=TREES, max_depth=64, oob_score=True, random_state=3)
    forest.fit(code(a_N, b_N), y_N)
    shares = []
    for tree in forest.estimators_:
        y_AB = tree.predict(code(grid[:, 0], grid[:, 1])).reshape(4, 3)
        shares.append([y_AB.mean(axis=1).var() / y_AB.var(), y_AB.mean(axis=0).var() / y_AB.var()])
    assert found.shares == pytest.approx(np.mean(shares, axis=0).tolist(), rel=1e-9)
    assert found.fit == pytest.approx(forest.oob_score_)


def test_a_parameter_that_does_nothing_and_one_that_does_it_all():
    rng = np.random.default_rng(2)
    x, noise = rng.random(200), rng.random(200)
    found = variance_shares([x, noise], [False, False], 3 * x, seed=0)
    assert found.shares[0] > 0.99 and found.shares[1] < 0.01 and found.fit > 0.95


def test_interactions_are_what_is_missing_to_the_whole():
    a = np.array([0.0, 0.0, 1.0, 1.0] * 30)
    b = np.array([0.0, 1.0] * 60)
    found = variance_shares([a, b], [True, True], (a != b).astype(float), seed=0)
    assert sum(found.shares) < 0.1


def test_what_cannot_be_computed():
    assert variance_shares([np.arange(20.0)], [False], np.ones(20), seed=0) is None
    with pytest.raises(ValueError, match=r"\[1\] distinct values"):
        variance_shares([np.ones(20)], [False], np.arange(20.0), seed=0)
    with pytest.raises(ValueError, match="expected parameters"):
        variance_shares([], [], np.arange(20.0), seed=0)
