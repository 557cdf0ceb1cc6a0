"""Pair tasks (GLUE's kind): Pearson and Spearman, accuracy and F1, x 100, from a scorer's outputs.

Axes: P pairs, C outputs (see `encoders.pair_head`: 1 for regression and for a binary task, 3 for three classes).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, f1_score

from distilbench.data.corpus import PairTask
from distilbench.evaluation.sts import spearman
from distilbench.records import Score

Metric = Literal["pearson", "spearman", "accuracy", "f1"]


def pearson(output_P: NDArray[np.floating], target_P: NDArray[np.float64]) -> float:
    """Pearson x 100; 0 when every output is the same."""
    if np.ptp(output_P) == 0:
        return 0.0
    return 100 * float(pearsonr(output_P.astype(np.float64), target_P).statistic)


def predicted_class(kind: str, outputs_PC: NDArray[np.floating]) -> NDArray[np.int64]:
    """Class numbers: the largest of three outputs; 1 where the single output of a binary task is above 0."""
    if kind == "binary":
        return (outputs_PC[:, 0] > 0).astype(np.int64)
    return np.argmax(outputs_PC, axis=1)


def pair_metrics(kind: str, outputs_PC: NDArray[np.floating], target_P: NDArray[np.float64]) -> dict[Metric, float]:
    """x 100, the metric to select by first: Pearson and Spearman, or accuracy, with two classes F1 of class 1 after it."""
    if kind == "regression":
        output_P = outputs_PC[:, 0].astype(np.float64)
        return {"pearson": pearson(output_P, target_P), "spearman": spearman(output_P, target_P)}
    predicted, gold = predicted_class(kind, outputs_PC), target_P.astype(np.int64)
    metrics: dict[Metric, float] = {"accuracy": 100 * float(accuracy_score(gold, predicted))}
    if kind == "binary":
        metrics["f1"] = 100 * float(f1_score(gold, predicted, zero_division=0))
    return metrics


def pair_scores(task: PairTask, split: Literal["dev", "test"], outputs_PC: NDArray[np.floating]) -> list[Score]:
    """The scores of a task's split, in the order of `pair_metrics`."""
    target_P = task.splits[split].target_P
    return [
        Score(task="pairs", set=task.name, split=split, metric=metric, variant="all", value=value, n=len(target_P))
        for metric, value in pair_metrics(task.kind, outputs_PC, target_P).items()
    ]
