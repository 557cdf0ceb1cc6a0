"""How far a score would move with another sample of its set's items, and which rows another sample would put in order.

Percentile bootstrap: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Rows that said something of
the same items are compared by paired resampling: Dror, Baumer, Shlomov and Reichart, The Hitchhiker's Guide to Testing
Statistical Significance in Natural Language Processing (ACL 2018), section 3.

Axes in names: P items of a set (pairs, queries, sentences), S seeds of all rows, B resamples, R rows.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.stats import rankdata

from distilbench.records import Score

RESAMPLES = 1_000
CONFIDENCE = 0.95
TAILS = (100 * (1 - CONFIDENCE) / 2, 100 * (1 + CONFIDENCE) / 2)
"""Percentiles that end an interval."""
BLOCK = 250
"""Resamples whose counts are in memory at a time: 30 MB for a set of 15,000 pairs."""
DIGITS = 9
"""The digits of an average that count. The same similarities give averages apart by 1e-13: a matrix product rounds by
column."""
SEED = 0
KEPT = 5_000
"""Items of a set whose draws are kept in memory for the next row."""
Counts = NDArray[np.floating]
"""How often each item is drawn in each resample, B x P."""


class Interval(NamedTuple):
    """The 95 % percentile interval."""

    low: float
    high: float


class Resampled(NamedTuple):
    """A score of the whole sample, and of each resample."""

    value: float
    resampled_B: NDArray[np.float64]

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the score."""
        return percentiles(self.resampled_B)


class Items(NamedTuple):
    """What a row said of the items of a set, and the set's weight in the whole.

    A value for each item, whose mean counts; or, with the gold scores of pairs, similarities, whose Spearman correlation
    does.
    """

    value_P: NDArray[np.floating]
    gold_P: NDArray[np.floating] | None = None
    weight: float = 1.0


class Averages(NamedTuple):
    """The test average x 100 of each row, as a mean over its seeds: of the full sample, and of each resample."""

    observed_R: NDArray[np.float64]
    resampled_BR: NDArray[np.float64]


class Difference(BaseModel):
    """One row's average minus another's on the same items: the difference, its 95 % interval, and the two-sided p of none.

    `ahead` is the share of resamples in which the row is strictly above the other.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    p: float = Field(default=1.0, ge=0, le=1)
    ahead: float = Field(default=0.0, ge=0, le=1)


class GroupPlace(NamedTuple):
    """Where a row stands: its group, and its difference to the row at position `leader`, which opened the group."""

    group: str
    leader: int
    difference: Difference


# One row


def resampled_mean(value_P: NDArray[np.floating] | NDArray[np.bool_]) -> Resampled:
    """The mean of the items' values x 100 (accuracy, reciprocal rank, nDCG, recall, average precision)."""
    share_P = 100 * value_P.astype(np.float64) / len(value_P)
    return _resampled(len(value_P), lambda counts_BP: counts_BP @ share_P.astype(counts_BP.dtype))


def resampled_correlation(left_P: NDArray[np.floating], right_P: NDArray[np.floating], *, ranks: bool) -> Resampled:
    """Pearson's correlation x 100, or with `ranks` Spearman's: of the full sample's ranks, as in `paired_bootstrap`."""
    x_P, y_P = (_standard(rankdata(side) if ranks else side) for side in (left_P, right_P))

    def correlation(counts_BP: Counts) -> Counts:
        x, y = (side.astype(counts_BP.dtype) for side in (x_P, y_P))
        return _weighted_correlation(counts_BP, y, x[:, None])[:, 0]

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


def score_of(resampled: Resampled, items: int, **described: str) -> Score:
    """The score of a record, with its interval; `described` says its task, set, split and metric."""
    measured = {"value": resampled.value, "n": items, **resampled.interval._asdict()}
    return Score.model_validate({"variant": "all", **described, **measured})


def _resampled(items: int, score: Callable[[Counts], Counts]) -> Resampled:
    """`score` gives a value for each row of counts: of the whole sample in float64, of the others in float32.

    The draws depend on the number of items and on nothing else: two rows of one set are resampled alike.
    """
    whole = float(score(np.ones((1, items)))[0])
    return Resampled(whole, np.concatenate([score(block_BP) for block_BP in _draws(items)]).astype(np.float64))


def _draws(items: int) -> Iterable[NDArray[np.float32]]:
    return [_kept_draws(items)] if items <= KEPT else _drawn(items)


@functools.lru_cache(maxsize=64)
def _kept_draws(items: int) -> NDArray[np.float32]:
    return np.concatenate(list(_drawn(items)))


def _drawn(items: int) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng([SEED, items])
    return (_counts(rng, BLOCK, items).astype(np.float32) for _ in range(0, RESAMPLES, BLOCK))


# Several rows


