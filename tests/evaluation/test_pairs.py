"""Metrics of pair tasks by hand; pair probes beside scikit-learn's own regressions, at chance, and what is reported when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold

from distilbench.data.corpus import PairSplit, PairTask, Rows
from distilbench.errors import InputError
from distilbench.evaluation.pairs import LOGISTIC_C, RIDGE_ALPHA, pair_metrics, pair_scores, probe
from distilbench.evaluation.sts import Embed

WIDTH, SENTENCES = 10, 500
Kind = Literal["regression", "binary", "three-class"]


def made(kind: Kind, *splits: str, noise: float = 0.2, pairs: int = 400) -> tuple[PairTask, np.ndarray]:
    """A task whose labels depend on |u - v|, and the vectors."""
    rng = np.random.default_rng(len(splits) + len(kind))
    x = rng.standard_normal((SENTENCES, WIDTH)).astype(np.float32)
    weights = rng.standard_normal(WIDTH)
    found = {}
    for split in ("train", "dev", *splits):
        left, right = rng.integers(0, SENTENCES, (2, pairs))
        score = np.abs(x[left] - x[right]) @ weights + noise * rng.standard_normal(pairs)
        classes = {"regression": 0, "binary": 2, "three-class": 3}[kind]
        cuts = np.quantile(score, np.arange(1, classes) / classes) if classes else []
        target = np.searchsorted(cuts, score).astype(np.float64) if classes else score
        found[split] = PairSplit(left, right, target)
    names = {"regression": (), "binary": ("no", "yes"), "three-class": ("a", "b", "c")}[kind]
    return PairTask("SICK", kind, names, 0.0, 1.0, found), x


def by_row(x: np.ndarray) -> Embed:
    return lambda rows: x[rows]


def features(x: np.ndarray, task: PairTask) -> dict[str, np.ndarray]:
    """As the module's text has them, in double precision."""
    x = x.astype(np.float64)
    parts = {name: (np.abs(x[s.left_P] - x[s.right_P]), x[s.left_P] * x[s.right_P]) for name, s in task.splits.items()}
    size = [np.sqrt(np.mean(part**2)) for part in parts["train"]]
    return {name: np.hstack([p / s for p, s in zip(both, size, strict=True)]) for name, both in parts.items()}


# Beside scikit-learn


@pytest.mark.parametrize("kind", ["binary", "three-class"])
def test_classes_are_those_of_scikit_learns_logistic_regression(kind: Kind) -> None:
    task, x = made(kind, "test")
    f = features(x, task)
    gold = {name: split.target_P for name, split in task.splits.items()}
    found = probe(by_row(x), task)
    models = {c: LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(f["train"], gold["train"]) for c in LOGISTIC_C}
    dev = {c: 100 * model.score(f["dev"], gold["dev"]) for c, model in models.items()}
    assert dev[found.penalty] >= max(dev.values()) - 1
    reference = models[found.penalty].predict(f["test"])
    assert np.mean(found.predicted_P == reference) >= 0.99
    values = {s.metric: s.value for s in found.scores}
    assert values["accuracy"] == pytest.approx(100 * np.mean(reference == gold["test"]), abs=1)
    assert values["accuracy"] > 80 > 100 / len(task.classes) + 20  # the label is there to be found
    assert list(values) == (["accuracy", "f1"] if kind == "binary" else ["accuracy"])
    if kind == "binary":
        assert values["f1"] == pytest.approx(100 * f1_score(gold["test"], reference), abs=1)


def test_scores_are_those_of_scikit_learns_ridge_regression() -> None:
    task, x = made("regression", "test", noise=1.0)
    f, gold = features(x, task), {name: split.target_P for name, split in task.splits.items()}
    found = probe(by_row(x), task)
    models = {a: Ridge(alpha=a).fit(f["train"], gold["train"]) for a in RIDGE_ALPHA}
    dev = {a: pearsonr(model.predict(f["dev"]), gold["dev"]).statistic for a, model in models.items()}
    assert found.penalty == max(dev, key=dev.__getitem__)
    np.testing.assert_allclose(found.predicted_P, models[found.penalty].predict(f["test"]), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found.target_P, gold["test"])
    assert [(s.metric, s.set, s.split, s.task, s.variant, s.n) for s in found.scores] == [
        ("pearson", "SICK", "test", "pair-probe", "all", 400),
        ("spearman", "SICK", "test", "pair-probe", "all", 400),
    ]
    assert found.scores[0].value == pytest.approx(100 * pearsonr(found.predicted_P, gold["test"]).statistic)
    assert found.scores[0].value > 80 and found.note == ""


