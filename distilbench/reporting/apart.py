"""Whether two rows can be told apart on the dev sets that students are chosen by. No test item has a part in it.

Where the dev pairs' cosines of both rows are kept (`RUN/predictions`), by a paired bootstrap. Of records without them (those
of earlier versions, or away from their run), by the large-sample variance of the difference of two correlations with the same
gold scores.

Axes in names: B resamples, R rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import TAILS, Items, paired_bootstrap, paired_mix
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord
from distilbench.reporting.selected import kept_items, same_items
from distilbench.reporting.table import DEV, Leaderboard, Row, mean_cell
from distilbench.selection import STS

TOLERANCE = 1e-6
"""How far (x 100) a Spearman of kept cosines may be from its record's."""
TWO_SIDED = 1.96
"""Standard deviations that hold 95 % of a normal distribution."""


class DevGroup(NamedTuple):
    """Rows with the same dev pairs, by their anchors, and the pairs of them (in either order) that cannot be told apart."""

    rows: tuple[str, ...]
    alike: frozenset[tuple[str, str]]

    @staticmethod
    def of(rows: Sequence[str], places: Iterable[tuple[int, int]]) -> DevGroup:
        """The group of `rows`, of which those at the pairs of `places` are alike."""
        pairs = [(rows[i], rows[j]) for i, j in places]
        return DevGroup(tuple(rows), frozenset([*pairs, *((two, one) for one, two in pairs)]))

    def places(self) -> list[tuple[int, int]]:
        """The positions in `rows` of each pair that is alike, the lower first."""
        place = {anchor: i for i, anchor in enumerate(self.rows)}
        return [(place[one], place[two]) for one, two in self.alike if place[one] < place[two]]


DevGroups = Sequence[DevGroup]
"""Without the rows of which a seed's dev cosines are not kept, and those that no other row shares its dev pairs with."""


def dev_groups(board: Leaderboard, run_folders: Sequence[Path]) -> DevGroups:
    """The rows whose dev cosines are kept, compared by a paired bootstrap of their dev scores (`paired_bootstrap`).

    Two rows are alike where the 95 % interval of the difference of their dev scores (means over seeds) holds 0.
    """
    if board.selection != STS:
        return _selected_groups(board, run_folders)
    groups: list[tuple[dict[str, NDArray[np.float64]], list[tuple[Row, list[Predictions]]]]] = []
    for row in board.rows:
        loaded = [_dev_predictions(seed.record, run_folders, board.dev_sets) for seed in row.seeds]
        predictions = [p for p in loaded if p is not None]
        if not board.dev_sets or len(predictions) < len(loaded):
            continue
        gold = {name: predictions[0].dev_gold[name] for name in board.dev_sets}
        if not all(_same(gold, p.dev_gold) for p in predictions):
            continue
        members = next((rows for other, rows in groups if _same(gold, other)), None)
        if members is None:
            groups.append((gold, members := []))
        members.append((row, predictions))
    compared = []
    for gold, members in groups:
        if len(members) > 1:
            averages = paired_bootstrap(gold, [[p.dev_similarity for p in seeds] for _, seeds in members])
            compared.append(DevGroup.of([row.anchor for row, _ in members], _alike(averages.resampled_BR)))
    return compared


def _selected_groups(board: Leaderboard, run_folders: Sequence[Path]) -> DevGroups:
    """The same of what students were selected by, where that is not STS."""
    groups: list[tuple[Mapping[str, Items], list[tuple[Row, list[Mapping[str, Items]]]]]] = []
    place = [column.key for column in board.columns].index(DEV)
    for row in board.rows:
        loaded = [
            kept_items(seed.record, board.selection, "dev", seed.values["all"][place], run_folders)
            for seed in row.seeds
        ]
        items = [i for i in loaded if i is not None]
        if len(items) < len(loaded) or not all(same_items(items[0], i) for i in items):
            continue
        members = next((rows for first, rows in groups if same_items(first, items[0])), None)
        if members is None:
            groups.append((items[0], members := []))
        members.append((row, items))
    return [
        DevGroup.of([row.anchor for row, _ in members], _alike(paired_mix([i for _, i in members]).resampled_BR))
        for _, members in groups
        if len(members) > 1
    ]


def _alike(dev_BR: NDArray[np.float64]) -> Iterator[tuple[int, int]]:
    """The positions of each two rows whose difference has an interval that holds 0: 0.1 s for 100 rows, 2.6 s for 500."""
    for i in range(dev_BR.shape[1] - 1):
        low_R, high_R = np.percentile(dev_BR[:, i + 1 :] - dev_BR[:, [i]], TAILS, axis=0)
        yield from ((i, i + 1 + int(j)) for j in np.flatnonzero((low_R <= 0) & (high_R >= 0)))


