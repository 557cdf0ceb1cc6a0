"""How far a score would move with another sample of its set's items: percentile bootstrap of one row.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Rows are compared by `bootstrap`. The draws
depend on the number of items and on nothing else: two rows of one set are resampled alike, whenever each was scored.

Axes in names: P items of a set (pairs, queries, sentences), B resamples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from distilbench.evaluation.bootstrap import (
    BLOCK,
    RESAMPLES,
    Interval,
    counts,
    percentiles,
    standard,
    weighted_correlation,
)

SEED = 0
KEPT = 5_000
"""Items of a set whose draws are kept in memory."""
Counts = NDArray[np.floating]


class Resampled(NamedTuple):
    """A score of the whole sample, and of each resample."""

    value: float
    resampled_B: NDArray[np.float64]

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the score."""
        return percentiles(self.resampled_B)


def resampled_mean(value_P: NDArray[np.floating] | NDArray[np.bool_]) -> Resampled:
    """The mean of the items' values x 100 (accuracy, reciprocal rank, nDCG, recall, average precision)."""
    share_P = 100 * value_P.astype(np.float64) / len(value_P)
    return _resampled(len(value_P), lambda counts_BP: counts_BP @ share_P.astype(counts_BP.dtype))


def resampled_correlation(left_P: NDArray[np.floating], right_P: NDArray[np.floating], *, ranks: bool) -> Resampled:
    """Pearson's correlation x 100, or with `ranks` Spearman's: of the full sample's ranks, as in `bootstrap`."""
    x_P, y_P = (standard(rankdata(side) if ranks else side) for side in (left_P, right_P))

    def correlation(counts_BP: Counts) -> Counts:
        x, y = (side.astype(counts_BP.dtype) for side in (x_P, y_P))
        return weighted_correlation(counts_BP, y, x[:, None])[:, 0]

    return _resampled(len(x_P), correlation)


def resampled_f1(predicted_P: NDArray[np.bool_], gold_P: NDArray[np.bool_]) -> Resampled:
    """F1 x 100 of the true class; 0 in a resample without one."""
    both_P, either_P = (predicted_P & gold_P).astype(np.float64), predicted_P.astype(np.float64) + gold_P

    def f1(counts_BP: Counts) -> Counts:
        both_B, either_B = (counts_BP @ side.astype(counts_BP.dtype) for side in (both_P, either_P))
        return 200 * np.divide(both_B, either_B, out=np.zeros_like(both_B), where=either_B > 0)

    return _resampled(len(gold_P), f1)


def mean_of(parts: Sequence[Resampled], weights: Sequence[float] | None = None) -> Resampled:
    """The (weighted) mean of scores of different sets, each resampled on its own."""
    values = np.average([p.value for p in parts], weights=weights)
    return Resampled(float(values), np.average(np.stack([p.resampled_B for p in parts]), axis=0, weights=weights))


def _resampled(items: int, score: Callable[[Counts], Counts]) -> Resampled:
    """`score` gives a value for each row of counts, B x P: of the whole sample in float64, of the others in float32."""
    whole = float(score(np.ones((1, items)))[0])
    return Resampled(whole, np.concatenate([score(block_BP) for block_BP in _draws(items)]).astype(np.float64))


def _draws(items: int) -> Iterable[NDArray[np.float32]]:
    """How often each item is drawn, in blocks of resamples."""
    return [_kept_draws(items)] if items <= KEPT else _drawn(items)


@functools.lru_cache(maxsize=64)
def _kept_draws(items: int) -> NDArray[np.float32]:
    """All of them, kept for the next row: 4 MB for 1,000 items."""
    return np.concatenate(list(_drawn(items)))


def _drawn(items: int) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng([SEED, items])
    return (counts(rng, BLOCK, items).astype(np.float32) for _ in range(0, RESAMPLES, BLOCK))
