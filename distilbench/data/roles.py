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

    Queries and passages of judgements, and of files that are named so, are trained on as such.

    Rows keep their numbers. A text that is read in several roles has a row for each: that of its first role (in the order
    plain, query, document) is the one that it had, the others come after all sentences.
    """
    count = len(corpus.sentences)
    judged, pool = corpus.judged_P2, corpus.passages
    text = np.union1d(corpus.train, np.concatenate([corpus.train[:0], *(held.rows for held in corpus.held_out)]))
    queries = np.intersect1d(text, np.union1d(corpus.text_queries, judged[:, 0]))
    passages = np.union1d(np.setdiff1d(np.intersect1d(text, corpus.text_passages), queries), judged[:, 1])
    asked = _used(count, (*(task.queries for task in corpus.retrieval), queries))
    searched = _used(count, (*(task.documents for task in corpus.retrieval), passages, pool))
    named = _used(count, (queries, passages))
    plain = _used(count, _plain_columns(corpus, named)) | ~(asked | searched)
    first_N = np.where(plain, PLAIN, np.where(asked, QUERY, DOCUMENT)).astype(np.int8)
    again_query, again_document = (
        np.flatnonzero(used & (first_N != role)) for used, role in ((asked, QUERY), (searched, DOCUMENT))
    )
    query_row, document_row = np.arange(count), np.arange(count)
    query_row[again_query] = count + np.arange(len(again_query))
    document_row[again_document] = count + len(again_query) + np.arange(len(again_document))

    def as_read(rows: Rows) -> Rows:
        """Rows of training text, by the role in which it is read."""
        by_role = (query_row[np.intersect1d(rows, queries)], document_row[np.intersect1d(rows, passages)])
        return np.unique(np.concatenate([rows[~named[rows]], *by_role]))

    repeated = np.concatenate([again_query, again_document])
    judged_P2 = np.column_stack([query_row[judged[:, 0]], document_row[judged[:, 1]]])
    roles_N = np.concatenate([first_N, np.repeat([QUERY, DOCUMENT], [len(again_query), len(again_document)])])
    return replace(
        corpus,
        sentences=_followed(corpus, repeated, store),
        train=as_read(corpus.train),
        judged_P2=judged_P2,
        passages=np.unique(document_row[pool]),
        text_queries=np.unique(query_row[corpus.text_queries]),
        text_passages=np.unique(document_row[corpus.text_passages]),
        text_sources={source: as_read(rows) for source, rows in corpus.text_sources.items()},
        held_out=tuple(replace(held, rows=as_read(held.rows)) for held in corpus.held_out),
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


def _plain_columns(corpus: Corpus, named: NDArray[np.bool_]) -> Iterable[Rows]:
    """Every row that is used in a set other than retrieval, or is training text but `named` neither query nor passage."""
    yield from (corpus.train[~named[corpus.train]], corpus.pairs_P2.ravel(), corpus.triplets_T3.ravel())
    sets: tuple[EvaluationSet, ...] = (*corpus.sts, *corpus.pair_tasks, *corpus.probed, *corpus.classification)
    yield from (column for one in sets for column in one.columns)
    yield from (held.rows[~named[held.rows]] for held in corpus.held_out)


def _followed(corpus: Corpus, repeated: Rows, store: ArtifactStore) -> tuple[str, ...] | SentenceFile:
    more = [corpus.sentences[int(row)] for row in repeated]
    if not isinstance(corpus.sentences, SentenceFile):
        return (*corpus.sentences, *more)
    if not more:
        return corpus.sentences
    return SentenceFile(*corpus.sentences.paths, *sentences_artifact(more, fingerprint(more), store).paths)
