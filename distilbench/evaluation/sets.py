"""The sets that an encoder is scored on, whoever asks: a sweep's corpus or `evaluate`'s data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distilbench.data.corpus import ClassificationSet, Corpus, PairTask, Rows, StsSet
from distilbench.data.evaluation_sets import EvaluationData
from distilbench.evaluation.retrieval_task import RetrievalTask
from distilbench.evaluation.selection import SelectionSets


@dataclass(frozen=True)
class EvaluationSets:
    """Sets whose texts are rows of `sentences`; `queries` are the rows of the queries of each of the `searches`.

    The documents of the searches come with the vectors (`encoders.Vectors`).
    """

    sentences: Sequence[str]
    sts: Sequence[StsSet] = ()
    searches: Sequence[RetrievalTask] = ()
    queries: Sequence[Rows] = ()
    classification: Sequence[ClassificationSet] = ()
    pair_tasks: Sequence[PairTask] = ()
    judged: SelectionSets | None = None
    """What students are selected by, where it is not the STS dev sets."""
    tested: SelectionSets | None = None
    """Held-out sentences that are reported."""


def sets_of_data(data: EvaluationData) -> EvaluationSets:
    """All sets of `evaluate`'s data."""
    corpus = data.corpus
    searches = [RetrievalTask(s.name, s.split, s.relevant, s.grades) for s in data.searches]
    return EvaluationSets(
        corpus.sentences, corpus.sts, searches, data.queries, corpus.classification, corpus.pair_tasks
    )


def sets_of_corpus(corpus: Corpus) -> EvaluationSets:
    """All sets of a run's corpus."""
    return EvaluationSets(
        corpus.sentences,
        corpus.sts,
        [RetrievalTask(t.name, "dev" if t.split == "dev" else "test", t.relevant, t.grades) for t in corpus.retrieval],
        [t.queries for t in corpus.retrieval],
        corpus.classification,
        corpus.probed,
    )
