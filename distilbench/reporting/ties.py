"""Which rows of a leaderboard cannot be told apart: records and their kept predictions -> tie groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import RESAMPLES, Items, Tie, grouped, paired_bootstrap, paired_mix
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting import table
from distilbench.reporting.report_records import TiesWithin
from distilbench.reporting.selected import kept_items, same_items
from distilbench.selection import STS

TOLERANCE = 1e-6
"""How far (x 100) a Spearman of kept predictions may be from its record's: another version of SciPy may round otherwise."""
WITHIN: Mapping[TiesWithin, str] = {
    "bytes": "as many bytes per vector",
    "dimension": "one dimension and quantisation",
}
"""Which rows a letter is of, in words."""
NAMED = 3
"""Rows named in a notice; the others are counted."""


class RowTie(NamedTuple):
    """A row's place: `tie` as in the bootstrap, what its group's first row is called, and how many others the group has."""

    tie: Tie
    leader: str
    leads: bool
    others: int


class Ties(NamedTuple):
    """Tie groups by a row's anchor, for rows of which every seed's predictions are there.

    `without` names the rows that have none or not all of them, `other_pairs` those whose test pairs are not those of the
    other rows on their corpus.
    """

    rows: Mapping[str, RowTie]
    resamples: int = RESAMPLES
    without: tuple[str, ...] = ()
    other_pairs: tuple[str, ...] = ()
    within: TiesWithin = "bytes"
    """What the rows that were compared have in common."""

    def compared(self, record: ScoreRecord) -> tuple[object, ...]:
        """What a row has in common with the rows that its letter was found among."""
        if self.within == "bytes":
            return record.compared_on, record.bytes_per_vector
        return record.compared_on, record.dim, record.quantisation


NO_TIES = Ties({})
ALONE = Tie("a", 0, 0.0, 0.0, 0.0, 0.0)
"""The letter of a row that stands alone: there is no other to tell it from."""


