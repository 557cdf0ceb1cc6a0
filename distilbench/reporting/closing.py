"""What a run says in the terminal at its end: a line for each number of bytes, and which row to take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distilbench.codes import CompetitionKey, code_of
from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord
from distilbench.reporting.comparison import Comparison, dev_comparison
from distilbench.reporting.deploy import deploy_lines, is_front, on_front
from distilbench.reporting.frame import board_columns
from distilbench.reporting.loading import export_command
from distilbench.reporting.recommended import answer
from distilbench.reporting.runs import run_folders
from distilbench.reporting.table import DEV, Leaderboard, Row, competes, leaderboard, told

NONE = "-"


def closing_lines(records: Sequence[TrialRecord | ScoreRecord], run: Path) -> list[str]:
    """The lines for the records of one leaderboard; `run` is the folder by which commands name all of its runs.

    After a search with several objectives they end with what to deploy for which need (`deploy`), else with what to take.
    """
    board, front = leaderboard(records), is_front(records)
    lines = ["", *student_table(board, front=front)]
    if any(row.record.demonstration for row in board.rows):
        lines.append(f"Scores are {ON_DEMONSTRATION}.")
    compared = dev_comparison(board, run_folders([run]))
    needs = deploy_lines(board, run, compared) if front else []
    return [*lines, "", *(needs or what_to_take(board, run, compared))]


def student_table(board: Leaderboard, *, front: bool = False) -> list[str]:
    """The teacher, then the best student on dev of each method at each number of bytes, sizes rising.

    With `front` only those that no other one beats in quality, bytes and speed.
    """
    students = best_students(board)
    rows = [*_teachers(board), *(on_front(board, students) if front else students)]
    if not rows:
        return ["No student was scored."]
    columns = [column for column in board_columns(board) if column.terminal]
    lines = [["", *(column.title.replace("\u00a0", " ") for column in columns)]]
    for row in rows:
        halves = [column.cell(row).interval for column in columns]
        lines.append(
            [told(row)]
            + [
                column.text(row, NONE) + ("" if half is None else f" ± {column.written(half)}")
                for column, half in zip(columns, halves, strict=True)
            ]
        )
    return _aligned([line for line in zip(*lines, strict=True) if any(cell != NONE for cell in line[1:])])


def best_students(board: Leaderboard) -> list[Row]:
    """Of each method's students at each number of bytes the best on dev.

    In the form that they are trained for: float32, or their own code.
    """
    best: dict[tuple[str, str, CompetitionKey], Row] = {}
    for row in board.rows:
        record = row.record
        if record.role != "student" or record.quantisation != code_of(record.hyperparameters):
            continue
        key = (record.method, record.configuration if record.trial is None else "", record.group)
        if key not in best or _rank(board, row) > _rank(board, best[key]):
            best[key] = row
    return [best[key] for key in sorted(best, key=lambda key: (key[2], key[:2]))]


def what_to_take(board: Leaderboard, run: Path, compared: Comparison) -> list[str]:
    """The sentences that the page begins with, each with the command that exports its row."""
    chosen = answer(board, compared)
    lines = []
    for one, sentence in zip(chosen.taken, chosen.sentences(), strict=False):
        lines.append(sentence)
        if command := export_command(one.row.record, one.row.anchor, str(run)):
            lines.append(f"    {command}")
    return [*lines, *chosen.absent]


def _teachers(board: Leaderboard) -> list[Row]:
    return [row for row in board.rows if not competes(row.record)]


def _rank(board: Leaderboard, row: Row) -> tuple[bool, float]:
    dev = board.cell(row, DEV).value
    return row.chosen, -1e9 if dev is None else dev


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side as lines of text: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        first, *rest = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append("  ".join([first, *rest]).rstrip())
    return lines
