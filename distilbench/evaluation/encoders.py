"""One encoder's rows, trained here or not: on every set, at each width, as it is and quantised. Every command scores here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Rows, StsSet
from distilbench.errors import InputError
from distilbench.evaluation.classification import classification_scores
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.pair_probe import probe
from distilbench.evaluation.predictions import Predictions, sts_predictions, with_selection
from distilbench.evaluation.quantisation import Quantiser
from distilbench.evaluation.retrieval_task import Documents, RetrievalResult, evaluate_retrieval, retrieval_task_scores
from distilbench.evaluation.selection import Measured, fidelity_scores, selection_scores
from distilbench.evaluation.sets import EvaluationSets
from distilbench.evaluation.shape import POSITIVE, shape
from distilbench.evaluation.statistics import resampled_correlation, resampled_f1, resampled_mean
from distilbench.evaluation.sts import cosine, from_rows, scores_of_similarities
from distilbench.records import ClusterCost, IndexCost, Quantisation, Score, Space, Task
from distilbench.storage.arrays import ShardedArray

SPACE_GROUPS = ("STSB", "DEMO-STS")
"""The STS group whose test set the geometry is of: STS-B as in the papers, or the built-in one."""
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
class Pieces:
    """Vectors of the rows of several kinds of sets, each kind's in an artifact of its own; a row may be in several.

    `rows` of a kind are rising, `places` are where in its artifact their vectors are.
    """

    rows: Sequence[Rows]
    places: Sequence[Rows]
    vectors: Sequence[ShardedArray]

    def take(self, asked: Rows) -> NDArray[np.float32]:
        """The vectors of corpus rows, in any order.

        Raises:
            KeyError: a row is in none of the artifacts.
        """
        found_ND = np.empty((len(asked), self.vectors[0].width), dtype=np.float32)
        left = np.ones(len(asked), dtype=bool)
        for rows, places, vectors in zip(self.rows, self.places, self.vectors, strict=True):
            found = np.minimum(np.searchsorted(rows, asked), len(rows) - 1)
            here = left & (rows[found] == asked)
            found_ND[here] = vectors.take(places[found[here]])
            left &= ~here
        if left.any():
            raise KeyError(f"row {asked[left][0]} has no vector")
        return found_ND


@dataclass(frozen=True)
class RetrievalOptions:
    """How retrieval is measured: `batch` queries at a time (None: all) on `threads` threads."""

    indexes: tuple[IndexSpec, ...]
    threads: int = 1
    batch: int | None = None


@dataclass(frozen=True)
class Extra:
    """What is measured of the whole float32 vectors beside the sets."""

    scores: list[Score]
    clusters: list[ClusterCost]
    notes: list[str]


More = Callable[[Sequence[NDArray[np.float32]]], Extra]
"""Called with the vectors of each retrieval set's queries."""
Quantisers = Callable[[int], Sequence[Quantiser]]
"""Called with a width: the quantisers of vectors of that width, each of another kind."""


@dataclass(frozen=True)
class EncoderRow:
    """What a row has beside its identity."""

    width: int
    quantisation: Quantisation
    bytes_per_vector: int
    scores: list[Score]
    indexes: list[IndexCost]
    predictions: Predictions
    clusters: list[ClusterCost]
    space: Space | None
    notes: list[str]


