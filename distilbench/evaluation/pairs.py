"""Pair tasks (GLUE's kind) by a regression on frozen embeddings u and v: for any encoder, whatever it was trained for.

The features of a pair are |u - v| and u * v, of the vectors as the encoder gives them (SentEval, Conneau and Kiela 2018).
Each of the two parts is divided by its root mean square over the training pairs, so that a penalty means the same whatever
the length of the vectors. Classes have a logistic regression, scores a ridge regression.

The reported split is test, with the penalty that is best on dev; without a test set it is dev, and the penalty is the best
of a 5-fold cross-validation on train. Trained is on train alone. Of equal penalties the strongest is taken.

Axes in names: P pairs of the reported split, N pairs of all splits, U distinct sentences, F features, C penalties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import KFold, StratifiedKFold

from distilbench.data.corpus import PairSplit, PairTask
from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Resampled, resampled_correlation, resampled_f1, resampled_mean, score_of
from distilbench.evaluation.classification import mask_of, pair_features
from distilbench.evaluation.logistic import Logistic, Problem
from distilbench.evaluation.sts import Embed, spearman
from distilbench.records import Score

LIMIT = 20_000
"""Training pairs at most, so that QQP's 90,000 do not take minutes."""
FOLDS, SEED = 5, 0
LOGISTIC_C = tuple(10.0**t for t in range(-6, 2))
"""The strongest penalty first, as in `RIDGE_ALPHA`."""
RIDGE_ALPHA = tuple(10.0**t for t in range(5, -2, -1))
NOTHING = 1e-6
"""The least share of the vectors' or the scores' own size: smaller differences are float32's rounding."""

Metric = Literal["pearson", "spearman", "accuracy", "f1"]
Mask = NDArray[np.bool_]


class Probed(NamedTuple):
    """A task on one encoder's embeddings; `predicted_P` and `target_P` are of the reported split's pairs, in their order."""

    split: Literal["dev", "test"]
    scores: list[Score]
    """In the order of `metrics_of`, with their intervals; empty where `note` says why."""
    note: str
    """Task and reason where there are no scores, else ""."""
    penalty: float
    """The one chosen: C of the logistic regression, alpha of the ridge regression."""
    predicted_P: NDArray[np.float64]
    """Scores, or the numbers of classes."""
    target_P: NDArray[np.float64]


def probe(embed: Embed, task: PairTask, *, limit: int = LIMIT, seed: int = SEED) -> Probed:
    """The task by a regression on embeddings; at most `limit` training pairs, drawn with `seed`, as the folds are.

    `embed` is asked once, for the distinct rows that are used.
    """
    split: Literal["dev", "test"] = "test" if "test" in task.splits else "dev"
    parts = {name: task.splits[name] for name in dict.fromkeys(("train", "dev", split))}
    parts["train"] = _sampled(parts["train"], limit, seed)
    _check(task, parts, folded=split == "dev")
    of_N = np.repeat(list(parts), [len(part.target_P) for part in parts.values()])
    target_N = np.concatenate([part.target_P for part in parts.values()])
    train_N, reported_N = of_N == "train", of_N == split
    features_NF = _features(embed, list(parts.values()), train_N)
    # With a test set dev judges the penalties; else each fold of train, as seen by the regression on the others.
    judged_N = of_N == ("dev" if split == "test" else "train")
    held_out = [] if split == "test" else _folds(task, np.flatnonzero(train_N), target_N, seed)
    predicted_CN, *folds = _predict(task, features_NF, target_N, [train_N, *(train_N & ~fold_N for fold_N in held_out)])
    judged_CN = predicted_CN.copy()
    for fold_N, fold_CN in zip(held_out, folds, strict=True):
        judged_CN[:, fold_N] = fold_CN[:, fold_N]
    judged = [_metrics(task, judged_C[judged_N], target_N[judged_N]) for judged_C in judged_CN]
    best = int(np.argmax([next(iter(metrics.values()), 0.0) for metrics in judged]))
    predicted_P, target_P = predicted_CN[best, reported_N], target_N[reported_N]
    metrics, note = _metrics(task, predicted_P, target_P), ""
    if not metrics:
        note = f"{task.name}: every {split} pair is given the score {predicted_P[0]:.4g}: a constant correlates with nothing"
    described = {"task": "pair-probe", "set": task.name, "split": split}
    scores = [
        score_of(
            _resampled(metric, predicted_P, target_P)._replace(value=value), len(target_P), metric=metric, **described
        )
        for metric, value in metrics.items()
    ]
    return Probed(split, scores, note, _penalties(task)[best], predicted_P, target_P)


def _resampled(metric: Metric, predicted_P: NDArray[np.float64], target_P: NDArray[np.float64]) -> Resampled:
    if metric == "accuracy":
        return resampled_mean(predicted_P == target_P)
    if metric == "f1":
        return resampled_f1(predicted_P == 1, target_P == 1)
    return resampled_correlation(predicted_P, target_P, ranks=metric == "spearman")


def _sampled(train: PairSplit, limit: int, seed: int) -> PairSplit:
    if len(train.target_P) <= limit:
        return train
    kept = np.sort(np.random.default_rng(seed).choice(len(train.target_P), limit, replace=False))
    return PairSplit(train.left_P[kept], train.right_P[kept], train.target_P[kept])


