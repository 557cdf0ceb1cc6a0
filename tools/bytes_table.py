"""Print the best row of each method at each number of bytes as a Markdown table: chosen by the mean dev score over seeds.

python tools/bytes_table.py results/records/bytes.jsonl.xz [--bytes 8,16,32,64] [--set quora]

STS is the mean test average over seeds with its 95 % interval and percent of the teacher's; retrieval is MRR@10 of the dev
queries, which chose nothing, by the row's own index, with its milliseconds per 1,000 queries and megabytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from distilbench.codes import family_of
from distilbench.records import IndexCost, read_records
from distilbench.reporting.board import Row, leaderboard


def own_index(row: Row, name: str) -> list[IndexCost]:
    """The cost of the row's own index over a retrieval set, of each seed."""
    kind = "flat" if row.record.quantisation == "float32" else row.record.quantisation
    return [
        c for seed in row.seeds for c in seed.record.indexes if c.kind == kind and c.set == name and c.split == "dev"
    ]


def method_of(row: Row) -> str:
    """FAISS's codes are told apart by their family; every other row is its method."""
    family = family_of(row.record.quantisation)
    return f"FAISS {family[0]}" if row.record.method == "faiss" and family else row.record.method


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--bytes", default="8,16,32,48,64,128", dest="sizes")
    parser.add_argument("--set", default="quora", dest="name")
    chosen = parser.parse_args()
    board = leaderboard(read_records(chosen.records))
    teacher = next(r for r in board.rows if (r.record.role, r.record.quantisation) == ("teacher", "float32"))
    whole = fmean(c.mrr10 for c in own_index(teacher, chosen.name)) if own_index(teacher, chosen.name) else None
    print("| bytes | method | row | seeds | dev | STS | % of the teacher | MRR@10 | % | ms per 1,000 | index MB |")
    print("|---" * 11 + "|")
    for size in map(int, chosen.sizes.split(",")):
        best: dict[str, Row] = {}
        for row in board.rows:
            dev = row.dev.value
            if row.record.bytes_per_vector != size or dev is None:
                continue
            rival = best.get(method_of(row))
            if rival is None or dev > (rival.dev.value or 0.0):
                best[method_of(row)] = row
        for method, row in sorted(best.items(), key=lambda item: -(item[1].dev.value or 0.0)):
            dev, test, costs = row.dev.value, row.test, own_index(row, chosen.name)
            spread = f" ± {test.interval:.2f}" if test.interval is not None else ""
            cells = [str(size), method, f"{row.name} {row.record.quantisation}", str(len(row.seeds)), f"{dev:.2f}"]
            cells += [f"{test.value or 0:.2f}{spread}", f"{test.retention or 0:.1f}"]
            if costs and whole:
                mrr = fmean(c.mrr10 for c in costs)
                cells += [
                    f"{mrr:.2f}",
                    f"{100 * mrr / whole:.1f}",
                    f"{fmean(c.ms_per_1000_queries for c in costs):.0f}",
                ]
                cells += [f"{fmean(c.bytes for c in costs) / 1e6:.2f}"]
            else:
                cells += [""] * 4
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
