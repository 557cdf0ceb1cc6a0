"""Semantic textual similarity: Spearman's and Pearson's correlation of cosine with the gold scores, x 100."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from distilbench.data.corpus import Rows, StsSet
from distilbench.evaluation.bootstrap import Resampled, mean_of, resampled_correlation, score_of
from distilbench.records import Score

Embed = Callable[[Rows], NDArray[np.float32]]
"""Vectors of corpus rows, in the order asked."""
LEAST_SPREAD = 1e-7
"""The smallest spread of a set's cosines that says something: below it are float32's roundings alone."""


def from_rows(rows: Rows, vectors: NDArray[np.float32]) -> Embed:
    """Embed by looking up `vectors` of the rising `rows`."""
    return lambda asked: vectors[np.searchsorted(rows, asked)]


def cosine(left_PD: NDArray[np.float32], right_PD: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of each pair of rows, in float64; 0 where a vector is zero.

    Where they spread less than `LEAST_SPREAD` each is their mean: a collapsed encoder ranks nothing.
    """
    left, right = left_PD.astype(np.float64), right_PD.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine_P = np.divide((left * right).sum(axis=1), norms, out=np.zeros(len(left)), where=norms > 0)
    return cosine_P if np.ptp(cosine_P) >= LEAST_SPREAD else np.full_like(cosine_P, cosine_P.mean())


def spearman(similarity_P: NDArray[np.floating], score_P: NDArray[np.float64]) -> float:
    """Spearman x 100; 0 when every similarity is the same."""
    return 0.0 if np.ptp(similarity_P) == 0 else 100 * float(spearmanr(similarity_P, score_P).statistic)


def scores_of_similarities(every: Sequence[StsSet], similarities: Sequence[NDArray[np.float64]]) -> list[Score]:
    """Spearman and Pearson with their intervals, per group and split.

    "all" (subsets concatenated), and where there are several subsets each one, "mean" and "wmean". "wmean" weighs the
    subsets by their pairs (SentEval), as in table 2 of the MCR2 paper; the other papers report "all".
    """
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, s in enumerate(every):
        groups[s.group, s.split].append(i)
    scores = []
    for (group, split), members in groups.items():
        gold = [every[i].score_P for i in members]
        of_group = [similarities[i] for i in members]
        sizes = [len(g) for g in gold]
        for metric in ("spearman", "pearson"):
            parts = {"all": (_correlation(metric, np.concatenate(of_group), np.concatenate(gold)), sum(sizes))}
            if len(members) > 1:
                single = [_correlation(metric, f, g) for f, g in zip(of_group, gold, strict=True)]
                parts |= {"mean": (mean_of(single), sum(sizes)), "wmean": (mean_of(single, sizes), sum(sizes))}
                parts |= {every[i].subset: (r, n) for i, r, n in zip(members, single, sizes, strict=True)}
            for variant, (resampled, n) in parts.items():
                described = {"task": "sts", "set": group, "split": split, "metric": metric, "variant": variant}
                scores.append(score_of(resampled, n, **described))
    return scores


def _correlation(metric: str, similarity_P: NDArray[np.float64], gold_P: NDArray[np.float64]) -> Resampled:
    resampled = resampled_correlation(similarity_P, gold_P, ranks=metric == "spearman")
    return resampled._replace(value=spearman(similarity_P, gold_P)) if metric == "spearman" else resampled
