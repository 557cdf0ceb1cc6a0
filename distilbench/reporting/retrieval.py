"""What a row's own index finds, to stand beside its dev score."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from distilbench.reporting.table import MISSING, Cell, Row, mean_cell


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


def retrieval_sets(row: Row, teacher: Row | None = None) -> tuple[SetRetrieval, ...]:
    """The row's retrieval sets: the test split of a set where the row has it, otherwise dev. Empty where none was searched.

    By the row's own index: the codes' of a quantised row, the exact one of a float32 row.
    """
    values = _values(row)
    taught = {} if teacher is None or teacher is row else _values(teacher)
    sets = list(dict.fromkeys((name, split) for name, split, _ in values))
    sets_found = []
    for name, split in sets:
        if split == "dev" and (name, "test") in sets:
            continue
        cells = [
            mean_cell(row_values.get((name, split, metric), []))
            for row_values in (values, taught)
            for metric in ("mrr@10", "recall@100")
        ]
        sets_found.append(SetRetrieval(name, split, *cells))
    return tuple(sets_found)


def mean_mrr10(row: Row, sets: Collection[str] = ()) -> float | None:
    """The mean MRR@10 over the row's retrieval sets; None where it lacks one of `sets`, or has none at all."""
    found = {one.set: one.mrr10.value for one in retrieval_sets(row) if one.mrr10.value is not None}
    if not found or set(sets) - found.keys():
        return None
    return sum(found.values()) / len(found)


def _values(row: Row) -> dict[tuple[str, str, str], list[float | None]]:
    """By set, split and metric each seed's value: of its scores, or of its index where an early record lacks them."""
    kind = "flat" if row.record.quantisation == "float32" else row.record.quantisation
    by_key: dict[tuple[str, str, str], list[float | None]] = {}
    for seed in row.seeds:
        seed_values = {(s.set, s.split, s.metric): s.value for s in seed.record.scores if _retrieval(s.task, s.variant)}
        for cost in seed.record.indexes:
            if cost.kind == kind:
                seed_values.setdefault((cost.set, cost.split, "mrr@10"), cost.mrr10)
                seed_values.setdefault((cost.set, cost.split, "recall@100"), cost.recall100)
        for (name, split, metric), value in seed_values.items():
            if metric in ("mrr@10", "recall@100"):
                by_key.setdefault((name, split, metric), []).append(value)
    return by_key


def _retrieval(task: str, variant: str) -> bool:
    return task == "retrieval" and variant == "all"
