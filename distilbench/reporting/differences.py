"""Every row beside one reference row, on the same test items: paired differences, their intervals and p-values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distilbench.evaluation.predictions import Predictions
from distilbench.evaluation.statistics import Difference, Resampled, mean_of, resampled_correlation, resampled_mean
from distilbench.reporting import table
from distilbench.reporting.ties import kept_predictions
from distilbench.codes import FAISS_PEER

PRIMARY = ("ndcg@10", "accuracy")
"""The metric of each task that rows are told apart by."""


class RowDifferences(NamedTuple):
    """A row minus the reference: `of` by column, None where one of the two has no such items."""

    row: table.Row
    of: tuple[Difference | None, ...]


class Differences(NamedTuple):
    """All rows beside `reference`; the first column is the STS average, the others are "TASK/SET/METRIC".

    The rows are float32 ones, or those with as many bytes per vector as a reference that is one of FAISS's codes.
    """

    reference: table.Row
    columns: tuple[str, ...]
    rows: tuple[RowDifferences, ...]


def differences(board: table.Leaderboard, folders: Sequence[Path]) -> list[Differences]:
    """For each group of float32 rows that can be compared, beside its teacher, or else the row with the highest average.

    For each number of bytes per vector that a code of FAISS has, too: the rows of as many bytes beside the one of FAISS's
    with the highest dev score. Of several seeds the mean is taken. Rows without kept predictions are left out, and so is a
    group of one.
    """
    float32: dict[str, list[table.Row]] = {}
    sized: dict[tuple[str, int], list[table.Row]] = {}
    for row in board.rows:
        if row.record.quantisation == "float32":
            float32.setdefault(row.record.compared_on, []).append(row)
        if table.competes(row.record):
            sized.setdefault((row.record.compared_on, row.record.bytes_per_vector), []).append(row)
    known: dict[str, dict[str, Resampled]] = {}

    def scores(row: table.Row) -> dict[str, Resampled]:
        if row.anchor not in known:
            known[row.anchor] = _scores(row, folders, board.sts_sets)
        return known[row.anchor]

    def beside(rows: Sequence[table.Row], reference: table.Row) -> Differences:
        columns = tuple(dict.fromkeys(name for row in (reference, *rows) for name in scores(row)))
        minus = [tuple(_minus(scores(row).get(c), scores(reference).get(c)) for c in columns) for row in rows]
        return Differences(reference, columns, tuple(map(RowDifferences, rows, minus)))

    tables = []
    for rows in float32.values():
        compared = [row for row in rows if scores(row)] if len(rows) > 1 else []
        if len(compared) > 1:  # a board has teachers first, then the highest average
            tables.append(beside(compared[1:], compared[0]))
    for _, rows in sorted(sized.items()):
        peers = [row for row in rows if row.record.method == FAISS_PEER and scores(row)]
        reference = max(peers, key=lambda row: board.cell(row, table.DEV).value or 0.0, default=None)
        others = [row for row in rows if reference and row is not reference and scores(row)]
        if reference and others:
            tables.append(beside(others, reference))
    return tables


def _minus(one: Resampled | None, other: Resampled | None) -> Difference | None:
    return one.minus(other) if one is not None and other is not None else None


def _scores(row: table.Row, folders: Iterable[Path], sts_sets: Sequence[str]) -> dict[str, Resampled]:
    """By column the row's score; empty where the predictions of a seed are not kept."""
    seeds = [kept_predictions(seed.record, folders) for seed in row.seeds]
    seed_scores = [_resampled(p, sts_sets) for p in seeds if p is not None]
    if len(seed_scores) < len(row.seeds):
        return {}
    shared = [name for name in seed_scores[0] if all(name in scores for scores in seed_scores)]
    return {name: mean_of([scores[name] for scores in seed_scores]) for name in shared}


def _resampled(predictions: Predictions, sts_sets: Sequence[str]) -> dict[str, Resampled]:
    sts = {
        f"sts/{name}/spearman": resampled_correlation(predictions.similarity[name], predictions.gold[name], ranks=True)
        for name in sts_sets
        if name in predictions.similarity
    }
    items = {name: resampled_mean(np.asarray(v)) for name, v in predictions.item.items() if name.endswith(PRIMARY)}
    whole = len(sts) == len(sts_sets) and len(sts) > 1
    average: Mapping[str, Resampled] = {table.AVERAGE: mean_of(list(sts.values()))} if whole else {}
    return {**average, **sts, **items}