def tie_groups(
    records: Iterable[TrialRecord | ScoreRecord],
    run_folders: Sequence[Path],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ties:
    """Tie groups within each corpus and number of bytes per vector, whatever dimension and code; the teacher's float32 apart.

    They are of the test average "all" (see `bootstrap.grouped`). Predictions are looked for in all of `run_folders`;
    rows without an average take no part. A file that is missing, damaged or not what its record says costs its row the
    group, nothing else.
    """
    board = table.leaderboard(records)
    compared: dict[tuple[object, ...], list[table.Row]] = {}
    for row in board.rows:
        if table.competes(row.record) and board.cell(row, table.AVERAGE).value is not None:
            compared.setdefault(NO_TIES.compared(row.record), []).append(row)
    if board.selection != STS:
        return _selected_ties(board, list(compared.values()), run_folders, resamples, seed)
    tie_of_row: dict[str, RowTie] = {}
    without, other_pairs = [], []
    golds: dict[str, Predictions] = {}
    for (corpus, *_), rows in compared.items():
        comparable: list[tuple[table.Row, list[Predictions]]] = []
        for row in rows:
            seeds = [kept_predictions(seed.record, run_folders, board.sts_sets) for seed in row.seeds]
            predictions = [p for p in seeds if p is not None]
            if len(predictions) < len(seeds):
                without.append(table.told(row))
                continue
            gold = golds.setdefault(str(corpus), predictions[0])
            if all(_same_pairs(gold, p, board.sts_sets) for p in predictions):
                comparable.append((row, predictions))
            else:
                other_pairs.append(table.told(row))
        if comparable:
            if len(comparable) == 1:
                tie_of_row[comparable[0][0].anchor] = RowTie(ALONE, table.told(comparable[0][0]), leads=True, others=0)
                continue
            gold_of = {name: golds[str(corpus)].gold[name] for name in board.sts_sets}
            similarities = [[p.similarity for p in seeds] for _, seeds in comparable]
            ties = grouped(paired_bootstrap(gold_of, similarities, resamples=resamples, seed=seed))
            tie_of_row |= _places([row for row, _ in comparable], ties)
    return Ties(tie_of_row, resamples, tuple(without), tuple(other_pairs))


def _places(rows: Sequence[table.Row], ties: Sequence[Tie]) -> dict[str, RowTie]:
    """By anchor the place of each row that was compared."""
    sizes = Counter(tie.group for tie in ties)
    return {
        row.anchor: RowTie(tie, table.told(rows[tie.leader]), tie.leader == i, sizes[tie.group] - 1)
        for i, (row, tie) in enumerate(zip(rows, ties, strict=True))
    }


def _selected_ties(
    board: table.Leaderboard,
    groups: Sequence[Sequence[table.Row]],
    run_folders: Sequence[Path],
    resamples: int,
    seed: int,
) -> Ties:
    """The same of the measure that students were selected by, where that is not STS."""
    tie_of_row: dict[str, RowTie] = {}
    without, other_pairs = [], []
    for rows in groups:
        found: list[tuple[table.Row, list[Mapping[str, Items]]]] = []
        for row in rows:
            loaded = [kept_items(s.record, board.selection, "test", s.values["all"][0], run_folders) for s in row.seeds]
            items = [i for i in loaded if i is not None]
            if len(items) < len(loaded):
                without.append(table.told(row))
                continue
            first = found[0][1][0] if found else items[0]
            if all(same_items(first, i) for i in items):
                found.append((row, items))
            else:
                other_pairs.append(table.told(row))
        if len(found) == 1:
            only = found[0][0]
            tie_of_row[only.anchor] = RowTie(ALONE, table.told(only), leads=True, others=0)
        elif found:
            ties = grouped(paired_mix([items for _, items in found], resamples=resamples, seed=seed))
            tie_of_row |= _places([row for row, _ in found], ties)
    return Ties(tie_of_row, resamples, tuple(without), tuple(other_pairs))


def tie_notices(ties: Ties) -> tuple[str, ...]:
    """What a reader has to know of the tie groups, in plain words; nothing where they were not looked for."""
    lines = []
    if ties.rows:
        lines.append(
            f"Tie groups: of the rows of {WITHIN[ties.within]}, those with the same letter cannot be told from the group's "
            "first row: the 95 % interval of the difference in test average holds 0. It comes from a paired bootstrap of "
            f"{ties.resamples:,} resamples, which draw the pairs of each test set, the same for every row, and the seeds "
            "of each row, with replacement. A row with one seed keeps it, so what its training owes to chance is not in "
            "the interval; with two or three seeds, not all of it is. Two rows of a group that are not its first may differ."
        )
    if ties.without:
        lines.append(
            f"Without a tie group, since the predictions of a seed are not kept, or not readable: {_named(ties.without)}."
        )
    if ties.other_pairs:
        lines.append(
            "Without a tie group, since their test pairs are not those of the other rows on their corpus: "
            f"{_named(ties.other_pairs)}."
        )
    return tuple(lines)


def kept_predictions(
    record: ScoreRecord, folders: Iterable[Path], sets: Iterable[str] | None = None
) -> Predictions | None:
    """The first kept predictions of the record that give its own scores of `sets`; None is those that it has."""
    test = ("sts", "test", "spearman", "all")
    values = {s.set: s.value for s in record.scores if (s.task, s.split, s.metric, s.variant) == test}
    sets = list(values) if sets is None else list(sets)
    for folder in folders:
        try:
            predictions = Predictions.load(predictions_path(folder, record.record_id))
        except InputError:
            continue
        if all(_gives(predictions, name, values.get(name)) for name in sets):
            return predictions
    return None


def _gives(predictions: Predictions, name: str, value: float | None) -> bool:
    """Whether the predictions of a set have the Spearman correlation that was recorded."""
    if name not in predictions.gold or value is None:
        return False
    return abs(spearman(predictions.similarity[name], predictions.gold[name]) - value) < TOLERANCE


def _same_pairs(one: Predictions, other: Predictions, sets: Iterable[str]) -> bool:
    return all(np.array_equal(one.gold[name], other.gold[name]) for name in sets)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} {'row' if len(names) == 1 else 'rows'} ({', '.join(names[:NAMED])}{more})"
