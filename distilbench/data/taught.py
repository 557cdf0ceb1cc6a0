"""A corpus cut down to the texts of which a teacher's vectors are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, PairSplit, PairTask, RetrievalSet, Rows
from distilbench.data.sentences import sentences_artifact
from distilbench.errors import InputError
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore

NO_ROWS = np.empty(0, dtype=np.int64)
Known = NDArray[np.bool_]
"""Of each row of a corpus, whether it has a vector."""


def only_taught(corpus: Corpus, known_N: Known, source: str, store: ArtifactStore, named: Rows = NO_ROWS) -> Corpus:
    """`corpus` without the rows that have no vector in `source`, numbered anew.

    A set with such a text is left out whole, and so is a similar pair or a triplet; lines of `missing` and `found` say so.
    `named` are the training rows that the user asked for by name (`--text`).

    Raises:
        InputError: one of the `named` rows has no vector, or no training sentence has one.
    """
    kept = np.flatnonzero(known_N)
    missing: list[str] = []

    def at(rows: Rows) -> Rows:
        return np.searchsorted(kept, rows).astype(np.int64)

    def whole(name: str, *columns: Rows) -> bool:
        rows = np.unique(np.concatenate(columns))
        unknown = rows[~known_N[rows]]
        if len(unknown):
            text = corpus.sentences[int(unknown[0])]
            missing.append(
                f"{name}: {len(unknown):,} of its {len(rows):,} texts have no vector in {source}, such as {text!r:.80}"
            )
        return not len(unknown)

    def pair_task(task: PairTask) -> PairTask:
        splits = {n: PairSplit(at(s.left_P), at(s.right_P), s.target_P) for n, s in task.splits.items()}
        return replace(task, splits=splits)

    def searched(task: RetrievalSet) -> RetrievalSet:
        return replace(task, queries=at(task.queries), documents=at(task.documents))

    train = corpus.train[known_N[corpus.train]]
    without = len(corpus.train) - len(train)
    if unknown := len(named) - int(known_N[named].sum()):
        row = int(named[~known_N[named]][0])
        raise InputError(
            f"{source}: no vector of {corpus.sentences[row]!r:.120} of --text ({unknown:,} of {len(named):,} sentences have "
            "none); expected one of each: leave --text out to train on the texts of the file"
        )
    if not len(train):
        raise InputError(f"{source}: no vector of any of {without:,} training sentences; expected some")
    pairs, triplets, judged = (
        rows[known_N[rows].all(axis=1)] for rows in (corpus.pairs_P2, corpus.triplets_T3, corpus.judged_P2)
    )

    def whole_tasks(tasks: Sequence[PairTask]) -> tuple[PairTask, ...]:
        return tuple(
            pair_task(task)
            for task in tasks
            if whole(f"pair task {task.name}", *(side for s in task.splits.values() for side in (s.left_P, s.right_P)))
        )

    sentences = [corpus.sentences[int(row)] for row in kept]
    left_out = f"; {without:,} sentences without a vector left out" if without else ""
    return replace(
        corpus,
        sentences=sentences_artifact(sentences, fingerprint(sentences), store),
        train=at(train),
        pairs_P2=at(pairs).reshape(-1, 2),
        triplets_T3=at(triplets).reshape(-1, 3),
        judged_P2=at(judged).reshape(-1, 2),
        passages=at(corpus.passages[known_N[corpus.passages]]),
        sts=tuple(
            replace(s, left_P=at(s.left_P), right_P=at(s.right_P))
            for s in corpus.sts
            if whole(f"{s.name} ({s.split})", s.left_P, s.right_P)
        ),
        retrieval=tuple(
            searched(t) for t in corpus.retrieval if whole(f"{t.name} retrieval, {t.split}", t.queries, t.documents)
        ),
        classification=tuple(
            replace(s, texts=tuple(at(side) for side in s.texts))
            for s in corpus.classification
            if whole(f"classification {s.name}", *s.texts)
        ),
        pair_tasks=whole_tasks(corpus.pair_tasks),
        probed=whole_tasks(corpus.probed),
        found=(*corpus.found, f"{source}: vectors of {len(kept):,} of {len(known_N):,} texts{left_out}"),
        missing=(*corpus.missing, *missing),
    )
