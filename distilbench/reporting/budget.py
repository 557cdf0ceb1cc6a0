"""The best row that a budget allows: chosen on dev, whatever its test scores are.

Every row takes part that can be used: students, baselines, and the teacher with its own codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from distilbench.records import AS_IT_CAME
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.neighbours import lost_neighbours
from distilbench.reporting.retrieval import SetRetrieval, retrieval_sets
from distilbench.reporting.table import AVERAGE, DEV, Cell, Leaderboard, Row, teacher_row


class ServingBudget(NamedTuple):
    """What a row may cost at most where it is used; None is no limit."""

    bytes_per_vector: int | None = None
    latency_ms: float | None = None
    """To embed one sentence. A row without a measured latency is over every such limit."""
    dim: int | None = None

    def allows(self, row: Row) -> bool:
        """Whether the row is within all limits."""
        latency = latency_of(row)
        return (
            (self.bytes_per_vector is None or row.record.bytes_per_vector <= self.bytes_per_vector)
            and (self.latency_ms is None or (latency is not None and latency <= self.latency_ms))
            and (self.dim is None or row.record.dim <= self.dim)
        )


class BudgetRow(NamedTuple):
    """The choice for at most `bytes` per vector; `dev` chose it, `test` is its test average, `found` what its index finds."""

    bytes: int
    row: Row
    dev: Cell
    test: Cell
    latency_ms: float | None
    retrieval: tuple[SetRetrieval, ...]


def candidates(board: Leaderboard) -> list[Row]:
    """The rows to choose from: all with vectors and a dev score, whose codes keep their neighbours.

    An encoder that was evaluated as it came is none: no run made it.
    """
    return [row for row in scored(board) if not lost_neighbours(row)]


def scored(board: Leaderboard) -> list[Row]:
    """The same with those whose codes have lost their neighbours."""
    return [
        row
        for row in board.rows
        if row.record.start != AS_IT_CAME and row.record.dim and board.cell(row, DEV).value is not None
    ]


def best_under(board: Leaderboard, budget: ServingBudget, compared: Comparison = NOT_COMPARED) -> Row | None:
    """The smallest row within the budget that cannot be told from the one with the highest dev score; None when none is.

    Dev scores are means over seeds. Rows are told apart on the dev sets alone (`Comparison.differ`). Of as many bytes
    the higher dev score wins, then the faster, then a row whose model is kept, then the first by name. The rows are
    taken to be of one corpus.
    """

    def size(row: Row) -> int:
        return row.record.bytes_per_vector

    def worse(row: Row) -> tuple[float, float, bool, str]:
        latency = latency_of(row)
        dev = board.cell(row, DEV).value or 0.0
        return -dev, math.inf if latency is None else latency, not row.record.model, row.name

    rows = [row for row in candidates(board) if budget.allows(row)]
    if not rows:
        return None
    highest = min(rows, key=lambda row: (-(board.cell(row, DEV).value or 0.0), size(row), *worse(row)))
    as_good = [row for row in rows if row is highest or not compared.differ(board, highest, row)]
    return min(as_good, key=lambda row: (size(row), *worse(row)))


def budget_rows(board: Leaderboard, compared: Comparison = NOT_COMPARED) -> tuple[BudgetRow, ...]:
    """The choice for each power of two from the smallest to the largest candidate's bytes, within each corpus.

    A budget whose choice is that of the one before is left out.
    """
    corpora = dict.fromkeys(row.record.compared_on for row in board.rows)
    return tuple(row for corpus in corpora for row in _of_corpus(board, corpus, compared))


def _of_corpus(board: Leaderboard, corpus: str, compared: Comparison) -> Iterator[BudgetRow]:
    board = board._replace(rows=tuple(row for row in board.rows if row.record.compared_on == corpus))
    sizes = [row.record.bytes_per_vector for row in candidates(board)]
    before: Row | None = None
    for size in _powers_of_two(min(sizes), max(sizes)) if sizes else ():
        row = best_under(board, ServingBudget(bytes_per_vector=size), compared)
        if row is not None and row is not before:
            retrieval = retrieval_sets(row, teacher_row(board, row))
            yield BudgetRow(size, row, board.cell(row, DEV), board.cell(row, AVERAGE), latency_of(row), retrieval)
        before = row


def latency_of(row: Row) -> float | None:
    """Mean over the seeds that have a measured latency, in ms; None where none has."""
    latencies = [seed.record.latency_ms for seed in row.seeds if seed.record.latency_ms is not None]
    return math.fsum(latencies) / len(latencies) if latencies else None


def _powers_of_two(smallest: int, largest: int) -> Iterator[int]:
    """From the first that is at least `smallest` to the first that is at least `largest`."""
    size = 1
    while size < largest:
        if size >= smallest:
            yield size
        size *= 2
    yield size
