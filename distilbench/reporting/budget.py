"""The best student that a budget allows: chosen on dev, whatever its test scores are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from distilbench.reporting.table import AVERAGE, DEV, Cell, Leaderboard, Row


class ServingBudget(NamedTuple):
    """What a student may cost at most where it is used; None is no limit."""

    bytes_per_vector: int | None = None
    latency_ms: float | None = None
    """To embed one sentence. A student without a measured latency is over every such limit."""
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
    """The choice for at most `bytes` per vector; `dev` chose it, `test` is its test average."""

    bytes: int
    row: Row
    dev: Cell
    test: Cell
    latency_ms: float | None


def students(board: Leaderboard) -> list[Row]:
    """The rows to choose from: students, in every quantisation, that have a dev score."""
    return [row for row in board.rows if row.record.role == "student" and board.cell(row, DEV).value is not None]


def best_under(board: Leaderboard, budget: ServingBudget) -> Row | None:
    """The student within the budget with the highest dev score, the mean over its seeds; None when none is within it.

    Of equal ones the one in fewer bytes, then the faster, then the first by name. The rows are taken to be of one corpus.
    """

    def worse(row: Row) -> tuple[float, int, float, str]:
        latency = latency_of(row)
        dev = board.cell(row, DEV).value or 0.0
        return -dev, row.record.bytes_per_vector, math.inf if latency is None else latency, row.name

    return min((row for row in students(board) if budget.allows(row)), key=worse, default=None)


def budget_rows(board: Leaderboard) -> tuple[BudgetRow, ...]:
    """The choice for each power of two from the smallest to the largest student's bytes, within each corpus.

    A budget whose choice is that of the one before is left out.
    """
    corpora = dict.fromkeys(row.record.compared_on for row in board.rows)
    return tuple(found for corpus in corpora for found in _of_corpus(board, corpus))


def _of_corpus(board: Leaderboard, corpus: str) -> Iterator[BudgetRow]:
    board = board._replace(rows=tuple(row for row in board.rows if row.record.compared_on == corpus))
    sizes = [row.record.bytes_per_vector for row in students(board)]
    before: Row | None = None
    for size in _powers_of_two(min(sizes), max(sizes)) if sizes else ():
        row = best_under(board, ServingBudget(bytes_per_vector=size))
        if row is not None and row is not before:
            yield BudgetRow(size, row, board.cell(row, DEV), board.cell(row, AVERAGE), latency_of(row))
        before = row


def latency_of(row: Row) -> float | None:
    """Mean over the seeds that have a measured latency, in ms; None where none has."""
    known = [seed.record.latency_ms for seed in row.seeds if seed.record.latency_ms is not None]
    return math.fsum(known) / len(known) if known else None


def _powers_of_two(smallest: int, largest: int) -> Iterator[int]:
    """From the first that is at least `smallest` to the first that is at least `largest`."""
    size = 1
    while size < largest:
        if size >= smallest:
            yield size
        size *= 2
    yield size
