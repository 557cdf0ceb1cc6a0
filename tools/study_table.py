"""Print a comparison's rows as a Markdown table: mean over seeds and 95 % interval of each test column.

python tools/study_table.py results/records/orderings.jsonl.xz [--quantised]
python tools/study_table.py FILE [FILE ...] --quantised --rows "HPD .* d=128" --columns test,mrr10:quora --kept

Several files are one comparison. --rows takes the rows whose name and code match a regular expression, --columns some
columns, --kept adds the share of the teacher's value in per cent.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from distilbench.records import read_records
from distilbench.reporting.board import Cell, leaderboard


def shown(cell: Cell, kept: bool) -> str:
    """A cell's mean and interval, and the share of the teacher's."""
    if cell.value is None:
        return ""
    share = f" ({cell.retention:.1f} %)" if kept and cell.retention is not None else ""
    spread = f" ± {cell.interval:.2f}" if cell.interval is not None else ""
    return f"{cell.value:.2f}{spread}{share}"


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of the command line."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}; expected a regular expression") from None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--quantised", action="store_true", help="rows of codes too")
    parser.add_argument("--rows", type=pattern, default="", help="a regular expression of 'NAME CODE'")
    parser.add_argument("--columns", type=lambda text: text.split(","), help="such as test,dev,mrr10:quora")
    parser.add_argument("--kept", action="store_true", help="the share of the teacher's value too")
    chosen = parser.parse_args()
    if missing := [str(path) for path in chosen.records if not path.is_file()]:
        parser.error(f"{', '.join(missing)}: no such file; expected a report's records")
    board = leaderboard([record for path in chosen.records for record in read_records(path)])
    named = {c.key: c for c in board.columns}
    wanted = chosen.columns or [c.key for c in board.columns if not c.group.startswith("Retrieval")]
    if unknown := [key for key in wanted if key not in named]:
        parser.error(f"--columns {','.join(unknown)}: expected some of {', '.join(named)}")
    columns = [named[key] for key in wanted]
    titles = [f"{c.title} ({c.key.split(':')[1]})" if c.group.startswith("Retrieval") else c.title for c in columns]
    print("| row | d | bytes | seeds | " + " | ".join(titles) + " |")
    print("|---" * (len(columns) + 4) + "|")
    for row in board.rows:
        code = "" if row.record.quantisation == "float32" else f" {row.record.quantisation}"
        name = f"{row.record.configuration or row.record.label}{code}"
        if (code and not chosen.quantised) or not chosen.rows.search(name):
            continue
        cells = [shown(row.cells[c.key], chosen.kept) for c in columns]
        about = f"{name} | {row.record.dim} | {row.record.bytes_per_vector} | {len(row.seeds)}"
        print(f"| {about} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
