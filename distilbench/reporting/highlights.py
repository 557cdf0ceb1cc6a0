"""The cards at the head of the page: the few figures to read first."""

from __future__ import annotations

from typing import NamedTuple

from distilbench.reporting.neighbours import lost_neighbours
from distilbench.reporting.retrieval import SetRetrieval, retrieval_sets
from distilbench.reporting.table import AVERAGE, DEV, Cell, Leaderboard, Row, teacher_row
from distilbench.selection import STS

KEPT_PERCENT = 95


class Highlight(NamedTuple):
    """A card: its row's test average, and what its index finds beside the dev score."""

    title: str
    row: Row
    cell: Cell
    dev: Cell
    retrieval: tuple[SetRetrieval, ...]


def highlights(board: Leaderboard) -> tuple[Highlight, ...]:
    """Up to three rows: the teacher, the highest test average, the fewest bytes that keep 95 % of the teacher's dev score.

    The teacher's own codes and the baselines count like students; a row whose codes have lost their neighbours does not. The
    last is chosen on dev; the test average that is shown of it has no part in the choice.
    """
    scored = [row for row in board.rows if board.cell(row, AVERAGE).value is not None and not lost_neighbours(row)]
    teachers = [row for row in scored if (row.record.role, row.record.quantisation) == ("teacher", "float32")]
    others = [row for row in scored if row not in teachers]
    close = [row for row in others if (board.cell(row, DEV).retention or 0) >= KEPT_PERCENT]
    cards = []
    if teachers:
        cards.append(_card(board, "Teacher", max(teachers, key=lambda row: _value(board, row, AVERAGE))))
    if others:
        title = "Highest test average" if board.selection == STS else f"Highest test {board.selection.title}"
        cards.append(_card(board, title, max(others, key=lambda row: _value(board, row, AVERAGE))))
    if close:
        smallest = min(close, key=lambda row: (row.record.bytes_per_vector, -_value(board, row, DEV)))
        cards.append(_card(board, f"Fewest bytes that keep {KEPT_PERCENT} % on dev", smallest))
    return tuple(cards)


def _card(board: Leaderboard, title: str, row: Row) -> Highlight:
    retrieval = retrieval_sets(row, teacher_row(board, row))
    return Highlight(title, row, board.cell(row, AVERAGE), board.cell(row, DEV), retrieval)


def _value(board: Leaderboard, row: Row, key: str) -> float:
    return board.cell(row, key).value or 0.0
