"""Sentence classification by SentEval's protocol: a logistic regression on the frozen embeddings, its penalty by validation.

What its `tools/validation.py` does with `usepytorch: False, kfold: 10, seed: 1111`:

* one set (MR, CR, SUBJ, MPQA): 10 folds, in each the penalty by 10 folds of the others (`cross_validated`);
* train and test (TREC, MRPC): the penalty by 10 folds of train (`trained_and_tested`);
* train, dev and test (SST2, SST5, SICK-E): the penalty by dev (`validated`).

Accuracies of a penalty are rounded to two decimals, and of equal ones the strongest penalty is taken, as there. All folds and
penalties are solved at once (`logistic`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from distilbench.data.classification_sets import FOLDS
from distilbench.data.corpus import ClassificationSet, Rows
from distilbench.evaluation.bootstrap import resampled_mean, score_of
from distilbench.evaluation.logistic import Logistic, Problem
from distilbench.evaluation.sts import Embed
from distilbench.records import Score

SEED = 1111
CROSS_VALIDATED_C = tuple(2.0**t for t in range(-2, 4))
"""Also where there is a dev set."""
TESTED_C = tuple(2.0**t for t in range(-1, 6))

Features = NDArray[np.float32]
Classes = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Classified(NamedTuple):
    """`correct_N`: whether each test example, in the order given, was put into its class."""

    dev: float
    """Accuracy x 100 of the penalty chosen, as SentEval reports it (a mean over folds)."""
    test: float
    """Accuracy x 100; over folds, the mean of theirs."""
    correct_N: NDArray[np.bool_]


def classified(embed: Embed, task: ClassificationSet, sentences: Sequence[str]) -> Classified:
    """The set by the protocol that its splits ask for; `sentences` are the corpus's.

    `correct_N` is in the order of the set's test examples, of all of them where it is cross-validated.
    """
    sides = [embed(rows) for rows in task.columns]
    features_ND = sides[0] if len(sides) == 1 else pair_features(sides[0], sides[1])
    # SentEval sorts by the sentences' lengths, then class, before it draws folds; ours are the same ones.
    order = np.lexsort((task.class_N, *(_lengths(rows, sentences) for rows in reversed(task.columns))))
    features_ND, class_N, split_N = features_ND[order], task.class_N[order], task.split_N[order]
    train_N, dev_N = split_N == "train", split_N == "dev"
    if dev_N.any():
        result = validated(features_ND, class_N, train_N, dev_N)
    elif train_N.all():
        result = cross_validated(features_ND, class_N)
    else:
        result = trained_and_tested(features_ND, class_N, train_N)
    tested = order[~(train_N | dev_N)] if not train_N.all() else order
    return result._replace(correct_N=result.correct_N[np.argsort(tested)])


def _lengths(rows: Rows, sentences: Sequence[str]) -> NDArray[np.int64]:
    """The length of each sentence in tokens, which SentEval's files have blanks between."""
    return np.array([len(sentences[row].split()) for row in rows])


def classification_scores(
    embed: Embed, sets: Iterable[ClassificationSet], sentences: Sequence[str]
) -> tuple[list[Score], dict[str, NDArray[np.bool_]]]:
    """The test accuracy of every set, and dev's, which chose the penalty; and by its name which test examples were right."""
    scores, right = list[Score](), dict[str, NDArray[np.bool_]]()
    for task in sets:
        result = classified(embed, task, sentences)
        described = {"task": "classification", "set": task.name, "metric": "accuracy"}
        count = int((task.split_N == "dev").sum()) or int((task.split_N == "train").sum())
        dev = {"split": "dev", "variant": "all", "value": result.dev, "n": count}
        scores.append(Score.model_validate({**described, **dev}))
        resampled = resampled_mean(result.correct_N)._replace(value=result.test)
        scores.append(score_of(resampled, len(result.correct_N), split="test", **described))
        right[f"classification/{task.name}/accuracy"] = result.correct_N
    return scores, right


