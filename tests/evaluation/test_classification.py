"""Many logistic regressions at once, and SentEval's protocol of them, beside scikit-learn; what a set's splits ask for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from distilbench.data.corpus import ClassificationSet
from distilbench.evaluation import logistic
from distilbench.evaluation.classification import (
    classification_scores,
    classified,
    cross_validated,
    trained_and_tested,
    validated,
)
from distilbench.evaluation.logistic import Logistic, Problem

Accuracy = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float], float]


def data(rows: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features with correlated columns and a mean, as sentence embeddings have, and overlapping classes."""
    rng = np.random.default_rng(seed)
    of = rng.integers(classes, size=rows)
    centres = 0.4 * rng.standard_normal((classes, width))
    raw = centres[of] + rng.standard_normal((rows, width)) * np.linspace(0.1, 1.5, width)
    mixed = raw @ np.linalg.qr(rng.standard_normal((width, width)))[0] + 2
    return (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32), of


def accuracy(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, c: float) -> float:
    return float(LogisticRegression(C=c, tol=1e-6, max_iter=5000).fit(x, y).score(test_x, test_y))


def folds() -> StratifiedKFold:
    return StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)


def best_of(x: np.ndarray, y: np.ndarray, penalties: list[float]) -> tuple[float, float]:
    means = []
    for c in penalties:
        found = [accuracy(x[a], y[a], x[b], y[b], c) for a, b in folds().split(x, y)]
        means.append(round(100 * float(np.mean(found)), 2))
    return penalties[int(np.argmax(means))], max(means)


@pytest.mark.slow
def test_one_set_is_cross_validated_within_cross_validation() -> None:
    x, y = data(300, 10, 2)
    dev, test = [], []
    for train, held_out in folds().split(x, y):
        c, mean = best_of(x[train], y[train], [2.0**t for t in range(-2, 4)])
        dev.append(mean)
        test.append(100 * accuracy(x[train], y[train], x[held_out], y[held_out], c))
    found = cross_validated(x, y)
    assert found.dev == pytest.approx(np.mean(dev), abs=0.3)
    assert found.test == pytest.approx(np.mean(test), abs=0.5)
    assert 100 * found.correct_N.mean() == pytest.approx(found.test, abs=1e-6)


@pytest.mark.slow
def test_train_and_test() -> None:
    x, y = data(400, 10, 4)
    train = np.arange(400) % 4 != 0
    c, dev = best_of(x[train], y[train], [2.0**t for t in range(-1, 6)])
    found = trained_and_tested(x, y, train)
    assert found.dev == pytest.approx(dev, abs=0.4)
    assert found.test == pytest.approx(100 * accuracy(x[train], y[train], x[~train], y[~train], c), abs=1.1)
    assert len(found.correct_N) == 100


def test_train_dev_and_test() -> None:
    x, y = data(400, 10, 2)
    train, dev = np.arange(400) < 200, (np.arange(400) >= 200) & (np.arange(400) < 300)
    penalties = [2.0**t for t in range(-2, 4)]
    means = [round(100 * accuracy(x[train], y[train], x[dev], y[dev], c), 2) for c in penalties]
    c = penalties[int(np.argmax(means))]
    found = validated(x, y, train, dev)
    assert found.dev == pytest.approx(max(means), abs=1.01)
    rest = ~(train | dev)
    assert found.test == pytest.approx(100 * accuracy(x[train], y[train], x[rest], y[rest], c), abs=1.01)


def make(splits: list[str], sides: int = 1) -> tuple[ClassificationSet, np.ndarray, list[str]]:
    x, y = data(len(splits), 10, 2)
    rows = np.arange(len(splits))
    texts = tuple((rows + side) % len(splits) for side in range(sides))
    sentences = [" ".join(["word"] * (1 + n % 7)) for n in rows]
    return ClassificationSet("T", ("a", "b"), texts, y, np.array(splits)), x, sentences


@pytest.mark.parametrize(
    ("splits", "tests"),
    [(["train"] * 200, 200), (["train"] * 150 + ["test"] * 50, 50), (["train", "dev", "test", "train"] * 50, 50)],
)
def test_the_splits_say_how_it_is_done(splits: list[str], tests: int) -> None:
    task, x, sentences = make(splits)
    [dev, test], right = classification_scores(lambda rows: x[rows], [task], sentences)
    found = classified(lambda rows: x[rows], task, sentences)
    assert (test.value, dev.value, test.n) == (found.test, found.dev, tests) and len(found.correct_N) == tests
    assert (dev.split, test.split, test.metric, test.task) == ("dev", "test", "accuracy", "classification")
    assert test.value > 60 and (right["classification/T/accuracy"] == found.correct_N).all()
    assert test.low is not None and test.high is not None and test.low < 100 * found.correct_N.mean() < test.high


# All regressions at once


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("c", [0.25, 8.0, 32.0])
def test_predictions_are_scikit_learns(classes: int, c: float) -> None:
    features, of = data(600, 20, classes)
    rng = np.random.default_rng(1)
    masks = [rng.random(600) < share for share in (0.9, 0.5)]
    found = Logistic(features, of).predict([Problem(mask, c) for mask in masks])
    for mask, predicted in zip(masks, found, strict=True):
        peer = LogisticRegression(C=c, tol=1e-8, max_iter=10_000).fit(features[mask], of[mask])
        assert (peer.predict(features) == predicted).mean() >= 0.995
        assert abs((predicted == of)[~mask].mean() - peer.score(features[~mask], of[~mask])) <= 0.01


def test_problems_are_solved_in_parts_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    features, of = data(200, 8, 3)
    problems = [Problem(np.arange(200) % 7 != n, 2.0) for n in range(7)]
    whole = Logistic(features, of).predict(problems)
    monkeypatch.setattr(logistic, "VALUES", 200 * 3 * 2)
    parts = Logistic(features, of).predict(problems)
    assert parts.shape == whole.shape == (7, 200)
    assert (parts != whole).sum() <= 2  # a part ends when its own problems are solved


def test_rows_outside_of_training_do_not_count() -> None:
    features, of = data(300, 8, 2)
    mask = np.arange(300) < 200
    [first] = Logistic(features, of).predict([Problem(mask, 4.0)])
    other = np.where(mask, of, 1 - of)
    [second] = Logistic(features, other).predict([Problem(mask, 4.0)])
    assert (first == second).all()
