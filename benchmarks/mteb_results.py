"""Scores that mteb's own task would give, in the layout of its result cache (mteb 2.26), which its tools can read.

    python benchmarks/mteb_results.py runs/A [runs/B ...] --out results

    OUT/distilbench__SLUG/REVISION/TASK.json    a `mteb.results.TaskResult`
    OUT/distilbench__SLUG/REVISION/model_meta.json

There is a file where task, pairs and main score are the same: cosine Spearman of an STS test set over all its subsets
(raw text, float32 vectors) with as many pairs as mteb's copy has, and nDCG@10 of a retrieval set with as many queries and
documents. Left out for that reason: SICK-R (mteb's test split is all 9,927 pairs), QuoraRetrieval (there a query does not
find its own question), classification (another protocol).

What is not known is left null: mteb did not run, so there is no version of it and no time. `dataset_revision` is no revision
of the hub but the SHA-256 of the pairs and gold scores (of the corpus for retrieval), as "distilbench:sha256:...".
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paper_tables import representatives

from distilbench.errors import InputError
from distilbench.records import Score, ScoreRecord
from distilbench.reporting.board import Leaderboard, leaderboard
from distilbench.reporting.study_file import read_study
from distilbench.storage.files import fingerprint


class Counterpart(NamedTuple):
    """A task of mteb: how many pairs or queries its test split has, and how many documents (None: an STS task)."""

    name: str
    items: int
    documents: int | None = None


COUNTERPARTS = {
    ("sts", "STS12"): Counterpart("STS12", 3108),
    ("sts", "STS13"): Counterpart("STS13", 1500),
    ("sts", "STS14"): Counterpart("STS14", 3750),
    ("sts", "STS15"): Counterpart("STS15", 3000),
    ("sts", "STS16"): Counterpart("STS16", 1186),
    ("sts", "STSB"): Counterpart("STSBenchmark", 1379),
    ("retrieval", "scifact"): Counterpart("SciFact", 300, 5183),
    ("retrieval", "nfcorpus"): Counterpart("NFCorpus", 323, 3633),
    ("retrieval", "fiqa"): Counterpart("FiQA2018", 648, 57638),
}
MAIN = {"sts": "spearman", "retrieval": "ndcg@10"}
METRICS = {
    "spearman": ("spearman", "cosine_spearman"),
    "pearson": ("pearson", "cosine_pearson"),
    "ndcg@10": ("ndcg_at_10",),
    "mrr@10": ("mrr_at_10",),
    "map@100": ("map_at_100",),
    "recall@1": ("recall_at_1",),
    "recall@10": ("recall_at_10",),
    "recall@100": ("recall_at_100",),
}
"""What mteb calls our metrics."""
UNKNOWN = ("loader", "release_date", "languages", "memory_usage_mb", "max_tokens", "license", "open_weights")
UNKNOWN += ("public_training_code", "public_training_data", "use_instructions", "training_datasets")


def files(board: Leaderboard) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and content of each file: every seed of every row that has a counterpart. The demonstration corpus has none."""
    for row in representatives(board):
        name = f"distilbench__{slug(row.name, row.anchor)}"
        for r in (seed.record for seed in row.seeds):
            revision = fingerprint([r.run, r.record_id])[:40]
            results = [] if r.demonstration else list(task_results(r))
            for task, content in results:
                yield f"{name}/{revision}/{task}.json", content
            if results:
                meta = dict.fromkeys(UNKNOWN) | {
                    "name": name.replace("__", "/", 1),
                    "revision": revision,
                    "n_parameters": r.parameters or None,
                    "embed_dim": r.dim,
                    "framework": ["Sentence Transformers"],
                    "similarity_fn_name": "cosine",
                }
                yield f"{name}/{revision}/model_meta.json", meta


def slug(text: str, identity: str) -> str:
    """Up to 48 lower-case ascii letters and digits of `text`, with "-" between words, and 8 hex digits of a hash of both."""
    words = "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:48].strip("-")
    digest = hashlib.sha256(f"{text}\0{identity}".encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{words}-{digest}" if words else digest


def task_results(record: ScoreRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tasks of mteb that a record has the score of, and their results."""
    by_set: dict[tuple[str, str], dict[str, Score]] = {}
    for s in record.scores:
        if s.split == "test" and s.variant == "all":
            by_set.setdefault((s.task, s.set), {})[s.metric] = s
    for (task, name), counterpart in COUNTERPARTS.items():
        scores = by_set.get((task, name), {})
        main = scores.get(MAIN[task])
        searched = {c.documents for c in record.indexes if (c.set, c.split) == (name, "test")} | {None}
        if main is None or main.n != counterpart.items or counterpart.documents not in searched:
            continue
        values = {mteb_name: s.value / 100 for metric, s in scores.items() for mteb_name in METRICS.get(metric, ())}
        values |= {"main_score": main.value / 100}
        digest = record.sets.get(f"{name}/test") or record.corpus_fingerprint
        yield (
            counterpart.name,
            {
                "dataset_revision": f"distilbench:sha256:{digest}",
                "task_name": counterpart.name,
                "mteb_version": None,
                "scores": {"test": [{**values, "hf_subset": "default", "languages": ["eng-Latn"]}]},
                "evaluation_time": None,
                "kg_co2_emissions": None,
            },
        )


def write(board: Leaderboard, folder: Path) -> int:
    """Write all files below `folder`; how many they are."""
    count = 0
    for path, content in files(board):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, help="run folders, files of records, folders of reports")
    parser.add_argument("--out", type=Path, required=True, help="mteb's folder of results")
    chosen = parser.parse_args()
    try:
        print(f"{write(leaderboard(read_study(chosen.sources).records), chosen.out)} files")
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
