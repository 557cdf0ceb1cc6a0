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

    def text(self) -> str:
        """ "MRR@10 84.61, recall@100 97.20 (quora, dev); teacher 98.90, 99.90"."""
        scores = [f"{name} {cell.value:.2f}" for name, cell in self._metric_cells() if cell.value is not None]
        teacher = [cell for cell in (self.teacher_mrr10, self.teacher_recall100) if cell.value is not None]
        beside = "; teacher " + ", ".join(f"{cell.value:.2f}" for cell in teacher) if teacher else ""
        return f"{', '.join(scores)} ({self.set}, {self.split}){beside}"

    def to_json(self) -> dict[str, str | float | None]:
        """The means alone."""
        return {
            "set": self.set,
            "split": self.split,
            "mrr10": self.mrr10.value,
            "recall100": self.recall100.value,
            "teacher_mrr10": self.teacher_mrr10.value,
            "teacher_recall100": self.teacher_recall100.value,
        }

    def _metric_cells(self) -> tuple[tuple[str, Cell], tuple[str, Cell]]:
        return ("MRR@10", self.mrr10), ("recall@100", self.recall100)


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
