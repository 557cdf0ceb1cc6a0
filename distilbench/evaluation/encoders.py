"""One encoder's rows, trained here or not: on every set, at each width, as it is and quantised. Every command scores here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import PairTask, Rows, StsSet
from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.classification import classification_scores
from distilbench.evaluation.faiss_codes import Code
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.pair_probe import probe
from distilbench.evaluation.predictions import Predictions, sts_items, value_items
from distilbench.evaluation.retrieval_task import (
    Documents,
    PerQuery,
    RetrievalResult,
    evaluate_retrieval,
    retrieval_task_scores,
)
from distilbench.evaluation.selection import Measured, fidelity_scores, selection_scores
from distilbench.evaluation.sets import EvaluationSets
from distilbench.evaluation.statistics import resampled_correlation, resampled_f1, resampled_mean
from distilbench.evaluation.sts import cosine, from_rows, scores_of_similarities
from distilbench.records import IndexCost, Quantisation, Score, Task

LEAST_NORM = 1e-12
LEAST_SPREAD = 1e-7
"""The smallest spread of a set's cosines that says something: below it are float32's roundings alone."""


@dataclass(frozen=True)
class Vectors:
    """An encoder's vectors: `rows` gives those of corpus rows, `documents` are those of each retrieval set.

    `documents_by` names another encoder whose vectors the documents are (asymmetric retrieval); "" is this one.
    """

    encoder: str
    width: int
    take: Callable[[Rows], NDArray[np.float32]]
    documents: Sequence[Documents]
    documents_by: str = ""


@dataclass(frozen=True)
class RetrievalOptions:
    """How retrieval is measured: `batch` queries at a time (None: all) on `threads` threads."""

    indexes: tuple[IndexSpec, ...]
    threads: int = 1
    batch: int | None = None


@dataclass
class TaskScores:
    """Scores of a kind, what a reader has to know, and by "TASK/SET/METRIC" the value of each test item."""

    scores: list[Score] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: dict[str, NDArray[Any]] = field(default_factory=dict)


Codes = Callable[[int], Sequence[Code]]
"""Called with a width: the codes of vectors of that width, each of another kind."""


@dataclass(frozen=True)
class EncoderRow:
    """What a row has beside its identity."""

    width: int
    quantisation: Quantisation
    bytes_per_vector: int
    scores: list[Score]
    indexes: list[IndexCost]
    predictions: Predictions
    notes: list[str]


def encoder_rows(
    vectors: Vectors,
    sets: EvaluationSets,
    widths: Sequence[int],
    codes_of: Codes,
    searching: RetrievalOptions,
    more: Callable[[], TaskScores],
) -> Iterator[EncoderRow]:
    """Score each width (the first dimensions) in float32, then in each of its codes: a row each, one after the other.

    Sentence classification and pair tasks are scored of the whole float32 vectors alone, and so is what `more` gives. A zero
    vector, or one that is not finite, is an InputError that quotes its sentence, or names the document.
    """
    judged = [s.rows for s in (sets.judged, sets.tested) if s is not None]
    rows = np.unique(
        np.concatenate([*(side for s in sets.sts for side in (s.left_P, s.right_P)), *sets.queries, *judged, []])
    ).astype(np.int64)
    read_ND = vectors.take(rows)
    for width in widths:
        vectors_ND = np.ascontiguousarray(read_ND[:, :width])
        check_vectors(vectors_ND, vectors.encoder, sets.sentences, rows)
        codes = codes_of(width)
        searches = _searches(vectors, sets, rows, vectors_ND, codes, searching)
        for code in (None, *codes):
            yield _row(_Scored(vectors, sets, rows, vectors_ND, code), searches, more)


@dataclass(frozen=True)
class _Scored:
    """What one row is scored on: the float32 vectors of `rows`, and the code that they are stored in (None: none)."""

    vectors: Vectors
    sets: EvaluationSets
    rows: Rows
    vectors_ND: NDArray[np.float32]
    code: Code | None


def check_vectors(vectors_ND: NDArray[np.float32], encoder: str, sentences: Sequence[str], rows: Rows) -> None:
    """Check that the vectors of the `rows` of `sentences` have a direction."""
    bad = np.flatnonzero(~(np.linalg.norm(vectors_ND, axis=1) > LEAST_NORM))
    if len(bad):
        sentence = sentences[int(rows[bad[0]])]
        raise InputError(
            f"encoder {encoder!r}: the vector of {sentence!r:.120} is zero or not finite, and has no cosine"
        )


def _row(scored: _Scored, searches: Sequence[RetrievalResult], more: Callable[[], TaskScores]) -> EncoderRow:
    sets, code, width = scored.sets, scored.code, scored.vectors_ND.shape[1]
    stored_ND, query_ND = (scored.vectors_ND,) * 2 if code is None else code.compared(scored.vectors_ND)
    similarities = _similarities(stored_ND, scored.rows, sets.sts)
    parts = [_sts_part(sets.sts, similarities), _retrieval_part(scored, searches)]
    stored, queries = from_rows(scored.rows, stored_ND), from_rows(scored.rows, query_ND)
    dev = sets.judged.measure(stored, queries) if sets.judged else []
    tested = sets.tested.measure(stored, queries) if sets.tested else []
    if sets.judged:
        parts.append(TaskScores(selection_scores(sets.judged, dev)))
    if sets.tested:
        parts.append(TaskScores(fidelity_scores(tested, "test")))
    if code is None and width == scored.vectors.width:
        extra = more()
        parts += [_classification_part(scored), *(_pair_part(scored, task) for task in sets.pair_tasks)]
        parts.append(TaskScores(extra.scores, extra.notes))
    measured = {"test": tested, "dev": dev}
    said = {split: sts_items(sets.sts, similarities, split) | _items_of(measured[split]) for split in measured}
    said["test"] |= {name: value_items(values) for part in parts for name, values in part.items.items()}
    return EncoderRow(
        width=width,
        quantisation="float32" if code is None else code.kind,
        bytes_per_vector=4 * width if code is None else code.bytes_per_vector,
        scores=[score for part in parts for score in part.scores],
        indexes=[cost for result in searches for cost in _costs_of(result, code)],
        predictions=Predictions(**said),
        notes=[note for part in parts for note in part.notes],
    )


def _sts_part(sets: Sequence[StsSet], similarities: Sequence[NDArray[np.float64]]) -> TaskScores:
    notes = [
        f"{s.name} ({s.split}): every pair has the same cosine; its correlations, which are undefined, stand as 0"
        for s, similarity_P in zip(sets, similarities, strict=True)
        if np.ptp(similarity_P) < LEAST_SPREAD
    ]
    return TaskScores(scores_of_similarities(sets, similarities), notes)


def _costs_of(result: RetrievalResult, code: Code | None) -> list[IndexCost]:
    """The costs of the row's own index, or of the indexes of float32 vectors."""
    return [c for c in result.costs if (c.kind == code.kind if code else c.kind not in result.by_code)]


