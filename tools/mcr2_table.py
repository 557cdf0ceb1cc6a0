"""The table of results/mcr2.md: MCR2 beside the paper and PCA, out of a report's records.

    python tools/mcr2_table.py results/records/mcr2.jsonl.xz

STS12-14 are weighted means over each year's subsets, STS-B is its test set: the protocol of the paper's table 2.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from distilbench.records import ScoreRecord, read_records

SETS = (("STSB", "all"), ("STS12", "wmean"), ("STS13", "wmean"), ("STS14", "wmean"))
PAPER = {  # MCR2 paper, table 2, all-mpnet-base-v2: STS-B, STS12, STS13, STS14
    "MCR2, as published": {
        50: (74.9, 66.6, 73.9, 71.3),
        100: (78.8, 69.6, 78.2, 75.3),
        200: (81.8, 71.2, 81.2, 77.9),
        300: (82.1, 71.8, 81.7, 78.3),
    },
    "all-mpnet-base-v2, as published": {768: (83.6, 72.2, 82.1, 79.0)},
}


def values(record: ScoreRecord) -> tuple[float, ...]:
    """STS-B test and STS12-14 of one row, in the order of `SETS`."""
    found = {(s.set, s.variant): s.value for s in record.scores if s.task == "sts" and s.split == "test"}
    return tuple(found[key] for key in SETS)


def main(path: Path) -> None:
    """Print the table as Markdown."""
    rows: list[tuple[int, str, tuple[float, ...]]] = []
    for name, by_dim in PAPER.items():
        rows += [(d, name, numbers) for d, numbers in by_dim.items()]
    for record in read_records(path):
        if not isinstance(record, ScoreRecord) or "mpnet" not in record.teacher:
            continue
        name = record.label.rpartition(" d=")[0]
        if record.role == "student":
            name = f"**{name}, ours**"
        rows.append((record.dim, name, values(record)))
    teacher = next(v for d, n, v in rows if d == 768 and "published" not in n)
    published = PAPER["all-mpnet-base-v2, as published"][768]
    print("| d | | STS-B | STS12 | STS13 | STS14 | average | lost to its 768 dimensions |")
    print("|---|---|---|---|---|---|---|---|")
    for d, name, numbers in sorted(rows, key=lambda r: (r[0], "published" not in r[1], "*" in r[1], r[1])):
        average = statistics.fmean(numbers)
        whole = statistics.fmean(published if "published" in name else teacher)
        lost = f"{whole - average:.2f}" if d != 768 else ""
        cells = [f"{v:.1f}" if "published" in name else f"{v:.2f}" for v in numbers]
        print(f"| {d} | {name} | {' | '.join(cells)} | {average:.2f} | {lost} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
