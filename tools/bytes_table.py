"""Print what codes keep at each number of bytes as a Markdown table.

python tools/bytes_table.py results/records/bytes.jsonl.xz [--bytes 8,16,32,64] [--set quora]
python tools/bytes_table.py results/records/codes.jsonl.xz ... --searches [--leave-out trecqa] [--metric mrr@10]

The first has the best row of each method, chosen by the mean dev score over seeds. STS is the mean test average over seeds
with its 95 % interval and percent of the teacher's; retrieval is MRR@10 of the dev queries, which chose nothing, by the row's
own index, with its milliseconds per 1,000 queries and megabytes.

With --searches it is every row, by nDCG@10 or --metric, the mean over the test sets; a query's milliseconds are of an exact
search of the largest set, all queries at once on one thread; seconds to fit are the processor's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from distilbench.codes import family_of
from distilbench.records import IndexCost, Score, read_records
from distilbench.reporting.board import Leaderboard, Row, interval, leaderboard

METRICS = {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10"}


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


def mean_score(row: Row, task: str, metric: str, left_out: set[str]) -> list[float]:
    """The mean over the test sets of one metric, of each seed."""
    return [
        fmean(s.value for s in seed.record.scores if _counts(s, task, metric) and s.set not in left_out)
        for seed in row.seeds
    ]


def _counts(score: Score, task: str, metric: str) -> bool:
    return (score.task, score.metric, score.split, score.variant) == (task, metric, "test", "all")


def print_searches(board: Leaderboard, sizes: list[int], left_out: set[str], metric: str) -> None:
    """Every row of these sizes: what it finds, what it keeps of similarity, and what it costs."""
    teacher = next(r for r in board.rows if (r.record.role, r.record.quantisation) == ("teacher", "float32"))
    whole, title = fmean(mean_score(teacher, "retrieval", metric, left_out)), METRICS[metric]
    print(f"Teacher: {title} {whole:.2f}, STS {fmean(mean_score(teacher, 'sts', 'spearman', left_out)):.2f}\n")
    print(
        f"| bytes | row | dev | {title} | share of the teacher's | STS | ms a query | s to fit |\n" + "|---" * 8 + "|"
    )
    for size in sizes:
        found = [
            (mean_score(row, "retrieval", metric, left_out), row)
            for row in board.rows
            if row.record.bytes_per_vector == size and not row.record.documents and not row.record.disk_bytes
        ]
        for value_S, row in sorted(found, key=lambda pair: -fmean(pair[0])):
            spread = interval(value_S)
            kind = "flat" if row.record.quantisation == "float32" else row.record.quantisation
            own = [i for i in row.record.indexes if (i.kind, i.split) == (kind, "test")]
            per_query = f"{max((i.documents, i.ms_per_1000_queries) for i in own)[1] / 1000:.1f}" if own else ""
            told = "" if spread is None else f" ± {spread:.2f}"
            sts, fit_s = fmean(mean_score(row, "sts", "spearman", left_out)), row.record.fit_s
            cells = [
                str(size),
                f"{row.name}, {row.record.quantisation}",
                "" if row.dev.value is None else f"{row.dev.value:.2f}",
                f"{fmean(value_S):.2f}{told}",
                f"{100 * fmean(value_S) / whole:.1f} %",
            ]
            cells += [f"{sts:.2f}", per_query, "" if fit_s is None else f"{fit_s:.1f}"]
            print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--bytes", default="8,16,32,48,64,128", dest="sizes")
    parser.add_argument("--set", default="quora", dest="name")
    parser.add_argument("--searches", action="store_true")
    parser.add_argument("--leave-out", default="", help="retrieval sets")
    parser.add_argument("--metric", default="ndcg@10", choices=METRICS)
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",")]
    board = leaderboard(record for path in chosen.records for record in read_records(path))
    if chosen.searches:
        print_searches(board, sizes, set(chosen.leave_out.split(",")), chosen.metric)
        return
    teacher = next(r for r in board.rows if (r.record.role, r.record.quantisation) == ("teacher", "float32"))
    whole = fmean(c.mrr10 for c in own_index(teacher, chosen.name)) if own_index(teacher, chosen.name) else None
    print("| bytes | method | row | seeds | dev | STS | % of the teacher | MRR@10 | % | ms per 1,000 | index MB |")
    print("|---" * 11 + "|")
    for size in sizes:
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
