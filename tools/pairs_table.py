"""Print pairs beside the same students with their own documents as Markdown tables: the mean nDCG@10 over the test sets.

python tools/pairs_table.py RUN... [--sets] [--keep FILE.jsonl.xz]

A run is the folder of `sweep --select retrieval,documents=teacher`, or a file of its records. Shares are of the teacher
with float32 documents. Intervals are 95 % over seeds, or over the queries where there is one seed. A student that several
runs have is named with each run. With --sets also each set's own share, in float32 at the widest. --keep writes the records
of all runs' folders without the metrics that no table has and the parts of STS sets, and with the indexes of the largest
set alone; numbers have five digits, and the teacher and its PCA are kept of the first run.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from distilbench.reporting.board import MISSING, Cell, Row, leaderboard
from distilbench.reporting.frame import BoardColumn, searched_column
from distilbench.reporting.study_file import read_study

KEPT = {"dev": ("ndcg@10", "spearman"), "test": ("ndcg@10", "mrr@10", "recall@100", "spearman")}
CODES = ("float32", "int8", "int4", "int2", "binary")
UNTRAINED = ("pca", "whitening")
"""Heads that a file of records has beside the students."""


def main() -> None:
    """Print the tables of the runs named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--sets", action="store_true")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    if asked.keep:
        with lzma.open(asked.keep, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as kept:
            kept.writelines(_kept(asked.runs))
    board = leaderboard(read_study(asked.runs).records)
    teacher = next(row for row in board.rows if row.record.role == "teacher" and row.record.quantisation == "float32")
    told = teacher.test
    print(f"Teacher: nDCG@10 {told.value:.2f} ({told.low:.1f} to {told.high:.1f}) over {board.columns[0].help}\n")
    both: dict[tuple[str, int, str], dict[bool, Row]] = defaultdict(dict)
    students = [row for row in board.rows if row.record.role == "student" and row.record.method not in UNTRAINED]
    runs = defaultdict[str, set[str]](set)
    for row in students:
        runs[_student(row)].add(row.record.run)
    for row in students:
        r, name = row.record, _student(row)
        rows = both[f"{name}, {r.run}" if len(runs[name]) > 1 else name, r.dim, r.quantisation]
        if (other := rows.setdefault(bool(r.documents), row)) is not row:
            sys.exit(f"{row.name}: it would have the line of {other.name}; expected one of each student and width")
    mrr10 = searched_column(board, "mrr@10")
    print(
        f"| student | d | code | bytes | its own documents | the teacher's documents | MRR@10 ({_mrr(mrr10, teacher)}) |"
    )
    print("|---" * 7 + "|")
    for (student, dim, code), rows in sorted(
        both.items(), key=lambda item: (item[0][0], -item[0][1], _place(item[0][2]))
    ):
        size = next(iter(rows.values())).record.bytes_per_vector
        cells = [student, f"{dim}", code, f"{size:,}", _cell(rows.get(False)), _cell(rows.get(True))]
        print(f"| {' | '.join([*cells, _mrr(mrr10, rows.get(True))])} |")
    if asked.sets:
        _print_sets(both, teacher)


def _student(row: Row) -> str:
    return row.record.configuration or str(row.record.hyperparameters.get("student") or row.record.start)


def _kept(runs: Sequence[Path]) -> Iterator[str]:
    for run in runs:
        for line in (run / "scores.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line, parse_float=lambda number: float(f"{float(number):.5g}"))
            if record["role"] == "student" or (run is runs[0] and record["method"] != "random_projection"):
                scores = (score for score in record["scores"] if score["metric"] in KEPT[score["split"]])
                record["scores"] = [score for score in scores if score["variant"] == "all"]
                most = max(index["documents"] for index in record["indexes"])
                record["indexes"] = [i for i in record["indexes"] if (i["documents"], i["split"]) == (most, "test")]
                yield json.dumps(record) + "\n"


def _place(code: str) -> int:
    return CODES.index(code) if code in CODES else len(CODES)


def _cell(row: Row | None) -> str:
    if row is None or row.test.value is None:
        return ""
    return f"{row.test.value:.2f}{_spread(row.test)} ({row.test.retention:.1f} %)"


def _mrr(column: BoardColumn, row: Row | None) -> str:
    """The mean MRR@10 over the sets, of the pair."""
    cell = column.cell(row) if row else MISSING
    return "" if cell.value is None else f"{cell.value:.2f}{_spread(cell)}"


def _spread(cell: Cell) -> str:
    if cell.interval is not None:
        return f" ± {cell.interval:.2f}"
    return f" ± {(cell.high - cell.low) / 2:.2f}" if cell.low is not None and cell.high is not None else ""


def _print_sets(both: dict[tuple[str, int, str], dict[bool, Row]], teacher: Row) -> None:
    """Each set's share of the teacher's nDCG@10, own documents / the teacher's."""
    keys = [key for key in teacher.cells if key.startswith("ndcg10:") and not key.endswith(":dev")]
    widest = max(dim for _, dim, _ in both)
    print("\n| student | " + " | ".join(key.removeprefix("ndcg10:") for key in keys) + " |")
    print("|---" * (len(keys) + 1) + "|")
    print("| teacher | " + " | ".join(f"{teacher.cells[key].value:.1f}" for key in keys) + " |")
    for (student, dim, code), rows in sorted(both.items()):
        if dim == widest and code == "float32":
            shares = (
                " / ".join(f"{rows[side].cells[key].retention:.0f}" if side in rows else "-" for side in (False, True))
                for key in keys
            )
            print(f"| {student} | " + " | ".join(shares) + " |")


if __name__ == "__main__":
    main()
