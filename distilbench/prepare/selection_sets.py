"""What students are selected by, made small: it is measured of every student at every rung.

Of a retrieval dev set it is at most `QUERIES` queries, and of its documents all that answer them and, up to `DOCUMENTS`, the
hardest others by the teacher: those that it ranks highest for a query. Held-out sentences come with the teacher's neighbours
and its cosines of pairs, half of them of neighbours (near) and half of any two (far).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from distilbench.data.corpus import ClassificationSet, Corpus, HeldOut, PairSplit, PairTask, RetrievalSet
from distilbench.evaluation.retrieval import unit
from distilbench.evaluation.selection import (
    DevSet,
    HeldOutSets,
    LabelledSets,
    PairTaskSets,
    SearchSet,
    SearchSets,
    SelectionSets,
    SetsOfKind,
    StsSets,
    neighbours,
)
from distilbench.evaluation.sts import Embed, cosine
from distilbench.prepare.array_json import from_json, to_json
from distilbench.records import selection_groups
from distilbench.selection import STS, Kind, Part, Selection
from distilbench.storage.arrays import ShardedArray
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

QUERIES, DOCUMENTS = 500, 4_000
"""Of each retrieval dev set: some seconds of encoding at a rung, as STS-B dev has (3,000 sentences)."""
BLOCK = 4_096
"""Documents that are compared at a time."""
NEIGHBOURS = 10
EXAMPLES = 2_000
"""Examples of a classification set or a pair task to train a regression on, and as many to judge it on."""
STEP_VERSION = 3
ARRAYS, FILE = "sets.npz", "sets.json"
FIDELITY = Selection((Part("fidelity", "fidelity"),))


def dev_sets(corpus: Corpus) -> list[DevSet]:
    """The STS dev sets that trials are selected by."""
    dev = [s for s in corpus.sts if s.split == "dev"]
    chosen = selection_groups(s.group for s in dev)
    return [DevSet(f"{s.name} dev", s.left_P, s.right_P, s.score_P) for s in dev if s.group in chosen]


@dataclass(frozen=True)
class Judged:
    """What students are selected by, and, where it has held-out sentences, those that are reported instead."""

    dev: SelectionSets
    test: SelectionSets | None = None


def judged_artifact(corpus: Corpus, vectors: ShardedArray, store: ArtifactStore) -> Judged | None:
    """What students of the corpus are selected by, made or found; None where it is its STS dev sets alone."""
    if corpus.selection == STS:  # it says something only to a method with a task of its own
        return Judged(make_judged(corpus, vectors.take).dev) if corpus.selection.asked and corpus.pair_tasks else None
    parts = {
        "corpus": corpus.fingerprint,
        "vectors": vectors.folder.name,
        "select": str(corpus.selection),
        "limits": [QUERIES, DOCUMENTS, NEIGHBOURS, EXAMPLES],
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        judged, arrays = make_judged(corpus, vectors.take), dict[str, Any]()
        described = {split: to_json(getattr(judged, split), arrays.__setitem__, split) for split in ("dev", "test")}
        np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
        write_json(folder / FILE, described)

    folder = store.build("selection", parts, [ARRAYS, FILE], make)
    described = json.loads((folder / FILE).read_text())
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        found = {split: from_json(described[split], arrays.__getitem__) for split in ("dev", "test")}
    # Whether it was asked for is of the command, and not of the artifact.
    return Judged(replace(found["dev"], selection=corpus.selection), found["test"])


def make_judged(corpus: Corpus, teacher: Embed) -> Judged:
    """What students of the corpus are selected by; `teacher` gives the vectors of rows."""
    dev = SelectionSets(corpus.selection, tuple(_sets(corpus, kind, teacher) for kind in corpus.selection.kinds))
    tested = [held for held in corpus.held_out if held.split == "test"]
    return Judged(dev, SelectionSets(FIDELITY, (held_out_sets(tested[0], teacher),)) if tested else None)


def _sets(corpus: Corpus, kind: Kind, teacher: Embed) -> SetsOfKind:
    if kind == "sts":
        return StsSets(tuple(dev_sets(corpus)))
    if kind == "retrieval":
        return SearchSets(tuple(search_set(s, teacher) for s in corpus.retrieval if s.split == "dev"))
    if kind == "classification":
        sets = (judged for s in corpus.classification if (judged := labelled_set(s)) is not None)
        return LabelledSets(tuple(sets))
    if kind == "pairs":
        tasks = {task.name: task for task in (*corpus.pair_tasks, *corpus.probed)}
        return PairTaskSets(tuple(few_pairs(task) for task in tasks.values() if {"train", "dev"} <= task.splits.keys()))
    return held_out_sets(next(held for held in corpus.held_out if held.split == "dev"), teacher)


def search_set(task: RetrievalSet, teacher: Embed, queries: int = QUERIES, documents: int = DOCUMENTS) -> SearchSet:
    """A part of a retrieval set: a sample of its queries, the documents that answer them, and those that are hardest."""
    if len(task.queries) > queries:
        chosen = np.sort(np.random.default_rng(0).choice(len(task.queries), queries, replace=False))
    else:
        chosen = np.arange(len(task.queries))
    relevant = [task.relevant[q] for q in chosen]
    needed = np.unique(np.concatenate(relevant))
    kept = needed
    if len(task.documents) > max(documents, len(needed)):
        ranked = _hardest(teacher(task.queries[chosen]), task.documents, teacher, 100)
        # The first of every query, then the second of every one, and so on.
        order = list(dict.fromkeys(ranked.T.ravel().tolist()))
        others = [d for d in order if d not in set(needed.tolist())]
        kept = np.sort(np.concatenate([needed, np.array(others[: max(0, documents - len(needed))], dtype=np.int64)]))
    else:
        kept = np.arange(len(task.documents))
    grades = None if task.grades is None else tuple(task.grades[q] for q in chosen)
    positions = tuple(np.searchsorted(kept, found) for found in relevant)
    return SearchSet(task.name, task.queries[chosen], task.documents[kept], positions, grades)


def _hardest(queries_QD: np.ndarray[Any, Any], documents: np.ndarray[Any, Any], teacher: Embed, depth: int) -> Any:
    """The positions of the teacher's first documents of each query, Q x depth, block by block."""
    unit_QD = unit(queries_QD)
    best_QR = np.empty((len(unit_QD), 0), dtype=np.float32)
    found_QR = np.empty((len(unit_QD), 0), dtype=np.int64)
    for start in range(0, len(documents), BLOCK):
        similarity_QN = unit_QD @ unit(teacher(documents[start : start + BLOCK])).T
        positions = np.broadcast_to(np.arange(start, start + similarity_QN.shape[1]), similarity_QN.shape)
        all_QR, at_QR = np.hstack([best_QR, similarity_QN]), np.hstack([found_QR, positions])
        order = np.argsort(-all_QR, axis=1, kind="stable")[:, :depth]
        best_QR, found_QR = np.take_along_axis(all_QR, order, axis=1), np.take_along_axis(at_QR, order, axis=1)
    return found_QR