def pair_features(left_PD: Features, right_PD: Features) -> Features:
    """What a pair is classified by (MRPC, SICK-E): |u - v| and u * v, P x 2D."""
    return np.hstack([np.abs(left_PD - right_PD), left_PD * right_PD])


def cross_validated(features_ND: Features, classes_N: Classes) -> Classified:
    """Nested 10-fold cross-validation of N x D features."""
    solver = Logistic(features_ND, classes_N)
    outer = list(_folds(np.arange(len(classes_N)), classes_N))
    inner = [list(_folds(np.flatnonzero(train_N), classes_N)) for train_N, _ in outer]
    problems = [Problem(train_N, c) for folds in inner for c in CROSS_VALIDATED_C for train_N, _ in folds]
    right_PN = solver.predict(problems) == classes_N
    dev, chosen = [], []
    for number, folds in enumerate(inner):
        first = number * len(CROSS_VALIDATED_C) * FOLDS
        best, accuracy = _best(right_PN[first:], [test_N for _, test_N in folds], len(CROSS_VALIDATED_C))
        dev.append(accuracy)
        chosen.append(CROSS_VALIDATED_C[best])
    right_PN = solver.predict([Problem(train_N, c) for (train_N, _), c in zip(outer, chosen, strict=True)]) == classes_N
    tests = [100 * float(right_N[test_N].mean()) for right_N, (_, test_N) in zip(right_PN, outer, strict=True)]
    correct_N = np.zeros(len(classes_N), dtype=bool)
    for right_N, (_, test_N) in zip(right_PN, outer, strict=True):
        correct_N[test_N] = right_N[test_N]
    return Classified(float(np.mean(dev)), float(np.mean(tests)), correct_N)


def trained_and_tested(features_ND: Features, classes_N: Classes, train_N: Mask) -> Classified:
    """Trained where `train_N` is true, by the best penalty over 10 folds of these; tested on the others."""
    solver = Logistic(features_ND, classes_N)
    folds = list(_folds(np.flatnonzero(train_N), classes_N))
    problems = [Problem(train_N, c) for c in TESTED_C for train_N, _ in folds] + [Problem(train_N, c) for c in TESTED_C]
    right_PN = solver.predict(problems) == classes_N
    best, dev = _best(right_PN, [test_N for _, test_N in folds], len(TESTED_C))
    correct = right_PN[len(TESTED_C) * FOLDS + best][~train_N]
    return Classified(dev, 100 * float(correct.mean()), correct)


def validated(features_ND: Features, classes_N: Classes, train_N: Mask, dev_N: Mask) -> Classified:
    """Trained where `train_N` is true, by the best penalty for `dev_N`; tested on the others."""
    solver = Logistic(features_ND, classes_N)
    right_PN = solver.predict([Problem(train_N, c) for c in CROSS_VALIDATED_C]) == classes_N
    best, dev = _best(right_PN, [dev_N], len(CROSS_VALIDATED_C))
    correct = right_PN[best][~(train_N | dev_N)]
    return Classified(dev, 100 * float(correct.mean()), correct)


def _folds(rows: NDArray[np.int64], classes_N: Classes) -> Iterator[tuple[Mask, Mask]]:
    """Training and test rows of each fold of `rows`, as masks over all rows."""
    splitter = StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED)
    for train, test in splitter.split(rows, classes_N[rows]):
        yield mask_of(rows[train], len(classes_N)), mask_of(rows[test], len(classes_N))


def mask_of(rows: NDArray[np.int64], count: int) -> Mask:
    """True at these of `count` rows."""
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask


def _best(right_PN: NDArray[np.bool_], tests: Sequence[Mask], penalties: int) -> tuple[int, float]:
    """Find the penalty with the best mean accuracy over the folds, and that accuracy; `problems` by penalty, then fold."""
    accuracies = []
    for penalty in range(penalties):
        folds = right_PN[penalty * len(tests) :]
        accuracies.append(round(100 * float(np.mean([r[t].mean() for r, t in zip(folds, tests, strict=False)])), 2))
    best = int(np.argmax(accuracies))
    return best, accuracies[best]
