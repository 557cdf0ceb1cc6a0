"""How the rows of a leaderboard compare: computed from their kept predictions, or as a report wrote it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Interval, Tie
from distilbench.evaluation.statistics import Difference
from distilbench.reporting.apart import DevGroup, dev_groups
from distilbench.reporting.differences import Differences, RowDifferences, differences
from distilbench.reporting.report_records import (
    DevAlike,
    PairedDifference,
    PairedRow,
    PairedTable,
    ReportRecord,
    TieRow,
)
from distilbench.reporting.table import Leaderboard, Row, told
from distilbench.reporting.ties import NO_TIES, RowTie, Ties


class Comparisons(NamedTuple):
    """Tie groups of the test average, paired differences to a reference row, and which dev scores can be told apart."""

    ties: Ties = NO_TIES
    paired: Sequence[Differences] = ()
    dev: Sequence[DevGroup] = ()


def compare_rows(board: Leaderboard, ties: Ties, folders: Sequence[Path]) -> Comparisons:
    """The comparisons of `board` from the predictions that the runs in `folders` keep; `ties` are computed already."""
    return Comparisons(ties, differences(board, folders), dev_groups(board, folders))


def to_record(board: Leaderboard, comparisons: Comparisons, title: str, notes: Sequence[str]) -> ReportRecord:
    """The comparisons of `board` as a line of its report's file."""
    ties = comparisons.ties
    leaders = {_group(row, ties): row.anchor for row in board.rows if _leads(row, ties)}
    return ReportRecord(
        title=title,
        notes=list(notes),
        seeds=_seeds(board),
        resamples=ties.resamples,
        ties=[
            TieRow(
                row=row.anchor,
                leader=leaders[_group(row, ties)],
                group=tie.group,
                difference=tie.difference,
                low=tie.low,
                high=tie.high,
                ahead=tie.ahead,
            )
            for row in board.rows
            if row.anchor in ties.rows and (tie := ties.rows[row.anchor].tie)
        ],
        ties_within=ties.within,
        without=list(ties.without),
        other_pairs=list(ties.other_pairs),
        paired=[
            PairedTable(
                reference=table.reference.anchor,
                columns=list(table.columns),
                rows=[PairedRow(row=paired.row.anchor, of=list(map(_difference, paired.of))) for paired in table.rows],
            )
            for table in comparisons.paired
        ],
        dev=[DevAlike(rows=list(group.rows), alike=sorted(group.places())) for group in comparisons.dev],
    )


def from_record(board: Leaderboard, record: ReportRecord, source: Path) -> Comparisons | None:
    """What `to_record` wrote, for the rows of `board`; None where it is of other rows or seeds.

    Raises:
        InputError: it names a row that is not among its own; the message names `source`.
    """
    if record.seeds != _seeds(board):
        return None
    rows = {row.anchor: row for row in board.rows}
    try:
        return Comparisons(
            _ties(record, rows),
            [
                Differences(
                    rows[table.reference],
                    tuple(table.columns),
                    tuple(
                        RowDifferences(rows[paired.row], tuple(map(_kept_difference, paired.of)))
                        for paired in table.rows
                    ),
                )
                for table in record.paired
            ],
            [DevGroup.of([rows[anchor].anchor for anchor in group.rows], group.alike) for group in record.dev],
        )
    except KeyError as error:
        raise InputError(f"{source}: the line of kind report: {error} is no row of this leaderboard") from None


def _ties(record: ReportRecord, rows: Mapping[str, Row]) -> Ties:
    members = [tie.leader for tie in record.ties]
    places = {anchor: place for place, anchor in enumerate(rows)}
    return Ties(
        {
            rows[tie.row].anchor: RowTie(
                Tie(tie.group, places[tie.leader], tie.difference, tie.low, tie.high, tie.ahead),
                told(rows[tie.leader]),
                leads=tie.leader == tie.row,
                others=members.count(tie.leader) - 1,
            )
            for tie in record.ties
        },
        record.resamples,
        tuple(record.without),
        tuple(record.other_pairs),
        record.ties_within,
    )


def _group(row: Row, ties: Ties) -> tuple[object, ...]:
    """What the rows of one tie group have in common, and no row of another."""
    return *ties.compared(row.record), ties.rows[row.anchor].tie.group


def _leads(row: Row, ties: Ties) -> bool:
    return row.anchor in ties.rows and ties.rows[row.anchor].leads


def _difference(d: Difference | None) -> PairedDifference | None:
    return None if d is None else PairedDifference(value=d.value, low=d.interval.low, high=d.interval.high, p=d.p)


def _kept_difference(d: PairedDifference | None) -> Difference | None:
    return None if d is None else Difference(d.value, Interval(d.low, d.high), d.p)


def _seeds(board: Leaderboard) -> list[str]:
    return sorted(seed.anchor for row in board.rows for seed in row.seeds)
