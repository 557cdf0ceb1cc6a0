"""Print a comparison's rows as a Markdown table: mean over seeds and 95 % interval of each test column.

python tools/study_table.py results/records/orderings.jsonl.gz [--quantised]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from distilbench.records import read_records
from distilbench.reporting.table import Cell, leaderboard


def shown(cell: Cell) -> str:
    """A cell's mean and interval."""
    if cell.value is None:
        return ""
    return f"{cell.value:.2f}" + (f" ± {cell.interval:.2f}" if cell.interval is not None else "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--quantised", action="store_true", help="rows of codes too")
    chosen = parser.parse_args()
    board = leaderboard(read_records(chosen.records))
    columns = [c for c in board.columns if not c.group.startswith("Retrieval")]
    print("| row | d | seeds | " + " | ".join(c.title for c in columns) + " |")
    print("|---" * (len(columns) + 3) + "|")
    for row in board.rows:
        if row.record.quantisation != "float32" and not chosen.quantised:
            continue
        name = row.record.configuration or row.record.label
        kind = "" if row.record.quantisation == "float32" else f" {row.record.quantisation}"
        cells = [shown(board.cell(row, c.key)) for c in columns]
        print(f"| {name}{kind} | {row.record.dim} | {len(row.seeds)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