def test_without_a_test_set_the_penalty_is_cross_validated_and_dev_reported() -> None:
    task, x = made("regression", noise=4.0, pairs=120)
    f, gold = features(x, task), {name: split.target_P for name, split in task.splits.items()}
    found = probe(by_row(x), task)
    folds = list(KFold(5, shuffle=True, random_state=0).split(f["train"]))
    values = []
    for alpha in RIDGE_ALPHA:
        out = np.zeros(120)
        for train, held_out in folds:
            out[held_out] = (
                Ridge(alpha=alpha).fit(f["train"][train], gold["train"][train]).predict(f["train"][held_out])
            )
        values.append(pearsonr(out, gold["train"]).statistic)
    assert found.penalty == RIDGE_ALPHA[int(np.argmax(values))]
    reference = RidgeCV(alphas=RIDGE_ALPHA, cv=KFold(5, shuffle=True, random_state=0)).fit(f["train"], gold["train"])
    wanted = 100 * pearsonr(reference.predict(f["dev"]), gold["dev"]).statistic
    assert found.scores[0].value == pytest.approx(wanted, abs=1)
    assert {(s.split, s.n) for s in found.scores} == {("dev", 120)} and found.split == "dev"


# What is reported


@pytest.mark.parametrize("kind", ["binary", "three-class", "regression"])
@pytest.mark.parametrize("splits", [(), ("test",)])
def test_reported_labels_are_not_looked_at(kind: Kind, splits: tuple[str, ...]) -> None:
    task, x = made(kind, *splits, noise=2.0, pairs=200)
    reported = "test" if splits else "dev"
    found = probe(by_row(x), task)
    assert (found.split, len(found.predicted_P)) == (reported, 200)
    other = replace(task.splits[reported], target_P=task.splits[reported].target_P[::-1])
    again = probe(by_row(x), replace(task, splits={**task.splits, reported: other}))
    assert again.penalty == found.penalty
    np.testing.assert_array_equal(again.predicted_P, found.predicted_P)
    assert again.scores != found.scores


# How much is read


def test_training_pairs_are_a_sample_of_at_most_the_limit() -> None:
    task, x = made("regression", "test")
    asked: list[Rows] = []

    def embed(rows: Rows) -> np.ndarray:
        asked.append(rows)
        return x[rows]

    few, again, other = (probe(embed, task, limit=30, seed=seed) for seed in (1, 1, 2))
    assert len(asked) == 3  # once each
    for rows in asked:
        assert np.array_equal(rows, np.unique(rows))
    assert not np.array_equal(asked[0], asked[2])
    held_out = {int(r) for n in ("dev", "test") for r in (*task.splits[n].left_P, *task.splits[n].right_P)}
    trained = {int(r) for r in (*task.splits["train"].left_P, *task.splits["train"].right_P)}
    assert held_out <= set(asked[0].tolist()) <= held_out | trained
    np.testing.assert_array_equal(few.predicted_P, again.predicted_P)
    assert not np.array_equal(few.predicted_P, other.predicted_P)
    whole, most = probe(embed, task), probe(embed, task, limit=400)
    np.testing.assert_array_equal(whole.predicted_P, most.predicted_P)


# Collapsed embeddings


