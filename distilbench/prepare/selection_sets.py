"""What students are selected by, made small: it is measured of every student at every rung.

Of a retrieval dev set it is at most `QUERIES` queries, and of its documents all that answer them and, up to `DOCUMENTS`, the
hardest others by the teacher: those that it ranks highest for a query. Held-out sentences come with the teacher's neighbours
and its cosines of pairs, half of them of neighbours (near) and half of any two (far).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from distilbench.data.corpus import ClassificationSet, Corpus, HeldOut, PairSplit, PairTask, RetrievalSet, StsSet
from distilbench.evaluation.selection import HeldOutSet, JudgedSet, SelectionSets, neighbours
from distilbench.evaluation.sts import Embed, cosine
from distilbench.prepare.nearest import nearest_documents
from distilbench.records import selection_groups
from distilbench.selection import STS, Kind, Part, Selection

QUERIES, DOCUMENTS = 500, 4_000
"""Of each retrieval dev set: some seconds of encoding at a rung, as STS-B dev has (3,000 sentences)."""
NEIGHBOURS = 10
EXAMPLES = 2_000
"""Examples of a classification set or a pair task to train a regression on, and as many to judge it on."""
FIDELITY = Selection((Part("fidelity", "fidelity"),))


def dev_sets(corpus: Corpus) -> list[StsSet]:
    """The STS dev sets that trials are selected by."""
    dev = [s for s in corpus.sts if s.split == "dev"]
    chosen = selection_groups(s.group for s in dev)
    return [s for s in dev if s.group in chosen]


@dataclass(frozen=True)
class Judged:
    """What students are selected by, and, where it has held-out sentences, those that are reported instead."""

    dev: SelectionSets
    test: SelectionSets | None = None


def judged_sets(corpus: Corpus, teacher: Embed) -> Judged | None:
    """What students are selected by; None where it is the STS dev sets alone. `teacher` gives the vectors of rows."""
    selection = corpus.selection
    if selection == STS and not (selection.asked and corpus.pair_tasks):
        return None  # asked for it says something only to a method with a task of its own
    dev = SelectionSets(selection, {kind: tuple(_sets(corpus, kind, teacher)) for kind in selection.kinds})
    tested = [held for held in corpus.held_out if held.split == "test"]
    return Judged(dev, SelectionSets(FIDELITY, {"fidelity": (held_out_set(tested[0], teacher),)}) if tested else None)


def _sets(corpus: Corpus, kind: Kind, teacher: Embed) -> Iterable[JudgedSet]:
    if kind == "sts":
        return dev_sets(corpus)
    if kind == "retrieval":
        return (search_set(s, teacher) for s in corpus.retrieval if s.split == "dev")
    if kind == "classification":
        return (judged for s in corpus.classification if (judged := labelled_set(s)) is not None)
    if kind == "pairs":
        tasks = {task.name: task for task in (*corpus.pair_tasks, *corpus.probed)}
        return (few_pairs(task) for task in tasks.values() if {"train", "dev"} <= task.splits.keys())
    return (held_out_set(held, teacher) for held in corpus.held_out if held.split == "dev")


def search_set(task: RetrievalSet, teacher: Embed, queries: int = QUERIES, documents: int = DOCUMENTS) -> RetrievalSet:
    """A part of a retrieval set: a sample of its queries, the documents that answer them, and those that are hardest."""
    if len(task.queries) > queries:
        chosen = np.sort(np.random.default_rng(0).choice(len(task.queries), queries, replace=False))
    else:
        chosen = np.arange(len(task.queries))
    relevant = [task.relevant[q] for q in chosen]
    needed = np.unique(np.concatenate(relevant))
    kept = needed
    if len(task.documents) > max(documents, len(needed)):
        ranked = nearest_documents(teacher, task.queries[chosen], task.documents, 100)
        # The first of every query, then the second of every one, and so on.
        order = list(dict.fromkeys(ranked.T.ravel().tolist()))
        others = [d for d in order if d not in set(needed.tolist())]
        kept = np.sort(np.concatenate([needed, np.array(others[: max(0, documents - len(needed))], dtype=np.int64)]))
    else:
        kept = np.arange(len(task.documents))
    grades = None if task.grades is None else tuple(task.grades[q] for q in chosen)
    positions = tuple(np.searchsorted(kept, found) for found in relevant)
    return RetrievalSet(task.name, task.split, task.queries[chosen], task.documents[kept], positions, grades)


def held_out_set(held: HeldOut, teacher: Embed) -> HeldOutSet:
    """Held-out sentences with the teacher's neighbours, and as many near pairs as far ones, one of each for a sentence."""
    vectors_ND = teacher(held.rows)
    near_NK = neighbours(vectors_ND, vectors_ND, min(NEIGHBOURS, len(held.rows) - 1))
    rng, n = np.random.default_rng(0), len(held.rows)
    left = np.arange(n)
    near = near_NK[left, rng.integers(near_NK.shape[1], size=n)]
    far = (left + rng.integers(1, n, size=n)) % n
    pairs = np.concatenate([left, left]), np.concatenate([near, far])
    return HeldOutSet(held.rows, near_NK, *pairs, cosine(vectors_ND[pairs[0]], vectors_ND[pairs[1]]))


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