def encoder_rows(
    vectors: Vectors,
    sets: EvaluationSets,
    widths: Sequence[int],
    quantisers: Quantisers,
    searching: RetrievalOptions,
    more: More,
) -> Iterator[EncoderRow]:
    """Score each width (the first dimensions) in float32, then by each of its quantisers: a row each, one after the other.

    Sentence classification and pair tasks are those of the whole float32 vectors alone, and so is what `more` gives.

    Raises:
        InputError: a vector is zero, or not finite; the message quotes its sentence, or names the document.
    """
    sts = (*sets.sts, *sets.tokenised)
    judged = [s.rows for s in (sets.judged, sets.tested) if s is not None]
    rows = np.unique(
        np.concatenate([*(side for s in sts for side in (s.left_P, s.right_P)), *sets.queries, *judged, []])
    )
    rows = rows.astype(np.int64)
    read_ND = vectors.take(rows)
    for width in widths:
        own_ND = np.ascontiguousarray(read_ND[:, :width])
        check_vectors(own_ND, vectors.encoder, sets.sentences, rows)
        codes = tuple(quantisers(width))
        searches = _searches(vectors, sets, rows, own_ND, width, codes, searching)
        for quantiser in (None, *codes):
            yield _row(vectors, sets, rows, own_ND, quantiser, searches, more)


def check_vectors(vectors_ND: NDArray[np.float32], encoder: str, sentences: Sequence[str], rows: Rows) -> None:
    """Check that the vectors of the `rows` of `sentences` have a direction.

    Raises:
        InputError: one is zero, or not finite; the message quotes its sentence.
    """
    bad = np.flatnonzero(~(np.linalg.norm(vectors_ND, axis=1) > LEAST_NORM))
    if len(bad):
        sentence = sentences[int(rows[bad[0]])]
        raise InputError(
            f"encoder {encoder!r}: the vector of {sentence!r:.120} is zero or not finite, and has no cosine"
        )


def _row(
    vectors: Vectors,
    sets: EvaluationSets,
    rows: Rows,
    own_ND: NDArray[np.float32],
    quantiser: Quantiser | None,
    searches: Sequence[RetrievalResult],
    more: More,
) -> EncoderRow:
    width = own_ND.shape[1]
    compared_ND, asked_ND = (own_ND, own_ND) if quantiser is None else quantiser.compared(own_ND)
    raw, tokenised = (_similarities(compared_ND, rows, some) for some in (sets.sts, sets.tokenised))
    scores = scores_of_similarities(sets.sts, raw)
    scores += scores_of_similarities(sets.tokenised, tokenised, "sts-tokenised")
    notes = [
        f"{s.name} ({s.split}): every pair has the same cosine; its correlations, which are undefined, stand as 0"
        for s, similarity_P in zip((*sets.sts, *sets.tokenised), (*raw, *tokenised), strict=True)
        if np.ptp(similarity_P) < LEAST_SPREAD
    ]
    item: dict[str, NDArray[Any]] = {}
    reciprocal: dict[str, NDArray[Any]] = {}
    indexes: list[IndexCost] = []
    task: Task = "asymmetric" if vectors.documents_by else "retrieval"
    codes_searched = {kind for result in searches for kind in result.quantised}
    for own, result in zip(sets.searches, searches, strict=True):
        indexes += [
            c for c in result.costs if (c.kind == quantiser.kind if quantiser else c.kind not in codes_searched)
        ]
        notes += result.notes
        per_query = result.quantised[quantiser.kind] if quantiser else result.per_query
        scores += retrieval_task_scores(own, per_query, task)
        if own.split == "test":
            item |= {f"{task}/{own.name}/{metric}": value_Q for metric, value_Q in per_query.items()}
            if not vectors.documents_by:
                reciprocal[own.name] = per_query["mrr@10"]
    asked, stored = from_rows(rows, asked_ND), from_rows(rows, compared_ND)
    dev: list[Measured] = []
    tested: list[Measured] = []
    if sets.judged is not None:
        dev = sets.judged.measure(stored, asked)
        scores += selection_scores(sets.judged, dev)
    if sets.tested is not None:
        tested = sets.tested.measure(stored, asked)
        scores += fidelity_scores(tested, "test")
    clusters: list[ClusterCost] = []
    if quantiser is None and width == vectors.width:
        found, right = classification_scores(
            lambda asked: _checked(vectors, sets, asked), sets.classification, sets.sentences
        )
        scores += found
        item |= {f"classification/{name}/accuracy": correct_N for name, correct_N in right.items()}
        for pair_task in sets.pair_tasks:
            probed, values, note = _probed(vectors, sets, pair_task)
            scores += probed
            item |= values
            notes += note
        extra = more([own_ND[np.searchsorted(rows, queries)] for queries in sets.queries])
        scores += extra.scores
        clusters += extra.clusters
        notes += extra.notes
    predictions = sts_predictions(sets.sts, raw, reciprocal, item)
    predictions = with_selection(predictions, dev, tested)
    space, told = _space(own_ND, rows, sets) if quantiser is None else (None, [])
    notes += told
    size = 4 * width if quantiser is None else quantiser.bytes_per_vector
    kind: Quantisation = "float32" if quantiser is None else quantiser.kind
    return EncoderRow(width, kind, size, scores, indexes, predictions, clusters, space, notes)


