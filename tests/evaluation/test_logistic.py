"""All regressions at once are those of scikit-learn, one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from distilbench.evaluation.logistic import Logistic, Problem


def data(rows: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features with correlated columns and a mean, as sentence embeddings have, and overlapping classes."""
    rng = np.random.default_rng(seed)
    of = rng.integers(classes, size=rows)
    centres = 0.4 * rng.standard_normal((classes, width))
    raw = centres[of] + rng.standard_normal((rows, width)) * np.linspace(0.1, 1.5, width)
    mixed = raw @ np.linalg.qr(rng.standard_normal((width, width)))[0] + 2
    return (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32), of


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
    from distilbench.evaluation import logistic as module

    features, of = data(200, 8, 3)
    problems = [Problem(np.arange(200) % 7 != n, 2.0) for n in range(7)]
    whole = Logistic(features, of).predict(problems)
    monkeypatch.setattr(module, "VALUES", 200 * 3 * 2)
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
