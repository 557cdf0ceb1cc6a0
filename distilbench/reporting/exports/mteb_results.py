"""Scores that mteb's own task would give, in the layout of its result cache (mteb 2.26), which its tools can read.

    mteb/distilbench__SLUG/REVISION/TASK.json    a `mteb.results.TaskResult`
    mteb/distilbench__SLUG/REVISION/model_meta.json

There is a file where task, pairs and main score are the same: cosine Spearman of an STS test set over all its subsets
(raw text, float32 vectors) with as many pairs as mteb's copy has, and nDCG@10 of a retrieval set with as many queries and
documents. Left out for that reason: SICK-R (mteb's test split is all 9,927 pairs), QuoraRetrieval (there a query does not
find its own question), classification (another protocol).

What is not known is left null: mteb did not run, so there is no version of it and no time. `dataset_revision` is no revision
of the hub but the SHA-256 of the pairs and gold scores (of the corpus for retrieval), as "distilbench:sha256:...".
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import Score, ScoreRecord
from distilbench.reporting import table
from distilbench.reporting.exports.names import slug
from distilbench.reporting.exports.rows import representatives
from distilbench.storage.files import fingerprint

FOLDER = "mteb"
META = "model_meta.json"
MODELS = 50
"""That have files at most: each has one for every task, and 2,500 small files took 4 to 20 s."""
_OWN = re.compile(r"distilbench__[a-z0-9-]+/[0-9a-f]{40}/[A-Za-z0-9_-]+\.json")


class Counterpart(NamedTuple):
    """A task of mteb: how many pairs or queries its test split has, and how many documents (None: an STS task)."""

    name: str
    items: int
    documents: int | None = None


COUNTERPARTS: Mapping[tuple[str, str], Counterpart] = {
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
_MAIN = {"sts": "spearman", "retrieval": "ndcg@10"}
_METRICS = {
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


class TaskFile(NamedTuple):
    """A file of the cache: its path below `mteb/`, and what is in it."""

    path: str
    content: dict[str, Any]


class Model(NamedTuple):
    """The files of one seed of a row."""

    files: tuple[TaskFile, ...]


class Written(NamedTuple):
    """Models that have files, of all that have a counterpart."""

    models: int
    of: int


def models(board: table.Leaderboard) -> tuple[Model, ...]:
    """Every seed of every row that stands for the others and has a counterpart, in the leaderboard's order.

    The generated demonstration corpus has none.
    """
    board_models = []
    for row in representatives(board):
        name = f"distilbench__{slug(row.name, row.anchor)}"
        for seed in row.seeds:
            r = seed.record
            revision = fingerprint([r.run, r.record_id])[:40]
            results = [] if r.demonstration else _results(r)
            files = [TaskFile(f"{name}/{revision}/{task}.json", content) for task, content in results]
            if files:
                meta = TaskFile(f"{name}/{revision}/{META}", _meta(r, name.replace("__", "/", 1), revision))
                board_models.append(Model((*files, meta)))
    return tuple(board_models)


def write_mteb(board: table.Leaderboard, folder: Path, limit: int = MODELS) -> Written:
    """Write the files of the first `limit` models below `folder / "mteb"`, and remove those of an earlier report.

    A file that is the same is left alone. Each is renamed into place but not forced to disk one by one, which would take 4 ms
    a file: what a power cut loses is written again by the next report.
    """
    root, board_models = folder / FOLDER, models(board)
    files = [file for model in board_models[:limit] for file in model.files]
    for place in dict.fromkeys(os.path.dirname(file.path) for file in files):
        (root / place).mkdir(parents=True, exist_ok=True)
    for file in files:
        _replace(f"{root}/{file.path}", json.dumps(file.content, ensure_ascii=False, allow_nan=False) + "\n")
    remove_others(root, {file.path for file in files})
    return Written(min(len(board_models), limit), len(board_models))


def remove_others(root: Path, current: Iterable[str]) -> None:
    """Remove what `write_mteb` wrote below `root` and is not among `current`; any other file stays."""
    current = set(current)
    if root.is_symlink() or not root.is_dir():
        return
    for path in list(root.glob("*/*/*.json")):
        name = path.relative_to(root).as_posix()
        if _OWN.fullmatch(name) and name not in current and not any(p.is_symlink() for p in path.parents if p != root):
            path.unlink()
            for parent in (path.parent, path.parent.parent):
                if not any(parent.iterdir()):
                    parent.rmdir()
    if not any(root.iterdir()):
        root.rmdir()


def _results(record: ScoreRecord) -> list[tuple[str, dict[str, Any]]]:
    by_set: dict[tuple[str, str], dict[str, Score]] = {}
    for s in record.scores:
        if s.split == "test" and s.variant == "all" and finite(s.value) is not None:
            by_set.setdefault((s.task, s.set), {})[s.metric] = s
    results = []
    for (task, name), counterpart in COUNTERPARTS.items():
        scores = by_set.get((task, name), {})
        main = scores.get(_MAIN[task])
        if main is None or main.n != counterpart.items or not _same_documents(record, name, counterpart):
            continue
        values = {mteb_name: s.value / 100 for metric, s in scores.items() for mteb_name in _METRICS.get(metric, ())}
        digest = record.sets.get(f"{name}/test") or record.corpus_fingerprint
        content = {
            "dataset_revision": f"distilbench:sha256:{digest}",
            "task_name": counterpart.name,
            "mteb_version": None,
            "scores": {
                "test": [
                    {**values, "main_score": main.value / 100, "hf_subset": "default", "languages": ["eng-Latn"]},
                ]
            },
            "evaluation_time": None,
            "kg_co2_emissions": None,
        }
        results.append((counterpart.name, content))
    return results


def _same_documents(record: ScoreRecord, name: str, counterpart: Counterpart) -> bool:
    if counterpart.documents is None:
        return True
    return any((c.set, c.split, c.documents) == (name, "test", counterpart.documents) for c in record.indexes)


def _meta(record: ScoreRecord, name: str, revision: str) -> dict[str, Any]:
    """The fields of `mteb.ModelMeta`, null where a record does not say."""
    return {
        "loader": None,
        "name": name,
        "revision": revision,
        "release_date": None,
        "languages": None,
        "n_parameters": record.parameters or None,
        "memory_usage_mb": None,
        "max_tokens": None,
        "embed_dim": record.dim,
        "license": None,
        "open_weights": None,
        "public_training_code": None,
        "public_training_data": None,
        "framework": ["Sentence Transformers"],
        "similarity_fn_name": "cosine",
        "use_instructions": None,
        "training_datasets": None,
    }


def _replace(path: str, text: str) -> None:
    """Write `text` under a temporary name and rename it, unless the file has it already."""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        if file.read() == text:
            return
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
