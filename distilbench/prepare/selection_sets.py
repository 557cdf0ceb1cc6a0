"""What students are selected by, made small: it is measured of every student at every rung.

Of a retrieval dev set it is at most `QUERIES` queries, and of its documents all that answer them and, up to `DOCUMENTS`, the
hardest others by the teacher: those that it ranks highest for a query. Held-out sentences come with the teacher's neighbours
and its cosines of pairs, half of them of neighbours (near) and half of any two (far).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from distilbench.data.corpus import Corpus, HeldOut, RetrievalSet, Rows, StsSet
from distilbench.data.selected import LEAST_HELD_OUT
from distilbench.evaluation.selection import HeldOutSet, JudgedSet, SelectionSets, neighbours
from distilbench.evaluation.sts import Embed, cosine
from distilbench.prepare.nearest import nearest_documents
from distilbench.records import selection_groups
from distilbench.selection import STS, Kind, Part, Selection

QUERIES, DOCUMENTS = 500, 4_000
"""Of each retrieval dev set: some seconds of encoding at a rung, as STS-B dev has (3,000 sentences)."""
NEIGHBOURS = 10
FIDELITY = Selection((Part("fidelity", "fidelity"),))


def dev_sets(corpus: Corpus) -> list[StsSet]:
    """The STS dev sets that trials are selected by."""
    dev = [s for s in corpus.sts if s.split == "dev"]
    chosen = selection_groups(s.group for s in dev)
    return [s for s in dev if s.group in chosen]


def judged_sets(corpus: Corpus, teacher: Embed) -> tuple[SelectionSets | None, SelectionSets | None]:
    """What students are selected by, and, of held-out sentences, those that are reported instead.

    The first is None where it is the STS dev sets alone. `teacher` gives the vectors of rows.
    """
    selection = corpus.selection
    if selection == STS and not (selection.asked and corpus.pair_tasks):
        return None, None  # asked for it says something only to a method with a task of its own
    dev = SelectionSets(selection, {kind: tuple(_sets(corpus, kind, teacher)) for kind in selection.kinds})
    tested = [held_out_set(held, teacher, corpus.text_sources) for held in corpus.held_out if held.split == "test"]
    return dev, SelectionSets(FIDELITY, {"fidelity": tuple(tested)}) if tested else None


def _sets(corpus: Corpus, kind: Kind, teacher: Embed) -> Iterable[JudgedSet]:
    if kind == "sts":
        return dev_sets(corpus)
    if kind == "retrieval":
        return (search_set(s, teacher) for s in corpus.retrieval if s.split == "dev")
    return (held_out_set(held, teacher) for held in corpus.held_out if held.split == "dev")


def search_set(task: RetrievalSet, teacher: Embed, queries: int = QUERIES, documents: int = DOCUMENTS) -> RetrievalSet:
    """A part of a retrieval set: a sample of its queries, the documents that answer them, and those that are hardest."""
    if len(task.queries) > queries:
        task = task.of_queries(np.sort(np.random.default_rng(0).choice(len(task.queries), queries, replace=False)))
    needed = np.unique(np.concatenate(task.relevant))
    if len(task.documents) <= max(documents, len(needed)):
        return task
    ranked, _ = nearest_documents(teacher, task.queries, task.documents, 100)
    # The first of every query, then the second of every one, and so on.
    answers = set(needed.tolist())
    others = [d for d in dict.fromkeys(ranked.T.ravel().tolist()) if d not in answers]
    kept = np.sort(np.concatenate([needed, np.array(others[: max(0, documents - len(needed))], dtype=np.int64)]))
    own_Q = task.own_Q
    if own_Q is not None:
        own_Q = np.where(np.isin(own_Q, kept), np.searchsorted(kept, own_Q), -1)
    relevant = tuple(np.searchsorted(kept, found) for found in task.relevant)
    return replace(task, documents=task.documents[kept], relevant=relevant, own_Q=own_Q)


def held_out_set(held: HeldOut, teacher: Embed, sources: Mapping[str, Rows] | None = None) -> HeldOutSet:
    """Held-out sentences with the teacher's neighbours, and as many near pairs as far ones, one of each for a sentence.

    Of `sources` those are told apart that have `LEAST_HELD_OUT` of them or more.
    """
    vectors_ND = teacher(held.rows)
    near_NK = neighbours(vectors_ND, vectors_ND, min(NEIGHBOURS, len(held.rows) - 1))
    rng, n = np.random.default_rng(0), len(held.rows)
    left = np.arange(n)
    near = near_NK[left, rng.integers(near_NK.shape[1], size=n)]
    far = (left + rng.integers(1, n, size=n)) % n
    pairs = np.concatenate([left, left]), np.concatenate([near, far])
    cosine_P = cosine(vectors_ND[pairs[0]], vectors_ND[pairs[1]])
    positions = {source: np.flatnonzero(np.isin(held.rows, rows)) for source, rows in (sources or {}).items()}
    positions = {source: found for source, found in positions.items() if len(found) >= LEAST_HELD_OUT}
    return HeldOutSet(held.rows, near_NK, *pairs, cosine_P, positions)