def paired_bootstrap(
    rows: Sequence[Sequence[Mapping[str, Items]]], *, resamples: int = RESAMPLES, seed: int = 0
) -> Averages:
    """Resample the weighted mean of several sets' measures x 100, for rows of one or more seeds that have the same sets.

    A resample draws, with replacement, the items within each set (the same ones for all seeds of all rows) and the seeds
    within each row (a row's own draw; a row with one seed keeps it). `seed` decides the draws; the items drawn do not depend
    on the rows.

    Ranks are those of the full sample, computed once; a resample's Spearman is the Pearson correlation of these ranks,
    weighted by how often each pair was drawn: a matrix product for all seeds at once. Ranking every resample anew would
    take 20 times as long (10 rows of 3 seeds, 15,000 pairs: 9 s instead of 0.4), and widened the interval of a difference
    between two similar rows by 0 to 3 % at 1,500 pairs, by 2 to 16 % at 200. STS12-16, STS-B and SICK have 1,186 to 4,927.
    Below 100 pairs the interval is much too narrow: at 40 by a quarter to a half.

    With n seeds their spread is taken as sqrt((n - 1) / n) of what it is estimated to be, as in any plain bootstrap:
    with two or three seeds, intervals are rather too narrow.
    """
    seeds = [items for row in rows for items in row]
    item_draws, seed_draws = np.random.default_rng(seed).spawn(2)
    observed_S, resampled_BS = np.zeros(len(seeds)), np.zeros((resamples, len(seeds)))
    for name in sorted(seeds[0]):
        first = seeds[0][name]
        if any(name not in s or len(s[name].value_P) != len(first.value_P) for s in seeds):
            raise ValueError(f"{name}: expected {len(first.value_P)} values of every seed")
        value_PS = np.stack([s[name].value_P for s in seeds], axis=1).astype(np.float64)
        score = _score_of(value_PS, first.gold_P)
        observed_S += first.weight * score(np.ones((1, len(value_PS))))[0]
        for start in range(0, resamples, BLOCK):
            stop = min(start + BLOCK, resamples)
            resampled_BS[start:stop] += first.weight * score(_counts(item_draws, stop - start, len(value_PS)))
    return _averages(observed_S, resampled_BS, [len(row) for row in rows], seed_draws)


def _score_of(value_PS: NDArray[np.float64], gold_P: NDArray[np.floating] | None) -> Callable[[Counts], Counts]:
    """A function from how often each item is drawn, B x P, to the scores, B x S."""
    if gold_P is None:
        return lambda counts_BP: 100 * (counts_BP / counts_BP.shape[1]) @ value_PS
    ranks = _standard(rankdata(gold_P)), _standard(rankdata(value_PS, axis=0))
    return lambda counts_BP: _weighted_correlation(counts_BP, *ranks)


def _averages(
    observed_S: NDArray[np.float64], resampled_BS: NDArray[np.float64], sizes: Sequence[int], draws: np.random.Generator
) -> Averages:
    """The means over the seeds of each row, `sizes` seeds each, which every resample draws anew."""
    observed, resampled = [], []
    for first, n in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
        share_Bn = draws.multinomial(n, np.full(n, 1 / n), size=len(resampled_BS)) / n
        observed.append(observed_S[first : first + n].mean())
        resampled.append((share_Bn * resampled_BS[:, first : first + n]).sum(axis=1))
    return Averages(np.round(observed, DIGITS), np.round(np.stack(resampled, axis=1), DIGITS))


def paired_difference(averages: Averages, row: int, other: int) -> Difference:
    """Compare the rows at two positions."""
    difference_B = averages.resampled_BR[:, row] - averages.resampled_BR[:, other]
    below, above = np.count_nonzero(difference_B <= 0), np.count_nonzero(difference_B >= 0)
    p = min(1.0, 2 * (min(below, above) + 1) / (len(difference_B) + 1))
    value = averages.observed_R[row] - averages.observed_R[other]
    low, high = percentiles(difference_B)
    return Difference(value=float(value), low=low, high=high, p=float(p), ahead=float(np.mean(difference_B > 0)))


def grouped(averages: Averages) -> list[GroupPlace]:
    """The group of each row, in the order of the rows.

    The row with the highest average opens group "a"; every other row whose 95 % interval of the paired difference to it
    holds 0 is in that group. Of the remaining rows the highest opens "b", and so on. A group says which rows cannot be
    told from its first; two others of a group may well differ from each other. Intervals are not corrected for their
    number.
    """
    left = sorted(range(len(averages.observed_R)), key=lambda row: -averages.observed_R[row])
    ties: dict[int, GroupPlace] = {}
    number = 0
    while left:
        for row in left:
            difference = paired_difference(averages, row, left[0])
            if difference.low <= 0 <= difference.high:
                ties[row] = GroupPlace(_letters(number), left[0], difference)
        left = [row for row in left if row not in ties]
        number += 1
    return [ties[row] for row in range(len(ties))]


def percentiles(values_B: NDArray[np.float64]) -> Interval:
    """The interval that holds 95 % of the values."""
    low, high = np.percentile(values_B, TAILS)
    return Interval(float(low), float(high))


def _weighted_correlation(counts_BP: Counts, y_P: NDArray[np.floating], x_PS: NDArray[np.floating]) -> Counts:
    """Pearson x 100 of `y_P` with each column of `x_PS` (`_standard` columns), B x S; 0 where all values drawn are one."""
    weight_BP = counts_BP / counts_BP.shape[1]
    y_B1, yy_B1 = (weight_BP @ np.stack([y_P, y_P**2], axis=1)).T[:, :, None]
    x_BS, xx_BS, xy_BS = np.split(weight_BP @ np.hstack([x_PS, x_PS**2, x_PS * y_P[:, None]]), 3, axis=1)
    variances = (xx_BS - x_BS**2) * (yy_B1 - y_B1**2)
    deviations = np.sqrt(np.maximum(variances, 0))
    known = deviations > 1e-6  # of 1 in the full sample
    return 100 * np.divide(xy_BS - x_BS * y_B1, deviations, out=np.zeros_like(x_BS), where=known)


def _standard(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Columns of mean 0 and variance 1; of zeros where all values are the same."""
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    deviation = centred.std(axis=0)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)


def _counts(rng: np.random.Generator, resamples: int, items: int) -> NDArray[np.float64]:
    drawn = rng.integers(items, size=(resamples, items))
    return np.stack([np.bincount(row, minlength=items) for row in drawn]).astype(np.float64)


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    higher, last = divmod(number, 26)
    return (_letters(higher - 1) if higher else "") + string.ascii_lowercase[last]