def _probed(
    vectors: Vectors, sets: EvaluationSets, task: Any
) -> tuple[list[Score], dict[str, NDArray[Any]], list[str]]:
    """The scores of a pair task with intervals, the values of its test items, and why there are none."""
    found = probe(lambda rows: _checked(vectors, sets, rows), task)
    if found.note:
        return [], {}, [found.note]
    items: dict[str, NDArray[Any]] = {}
    scores = []
    for score in found.scores:
        if score.metric in ("pearson", "spearman"):
            ranks = score.metric == "spearman"
            interval = resampled_correlation(found.predicted_P, found.target_P, ranks=ranks).interval
        elif score.metric == "f1":
            interval = resampled_f1(found.predicted_P == 1, found.target_P == 1).interval
        else:
            correct_P = found.predicted_P == found.target_P
            interval = resampled_mean(correct_P).interval
            if found.split == "test":
                items[f"pair-probe/{task.name}/accuracy"] = correct_P
        scores.append(score.model_copy(update=interval._asdict()))
    return scores, items, []


def _searches(
    vectors: Vectors,
    sets: EvaluationSets,
    rows: Rows,
    own_ND: NDArray[np.float32],
    width: int,
    quantisers: tuple[Quantiser, ...],
    searching: RetrievalOptions,
) -> list[RetrievalResult]:
    """The results of every retrieval set by each index and quantiser; its documents are read once for all of them."""
    return [
        evaluate_retrieval(
            _Truncated(documents, width),
            own_ND[np.searchsorted(rows, queries)],
            own,
            kinds=searching.indexes,
            quantisers=quantisers,
            threads=searching.threads,
            batch=searching.batch,
        )
        for own, queries, documents in zip(sets.searches, sets.queries, vectors.documents, strict=True)
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


def _similarities(own_ND: NDArray[np.float32], rows: Rows, every: Sequence[StsSet]) -> list[NDArray[np.float64]]:
    return [cosine(*(own_ND[np.searchsorted(rows, side)] for side in (s.left_P, s.right_P))) for s in every]


def _checked(vectors: Vectors, sets: EvaluationSets, rows: Rows) -> NDArray[np.float32]:
    """The vectors of `rows`, none of them zero."""
    found_ND = vectors.take(rows)
    check_vectors(found_ND, vectors.encoder, sets.sentences, rows)
    return found_ND


def _space(own_ND: NDArray[np.float32], rows: Rows, sets: EvaluationSets) -> tuple[Space | None, list[str]]:
    """The geometry, or why there is none."""
    chosen = next((s for s in sets.sts if s.group in SPACE_GROUPS and s.split == "test"), None)
    if chosen is None:
        return None, []
    if not (chosen.score_P > POSITIVE).any():
        return None, [f"{chosen.name} (test): no geometry, since no pair has a score above {POSITIVE:g}"]
    left, right = (np.searchsorted(rows, side) for side in (chosen.left_P, chosen.right_P))
    found = shape(own_ND, left, right, chosen.score_P)._asdict()
    return Space.model_validate({name: found[name] for name in Space.model_fields}), []