@pytest.mark.parametrize("splits", [(), ("test",)])
@pytest.mark.parametrize("noise", [0.0, 2e-7])
def test_a_constant_prediction_of_scores_is_a_note(splits: tuple[str, ...], noise: float) -> None:
    task, x = made("regression", *splits)
    collapsed = (1 + noise * x).astype(np.float32)
    assert (np.ptp(collapsed) > 0) == (noise > 0)  # float32 steps by 1.2e-7 here
    found = probe(by_row(collapsed), task)
    assert found.scores == []
    assert found.note.startswith(f"SICK: every {found.split} pair is given the score ")
    assert found.note.endswith("a constant correlates with nothing")


# Bad input


def changed(task: PairTask, split: str, target: Any) -> PairTask:
    return replace(task, splits={**task.splits, split: replace(task.splits[split], target_P=target)})


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize(("kind", "one"), [("binary", 1.0), ("three-class", 2.0), ("regression", 3.5)])
def test_one_label_only(kind: Kind, one: float, split: str) -> None:
    task, x = made(kind, "test", pairs=40)
    with pytest.raises(InputError, match=rf"SICK: the 40 {split} pairs have the labels \[.*\], expected 2"):
        probe(by_row(x), changed(task, split, np.full(40, one)))


def test_too_few_labels() -> None:
    task, x = made("three-class", pairs=40)
    two = np.arange(40) % 2.0
    with pytest.raises(InputError, match="SICK: a dev pair is of class 2, which no training pair is of"):
        probe(by_row(x), changed(task, "train", two))
    rare = np.where(np.arange(40) < 3, 2.0, two)
    with pytest.raises(InputError, match="SICK: 3 training pairs of class 2; expected at least 5"):
        probe(by_row(x), changed(task, "train", rare))
    regression, x = made("regression", pairs=40)
    with pytest.raises(InputError, match="SICK: 4 training pairs; expected at least 5"):
        probe(by_row(x), regression, limit=4)


# Metrics on values worked out by hand


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def test_pearson_and_spearman_by_hand() -> None:
    # Centred: outputs -1.5 -0.5 0.5 1.5, scores -2 1 -1 2; products 3 - 0.5 - 0.5 + 3 = 5; norms sqrt(5) sqrt(10).
    metrics = pair_metrics("regression", column(1, 2, 3, 4), np.array([1.0, 4.0, 2.0, 5.0]))
    assert metrics["pearson"] == pytest.approx(100 * 5 / np.sqrt(50))
    # Ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15) = 0.8.
    assert metrics["spearman"] == pytest.approx(80)
    assert list(metrics) == ["pearson", "spearman"]  # the first one selects


def test_accuracy_and_f1_of_a_binary_task_by_hand() -> None:
    # Predicted 1 1 0 0 1 (0 itself is class 0), gold 1 0 0 1 1: 3 of 5 right; precision 2/3, recall 2/3.
    metrics = pair_metrics("binary", column(0.1, 2, 0, -1, 5), np.array([1.0, 0.0, 0.0, 1.0, 1.0]))
    assert metrics == {"accuracy": pytest.approx(60), "f1": pytest.approx(100 * 2 / 3)}


def test_accuracy_of_three_classes_by_hand() -> None:
    outputs = np.array([[3, 1, 2], [0, 1, 2], [-5, -1, -3], [1, 0, 0]], dtype=np.float32)
    # Predicted 0 2 1 0.
    assert pair_metrics("three-class", outputs, np.array([0.0, 2.0, 1.0, 1.0])) == {"accuracy": pytest.approx(75)}


def test_scores_name_task_split_and_number_of_pairs() -> None:
    rows = np.arange(2)
    splits = {"dev": PairSplit(rows, rows, np.array([1.0, 0.0])), "test": PairSplit(rows, rows, np.array([0.0, 0.0]))}
    task = PairTask("MRPC", "binary", ("different", "equivalent"), 0.0, 1.0, splits)
    dev = pair_scores(task, "dev", column(1, -1))
    assert [(s.task, s.set, s.split, s.metric, s.variant, s.value, s.n) for s in dev] == [
        ("pairs", "MRPC", "dev", "accuracy", "all", 100.0, 2),
        ("pairs", "MRPC", "dev", "f1", "all", 100.0, 2),
    ]
    assert [s.value for s in pair_scores(task, "test", column(1, -1))] == [50.0, 0.0]
