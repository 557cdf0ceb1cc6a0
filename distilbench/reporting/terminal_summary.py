"""What a run says in the terminal at its end: a line for each number of bytes, and which row to take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distilbench.codes import CompetitionKey, code_of
from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord
from distilbench.reporting.board import DEV, Leaderboard, Row, competes, leaderboard, told
from distilbench.reporting.choice import is_front, on_front
from distilbench.reporting.comparison import dev_comparison
from distilbench.reporting.frame import board_columns
from distilbench.reporting.loading import export_command
from distilbench.reporting.recommendation import answer
from distilbench.reporting.runs import run_folders

NONE = "-"


def terminal_summary(records: Sequence[TrialRecord | ScoreRecord], run: Path) -> list[str]:
    """Return the lines for the records of one leaderboard; `run` is the folder by which commands name all of its runs.

    After the table come the sentences that the page begins with, each with the command that exports its row.
    """
    board = leaderboard(records)
    lines = ["", *student_table(board, front=is_front(records))]
    if any(row.record.demonstration for row in board.rows):
        lines.append(f"Scores are {ON_DEMONSTRATION}.")
    found = answer(board, dev_comparison(board, run_folders([run])))
    lines.append("")
    for one in found.recommendations:
        lines.append(one.text())
        if command := export_command(one.row.record, one.row.anchor, str(run)):
            lines.append(f"    {command}")
    return [*lines, *found.absent]


def student_table(board: Leaderboard, *, front: bool = False) -> list[str]:
    """The teacher, then the best student on dev of each method at each number of bytes, rising.

    With `front` only those that no other one beats in quality, bytes and speed.
    """
    students = best_students(board)
    teachers = [row for row in board.rows if not competes(row.record)]
    rows = [*teachers, *(on_front(board, students) if front else students)]
    if not rows:
        return ["No student was scored."]
    columns = [column for column in board_columns(board) if "terminal" in column.on]
    lines = [["", *(column.title.replace("\u00a0", " ") for column in columns)]]
    for row in rows:
        halves = [column.cell(row).interval for column in columns]
        spreads = ["" if h is None else f" ± {c.written(h)}" for c, h in zip(columns, halves, strict=True)]
        lines.append([told(row), *(c.text(row, NONE) + spread for c, spread in zip(columns, spreads, strict=True))])
    return _aligned([line for line in zip(*lines, strict=True) if any(cell != NONE for cell in line[1:])])


def best_students(board: Leaderboard) -> list[Row]:
    """Of each method's students at each number of bytes the best on dev, in the code that they are trained for."""
    best: dict[tuple[CompetitionKey, str, str], Row] = {}
    for row in board.rows:
        record = row.record
        if record.role == "student" and record.quantisation == code_of(record.hyperparameters):
            key = record.group, record.method, record.configuration if record.trial is None else ""
            best[key] = max((best.get(key, row), row), key=lambda row: _rank(board, row))
    return [best[key] for key in sorted(best)]


def _rank(board: Leaderboard, row: Row) -> tuple[bool, float]:
    dev = board.cell(row, DEV).value
    return row.chosen, -1e9 if dev is None else dev


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side as lines of text: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for first, *rest in zip(*columns, strict=True):
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return lines
