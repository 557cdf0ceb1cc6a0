"""Metrics of pair tasks on values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from distilbench.data.corpus import PairSplit, PairTask
from distilbench.evaluation.pairs import pair_metrics, pair_scores


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