def told_apart(board: Leaderboard, one: Row, other: Row, groups: DevGroups) -> bool:
    """Whether the 95 % interval of the difference of the rows' dev scores (means over seeds) leaves 0 out."""
    for group in groups:
        if one.anchor in group.rows and other.anchor in group.rows:
            return (one.anchor, other.anchor) not in group.alike
    difference = (board.cell(one, DEV).value or 0.0) - (board.cell(other, DEV).value or 0.0)
    return abs(difference) > TWO_SIDED * _deviation(board, one, other)


def _deviation(board: Leaderboard, one: Row, other: Row) -> float:
    """Standard deviation (x 100) of the difference of two rows' dev scores, from the records alone.

    Of the pairs: a Spearman correlation r of n pairs has the variance (1 - r^2)^2 (1 + r^2 / 2) / (n - 3) (Bonett and
    Wright, Psychometrika 65, 2000). Two of them with the same gold scores are correlated; how much depends on the correlation
    of the two rows' cosines, which no record has. It is taken to be r1 r2, as if nothing but the gold scores were common to
    the two, in the covariance of Pearson and Filon (1898). Encoders that were made from one teacher have more in common, so
    this is rather too wide. With 1,500 pairs and scores near 84 the interval is ± 2.1. Of the seeds: the variance of their
    mean.
    """
    if board.selection != STS:
        spread = sum(_spread(board, row) ** 2 for row in (one, other))
        return math.sqrt(spread + sum(map(_of_seeds, _devs(board, (one, other)))))
    variance = 0.0
    for name in board.dev_sets:
        (r1, n1), (r2, n2) = _dev(one, name), _dev(other, name)
        if min(n1, n2) <= 3:
            return math.inf
        variance += _variance(r1) / (n1 - 3) + _variance(r2) / (n2 - 3)
        if n1 == n2 and _digest(one, name) == _digest(other, name):
            covariance = r1 * r2 * (1 - r1**2) * (1 - r2**2) / 2 * (1 + r1 * r2 / 2)
            variance -= 2 * covariance / (n1 - 3)
    pairs = 100**2 * variance / len(board.dev_sets) ** 2
    return math.sqrt(max(0.0, pairs) + sum(map(_of_seeds, _devs(board, (one, other)))))


def _spread(board: Leaderboard, row: Row) -> float:
    """The standard deviation of a row's dev score over its items, from the record's interval; without one nothing is known.

    Rows are taken to be independent, which makes the interval of their difference rather too wide.
    """
    name = str(board.selection)
    scores = (s for s in row.record.scores if s.task == "selection" and s.set == name)
    bounds = next(((s.low, s.high) for s in scores), (None, None))
    return math.inf if bounds[0] is None or bounds[1] is None else (bounds[1] - bounds[0]) / 2 / TWO_SIDED


def _variance(r: float) -> float:
    return (1 - r**2) ** 2 * (1 + r**2 / 2)


def _of_seeds(values: Sequence[float]) -> float:
    """The variance of the mean of the seeds' scores; of one seed nothing is known."""
    return statistics.variance(values) / len(values) if len(values) > 1 else 0.0


def _devs(board: Leaderboard, rows: Iterable[Row]) -> list[list[float]]:
    place = [column.key for column in board.columns].index(DEV)
    return [[v for seed in row.seeds if (v := seed.values["all"][place]) is not None] for row in rows]


def _dev(row: Row, name: str) -> tuple[float, int]:
    """The row's correlation on a dev set (at most 1, the mean over its seeds), and of how many pairs."""
    scores = [
        s
        for seed in row.seeds
        for s in seed.record.scores
        if _is_dev(name, s.task, s.set, s.split, s.metric, s.variant)
    ]
    mean = mean_cell([finite(s.value) for s in scores]).value
    return max(-1.0, min(1.0, (mean or 0.0) / 100)), min((s.n for s in scores), default=0)


def _is_dev(name: str, *of: str) -> bool:
    return of == ("sts", name, "dev", "spearman", "all")


def _digest(row: Row, name: str) -> str:
    return row.record.sets.get(f"{name}/dev", "")


def _dev_predictions(record: ScoreRecord, folders: Sequence[Path], sets: Sequence[str]) -> Predictions | None:
    """The first kept cosines that give the record's own dev scores."""
    values = {s.set: s.value for s in record.scores if _is_dev(s.set, s.task, s.set, s.split, s.metric, s.variant)}
    for folder in folders:
        try:
            predictions = Predictions.load(predictions_path(folder, record.record_id))
        except InputError:
            continue
        if all(_gives(predictions, name, values.get(name)) for name in sets):
            return predictions
    return None


def _gives(predictions: Predictions, name: str, value: float | None) -> bool:
    if value is None or name not in predictions.dev_similarity:
        return False
    return abs(spearman(predictions.dev_similarity[name], predictions.dev_gold[name]) - value) < TOLERANCE


def _same(one: Mapping[str, NDArray[np.float64]], other: Mapping[str, NDArray[np.float64]]) -> bool:
    return all(name in other and np.array_equal(gold, other[name]) for name, gold in one.items())
