"""What a row's own index finds, to stand beside its dev score."""

from __future__ import annotations

from typing import NamedTuple

from distilbench.reporting.table import MISSING, Cell, Leaderboard, Row, teacher_row


class SetRetrieval(NamedTuple):
    """MRR@10 and recall@100 (x 100, means over seeds) in one retrieval set, the teacher's own beside them."""

    set: str
    split: str
    mrr10: Cell
    recall100: Cell
    teacher_mrr10: Cell = MISSING
    teacher_recall100: Cell = MISSING


def retrieval_sets(board: Leaderboard, row: Row) -> tuple[SetRetrieval, ...]:
    """The row's retrieval sets: the test split of a set where a row has it, otherwise dev. Empty where none was searched.

    By the row's own index: the codes' of a quantised row, the exact one of a float32 row.
    """
    teacher = teacher_row(board, row)
    found = []
    for column in board.columns:
        metric, _, name = column.key.removesuffix(":dev").partition(":")
        if metric == "mrr10" and board.cell(row, column.key).value is not None:
            recall = column.key.replace("mrr10", "recall100", 1)
            of_row = board.cell(row, column.key), board.cell(row, recall)
            taught = () if teacher is None or teacher is row else (board.cell(teacher, k) for k in (column.key, recall))
            found.append(SetRetrieval(name, "dev" if column.dev else "test", *of_row, *taught))
    return tuple(found)