def _check(task: PairTask, parts: Mapping[str, PairSplit], folded: bool) -> None:
    """What would otherwise fail late, or give a number that means nothing."""
    known, counts = np.unique(parts["train"].target_P, return_counts=True)
    least = FOLDS if folded else 1
    for name, part in parts.items():
        labels = np.unique(part.target_P)
        if len(labels) < 2:
            raise InputError(f"{task.name}: the {len(part.target_P)} {name} pairs have the labels {labels}, expected 2")
        if task.kind != "regression" and (untrained := sorted(set(labels) - set(known))):
            raise InputError(f"{task.name}: a {name} pair is of class {untrained[0]:g}, which no training pair is of")
    fewest = int(counts.sum() if task.kind == "regression" else counts.min())
    if fewest < least:
        what = "training pairs" if task.kind == "regression" else f"training pairs of class {known[counts.argmin()]:g}"
        raise InputError(f"{task.name}: {fewest} {what}; expected at least {least}, one for each fold")


def _features(embed: Embed, parts: Sequence[PairSplit], train_N: Mask) -> NDArray[np.float32]:
    left_N, right_N = (np.concatenate([getattr(part, side) for part in parts]) for side in ("left_P", "right_P"))
    rows_U = np.unique(np.concatenate([left_N, right_N]))
    vectors_UD = embed(rows_U)
    length = _size(vectors_UD)
    left_ND, right_ND = (vectors_UD[np.searchsorted(rows_U, side_N)] for side_N in (left_N, right_N))
    features_NF = pair_features(left_ND, right_ND)
    width = vectors_UD.shape[1]
    for part_NF, least in ((features_NF[:, :width], NOTHING * length), (features_NF[:, width:], 0.0)):
        size = _size(part_NF[train_N])
        part_NF *= 1 / size if size > least else 0.0
    return features_NF


def _size(values: NDArray[np.float32]) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def _folds(task: PairTask, rows: NDArray[np.int64], target_N: NDArray[np.float64], seed: int) -> list[Mask]:
    """Which of all pairs each fold of `rows` holds out."""
    splitter = KFold if task.kind == "regression" else StratifiedKFold
    splits = splitter(n_splits=FOLDS, shuffle=True, random_state=seed).split(rows, target_N[rows])
    return [mask_of(rows[held_out], len(target_N)) for _, held_out in splits]


def _penalties(task: PairTask) -> tuple[float, ...]:
    return RIDGE_ALPHA if task.kind == "regression" else LOGISTIC_C


def _predict(
    task: PairTask, features_NF: NDArray[np.float32], target_N: NDArray[np.float64], trains: Sequence[Mask]
) -> list[NDArray[np.float64]]:
    """For each training mask the scores or classes of all pairs, C x N, by each penalty."""
    penalties = _penalties(task)
    if task.kind != "regression":
        solver = Logistic(features_NF, target_N.astype(np.int64))
        problems = [Problem(train_N, c) for train_N in trains for c in penalties]
        return list(solver.predict(problems).astype(np.float64).reshape(len(trains), len(penalties), -1))
    float64_NF, predictions = features_NF.astype(np.float64), []
    for train_N in trains:
        # A column of targets for each penalty: X'X, which takes the time, is computed once for all.
        columns = np.repeat(target_N[train_N, None], len(penalties), axis=1)
        ridge = Ridge(alpha=np.array(penalties), solver="cholesky").fit(float64_NF[train_N], columns)
        predictions.append(ridge.predict(float64_NF).T)
    return predictions


def _metrics(task: PairTask, predicted_P: NDArray[np.float64], target_P: NDArray[np.float64]) -> Mapping[Metric, float]:
    """`metrics_of` the predictions; none where every score is the same but for rounding."""
    if task.kind == "regression" and np.ptp(predicted_P) <= NOTHING * np.ptp(target_P):
        return {}
    return metrics_of(task.kind, predicted_P, target_P)


def pair_metrics(kind: str, outputs_PC: NDArray[np.floating], target_P: NDArray[np.float64]) -> dict[Metric, float]:
    """`metrics_of` a head's outputs: the largest of three is the class; of a binary task 1 where the output is above 0."""
    if kind == "three-class":
        return metrics_of(kind, np.argmax(outputs_PC, axis=1), target_P)
    return metrics_of(kind, outputs_PC[:, 0] > 0 if kind == "binary" else outputs_PC[:, 0], target_P)


def metrics_of(kind: str, predicted_P: NDArray[Any], target_P: NDArray[np.float64]) -> dict[Metric, float]:
    """x 100, of scores Pearson and Spearman, of classes accuracy, with two classes F1 of class 1 after it.

    The first is the one to select by.
    """
    if kind == "regression":
        output_P = predicted_P.astype(np.float64)
        pearson = 0.0 if np.ptp(output_P) == 0 else 100 * float(pearsonr(output_P, target_P).statistic)
        return {"pearson": pearson, "spearman": spearman(output_P, target_P)}
    predicted, gold = predicted_P.astype(np.int64), target_P.astype(np.int64)
    metrics: dict[Metric, float] = {"accuracy": 100 * float(accuracy_score(gold, predicted))}
    if kind == "binary":
        metrics["f1"] = 100 * float(f1_score(gold, predicted, zero_division=0))
    return metrics


def pair_scores(task: PairTask, split: Literal["dev", "test"], outputs_PC: NDArray[np.floating]) -> list[Score]:
    """The scores of a task's split, in the order of `metrics_of`."""
    target_P = task.splits[split].target_P
    return [
        Score(task="pairs", set=task.name, split=split, metric=metric, variant="all", value=value, n=len(target_P))
        for metric, value in pair_metrics(task.kind, outputs_PC, target_P).items()
    ]