def held_out_sets(held: HeldOut, teacher: Embed) -> HeldOutSets:
    """Held-out sentences with the teacher's neighbours, and as many near pairs as far ones, one of each for a sentence."""
    vectors_ND = teacher(held.rows)
    near_NK = neighbours(vectors_ND, vectors_ND, min(NEIGHBOURS, len(held.rows) - 1))
    rng, n = np.random.default_rng(0), len(held.rows)
    left = np.arange(n)
    near = near_NK[left, rng.integers(near_NK.shape[1], size=n)]
    far = (left + rng.integers(1, n, size=n)) % n
    pairs = np.concatenate([left, left]), np.concatenate([near, far])
    return HeldOutSets(held.rows, near_NK, *pairs, cosine(vectors_ND[pairs[0]], vectors_ND[pairs[1]]))


def labelled_set(task: ClassificationSet, most: int = EXAMPLES) -> ClassificationSet | None:
    """Training and dev examples of a set; without a dev split of its own every fifth training example is dev's. None of a set
    that is cross-validated as a whole, and of no test example."""
    if (task.split_N == "train").all():
        return None
    split_N = task.split_N.copy()
    train = np.flatnonzero(split_N == "train")
    if not (split_N == "dev").any():
        split_N[train[::5]] = "dev"
    rng, kept = np.random.default_rng(0), []
    for name in ("train", "dev"):
        rows = np.flatnonzero(split_N == name)
        kept.append(rows if len(rows) <= most else rng.choice(rows, most, replace=False))
    rows = np.sort(np.concatenate(kept))
    return replace(
        task, texts=tuple(side[rows] for side in task.texts), class_N=task.class_N[rows], split_N=split_N[rows]
    )


def few_pairs(task: PairTask, most: int = EXAMPLES) -> PairTask:
    """Some training and dev pairs of a task, and no test pair."""

    def part(split: PairSplit) -> PairSplit:
        if len(split.target_P) <= most:
            return split
        kept = np.sort(np.random.default_rng(0).choice(len(split.target_P), most, replace=False))
        return PairSplit(split.left_P[kept], split.right_P[kept], split.target_P[kept])

    return replace(task, splits={name: part(task.splits[name]) for name in ("train", "dev")})