def _per_query(result: RetrievalResult, code: Code | None) -> PerQuery:
    return result.by_code[code.kind] if code else result.per_query


def _retrieval_part(scored: _Scored, searches: Sequence[RetrievalResult]) -> TaskScores:
    part = TaskScores()
    kind: Task = "asymmetric" if scored.vectors.documents_by else "retrieval"
    for task, result in zip(scored.sets.searches, searches, strict=True):
        per_query = _per_query(result, scored.code)
        part.notes += result.notes
        part.scores += retrieval_task_scores(task, per_query, kind)
        if task.split == "test":
            part.items |= {f"{kind}/{task.name}/{metric}": value_Q for metric, value_Q in per_query.items()}
    return part


def _items_of(measured: Sequence[Measured]) -> dict[str, Items]:
    """What a selection measured, item by item."""
    return {m.name: Items(m.value_P, m.gold_P) if m.gold_P is not None else value_items(m.value_P) for m in measured}


def _classification_part(scored: _Scored) -> TaskScores:
    scores, correct = classification_scores(
        lambda rows: _checked(scored.vectors, scored.sets, rows), scored.sets.classification, scored.sets.sentences
    )
    return TaskScores(
        scores, items={f"classification/{name}/accuracy": correct_N for name, correct_N in correct.items()}
    )


def _pair_part(scored: _Scored, task: PairTask) -> TaskScores:
    """The scores of a pair task with intervals, or why there are none."""
    probed = probe(lambda rows: _checked(scored.vectors, scored.sets, rows), task)
    if probed.note:
        return TaskScores(notes=[probed.note])
    part = TaskScores()
    for score in probed.scores:
        if score.metric in ("pearson", "spearman"):
            ranks = score.metric == "spearman"
            interval = resampled_correlation(probed.predicted_P, probed.target_P, ranks=ranks).interval
        elif score.metric == "f1":
            interval = resampled_f1(probed.predicted_P == 1, probed.target_P == 1).interval
        else:
            correct_P = probed.predicted_P == probed.target_P
            interval = resampled_mean(correct_P).interval
            if probed.split == "test":
                part.items[f"pair-probe/{task.name}/accuracy"] = correct_P
        part.scores.append(score.model_copy(update=interval._asdict()))
    return part


def _searches(
    vectors: Vectors,
    sets: EvaluationSets,
    rows: Rows,
    vectors_ND: NDArray[np.float32],
    codes: Sequence[Code],
    searching: RetrievalOptions,
) -> list[RetrievalResult]:
    """The results of every retrieval set by each index and code; its documents are read once for all of them."""
    return [
        evaluate_retrieval(
            _Truncated(documents, vectors_ND.shape[1]),
            vectors_ND[np.searchsorted(rows, queries)],
            task,
            kinds=searching.indexes,
            codes=codes,
            threads=searching.threads,
            batch=searching.batch,
        )
        for task, queries, documents in zip(sets.searches, sets.queries, vectors.documents, strict=True)
    ]


@dataclass(frozen=True)
class _Truncated:
    """The first `width` dimensions of documents."""

    documents: Documents
    width: int

    @property
    def rows(self) -> int:
        return self.documents.rows

    def block(self, start: int, stop: int) -> NDArray[Any]:
        return self.documents.block(start, stop)[:, : self.width]


def _similarities(vectors_ND: NDArray[np.float32], rows: Rows, every: Sequence[StsSet]) -> list[NDArray[np.float64]]:
    return [cosine(*(vectors_ND[np.searchsorted(rows, side)] for side in (s.left_P, s.right_P))) for s in every]


def _checked(vectors: Vectors, sets: EvaluationSets, rows: Rows) -> NDArray[np.float32]:
    """The vectors of `rows`, none of them zero."""
    vectors_ND = vectors.take(rows)
    check_vectors(vectors_ND, vectors.encoder, sets.sentences, rows)
    return vectors_ND
