"""Roles of texts: query, document, or neither. An encoder may have a prompt for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, EvaluationSet, Rows
from distilbench.data.sentences import SentenceFile, sentences_artifact
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore

PLAIN, QUERY, DOCUMENT = 0, 1, 2
"""Roles of a corpus's rows (`Corpus.roles_N`)."""


def with_roles(corpus: Corpus, store: ArtifactStore) -> Corpus:
    """`corpus` with a role for every row, for encoders that read queries and documents differently.

    Queries and passages of judgements are trained on as such.

    Rows keep their numbers. A text that is read in several roles has a row for each: that of its first role (in the order
    plain, query, document) is the one that it had, the others come after all sentences.
    """
    count = len(corpus.sentences)
    judged, pool = corpus.judged_P2, corpus.passages
    asked = _used(count, (*(task.queries for task in corpus.retrieval), judged[:, 0]))
    searched = _used(count, (*(task.documents for task in corpus.retrieval), judged[:, 1], pool))
    trained = _used(count, (judged.ravel(),))
    plain = _used(count, _plain_columns(corpus, trained)) | ~(asked | searched)
    first_N = np.where(plain, PLAIN, np.where(asked, QUERY, DOCUMENT)).astype(np.int8)
    again_query, again_document = (
        np.flatnonzero(used & (first_N != role)) for used, role in ((asked, QUERY), (searched, DOCUMENT))
    )
    query_row, document_row = np.arange(count), np.arange(count)
    query_row[again_query] = count + np.arange(len(again_query))
    document_row[again_document] = count + len(again_query) + np.arange(len(again_document))

    repeated = np.concatenate([again_query, again_document])
    judged_P2 = np.column_stack([query_row[judged[:, 0]], document_row[judged[:, 1]]])
    roles_N = np.concatenate([first_N, np.repeat([QUERY, DOCUMENT], [len(again_query), len(again_document)])])
    return replace(
        corpus,
        sentences=_followed(corpus, repeated, store),
        train=np.union1d(corpus.train[~trained[corpus.train]], judged_P2.ravel()),
        judged_P2=judged_P2,
        passages=np.unique(document_row[pool]),
        retrieval=tuple(
            replace(task, queries=query_row[task.queries], documents=document_row[task.documents])
            for task in corpus.retrieval
        ),
        roles_N=roles_N.astype(np.int8),
    )


def _used(count: int, columns: Iterable[Rows]) -> NDArray[np.bool_]:
    used = np.zeros(count, dtype=bool)
    for rows in columns:
        used[rows] = True
    return used


def _plain_columns(corpus: Corpus, judged: NDArray[np.bool_]) -> Iterable[Rows]:
    """Every row that is used in a set other than retrieval, or trained on but not as a `judged` query or passage."""
    yield from (corpus.train[~judged[corpus.train]], corpus.pairs_P2.ravel(), corpus.triplets_T3.ravel())
    sets: tuple[EvaluationSet, ...] = (*corpus.sts, *corpus.pair_tasks, *corpus.probed, *corpus.classification)
    yield from (column for one in sets for column in one.columns)
    yield from (held.rows for held in corpus.held_out)


def _followed(corpus: Corpus, repeated: Rows, store: ArtifactStore) -> tuple[str, ...] | SentenceFile:
    """The sentences of a corpus, those of the rows `repeated` once more after them."""
    more = [corpus.sentences[int(row)] for row in repeated]
    if not isinstance(corpus.sentences, SentenceFile):
        return (*corpus.sentences, *more)
    if not more:
        return corpus.sentences
    return SentenceFile(*corpus.sentences.paths, *sentences_artifact(more, fingerprint(more), store).paths)
