"""Print what each teacher's head, static student, layers and pairs keep, as a Markdown table (results/encoders.md).

python tools/encoders_table.py RUN...

A run is that of a teacher (benchmarks/pairs.sh encoders), its folder, or a file of the records of several. Shares are of the
teacher's own, with its vectors in float32; a pair is the student's queries over the teacher's documents.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from distilbench.reporting.board import leaderboard
from distilbench.reporting.frame import board_frame
from distilbench.reporting.study_file import read_study

ROWS = (
    ("head in 32 bytes", "Neighbours d=128 for 2 bits", 32, False),
    ("static, 256 dimensions", "static", 1024, False),
    ("its pair in 64 bytes", "static", 64, True),
    ("two layers, 256 dimensions", "layers", 1024, False),
    ("its pair in 64 bytes", "layers", 64, True),
)
"""What a line is called, the row of the comparison, its bytes, and whether documents are the teacher's."""


def main() -> None:
    """Print the table of the runs named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    print("| teacher | encoder | STS | kept | nDCG@10 | kept | MB | times as fast |")
    print("|---" * 8 + "|")
    records = [record for path in parser.parse_args().runs for record in read_study([path]).records]
    for run in dict.fromkeys(record.run for record in records):
        frame = board_frame(leaderboard([record for record in records if record.run == run]))
        teacher = frame[(frame.role == "teacher") & (frame.code == "float32")].iloc[0]
        print(line(teacher.teacher, "itself", teacher, teacher))
        for title, row, size, of_teacher in ROWS:
            chosen = frame[
                (frame.role == "student")
                & (frame.configuration == row)
                & (frame.bytes == size)
                & (frame.documents.fillna("").ne("") == of_teacher)
            ]
            if not chosen.empty:  # in 64 bytes the code that dev has as the best
                print(line("", title, chosen.sort_values("dev", ascending=False).iloc[0], teacher))


def line(name: str, title: str, row: pd.Series, teacher: pd.Series) -> str:
    """A line of the table."""
    cells = [Path(name).name, title + (f" ({row.code})" if title.endswith("64 bytes") else "")]
    for score in ("sts_average", "ndcg10"):
        missing = score not in row or pd.isna(row[score])
        cells += ["", ""] if missing else [f"{row[score]:.2f}", f"{100 * row[score] / teacher[score]:.1f} %"]
    speed = "" if pd.isna(row.times_teacher) else f"{float(format(row.times_teacher, '.3g')):,g}"
    return f"| {' | '.join([*cells, f'{row.model_bytes / 1e6:.0f}', speed])} |"


if __name__ == "__main__":
    main()
