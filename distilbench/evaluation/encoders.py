"""One encoder's rows, trained here or not: on every set of an `EvaluationData`, at each width, as it is and quantised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Rows, StsSet
from distilbench.data.evaluation import EvaluationData
from distilbench.errors import InputError
from distilbench.evaluation.classification import classification_scores
from distilbench.evaluation.document_search import Documents, SearchResult, SearchTask, evaluate_search, search_scores
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.pair_probe import probe
from distilbench.evaluation.predictions import Predictions, sts_predictions
from distilbench.evaluation.quantisation import QUANTISERS, Quantiser
from distilbench.evaluation.shape import shape
from distilbench.evaluation.statistics import resampled_correlation, resampled_f1, resampled_mean
from distilbench.evaluation.sts import cosine, scores_of_similarities
from distilbench.records import ClusterCost, IndexCost, Quantisation, Score, Space, Task
from distilbench.storage.arrays import ShardedArray

SPACE_GROUPS = ("STSB", "DEMO-STS")
"""The STS group whose test set the geometry is of: STS-B as in the papers, or the built-in one."""
LEAST_NORM = 1e-12
LEAST_SPREAD = 1e-7
"""Of the cosines of a set: below are float32's roundings alone."""


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
class Searching:
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
    data: EvaluationData,
    widths: Sequence[int],
    quantisations: Sequence[Quantisation],
    searching: Searching,
    more: More,
) -> Iterator[EncoderRow]:
    """A row for each width (its first dimensions) and quantisation, one after the other.

    Sentence classification and pair tasks are those of the whole float32 vectors alone, and so is what `more` gives, which is
    called with the vectors of each retrieval set's queries.

    Raises:
        InputError: a vector is zero, or not finite; the message quotes its sentence.
    """
    sets = (*data.corpus.sts, *data.tokenised)
    rows = np.unique(np.concatenate([*(side for s in sets for side in (s.left_P, s.right_P)), *data.queries, []]))
    rows = rows.astype(np.int64)
    read_ND = _checked(vectors, data, rows)
    calibration_ND = _checked(vectors, data, data.corpus.train) if quantisations else read_ND
    for width in widths:
        own_ND = np.ascontiguousarray(read_ND[:, :width])
        quantisers: dict[Quantisation, Quantiser] = {
            kind: QUANTISERS[kind].calibrate(calibration_ND[:, :width]) for kind in quantisations if kind != "float32"
        }
        searches = _searches(vectors, data, rows, own_ND, width, tuple(quantisers.values()), searching)
        for kind in dict.fromkeys(("float32", *quantisations)):
            yield _row(vectors, data, rows, own_ND, kind, quantisers.get(kind), searches, more)


def _row(
    vectors: Vectors,
    data: EvaluationData,
    rows: Rows,
    own_ND: NDArray[np.float32],
    kind: Quantisation,
    quantiser: Quantiser | None,
    searches: Sequence[SearchResult],
    more: More,
) -> EncoderRow:
    width = own_ND.shape[1]
    compared_ND = own_ND if quantiser is None else quantiser.decode(quantiser.encode(own_ND))
    raw, tokenised = (_similarities(compared_ND, rows, sets) for sets in (data.corpus.sts, data.tokenised))
    scores = scores_of_similarities(data.corpus.sts, raw)
    scores += scores_of_similarities(data.tokenised, tokenised, "sts-tokenised")
    notes = [
        f"{s.name} ({s.split}): every pair has the same cosine; its correlations, which are undefined, stand as 0"
        for s, similarity_P in zip((*data.corpus.sts, *data.tokenised), (*raw, *tokenised), strict=True)
        if np.ptp(similarity_P) < LEAST_SPREAD
    ]
    item: dict[str, NDArray[Any]] = {}
    reciprocal: dict[str, NDArray[Any]] = {}
    indexes: list[IndexCost] = []
    task: Task = "asymmetric" if vectors.documents_by else "retrieval"
    for own, result in zip(data.searches, searches, strict=True):
        indexes += [c for c in result.costs if (c.kind == quantiser.kind if quantiser else c.kind not in QUANTISERS)]
        notes += result.notes
        per_query = result.quantised[quantiser.kind] if quantiser else result.per_query
        scores += search_scores(SearchTask(own.name, own.split, own.relevant), per_query, task)
        if own.split == "test":
            item |= {f"{task}/{own.name}/{metric}": value_Q for metric, value_Q in per_query.items()}
            if not vectors.documents_by:
                reciprocal[own.name] = per_query["mrr@10"]
    clusters: list[ClusterCost] = []
    if quantiser is None and width == vectors.width:
        found, right = classification_scores(
            lambda asked: _checked(vectors, data, asked), data.corpus.classification, data.corpus.sentences
        )
        scores += found
        item |= {f"classification/{name}/accuracy": correct_N for name, correct_N in right.items()}
        for pair_task in data.corpus.pair_tasks:
            probed, values, note = _probed(vectors, data, pair_task)
            scores += probed
            item |= values
            notes += note
        extra = more([own_ND[np.searchsorted(rows, queries)] for queries in data.queries])
        scores += extra.scores
        clusters += extra.clusters
        notes += extra.notes
    predictions = sts_predictions(data.corpus.sts, raw, reciprocal, item)
    space = _space(compared_ND, rows, data) if quantiser is None else None
    size = 4 * width if quantiser is None else quantiser.bytes_per_vector
    return EncoderRow(width, kind, size, scores, indexes, predictions, clusters, space, notes)


def _probed(
    vectors: Vectors, data: EvaluationData, task: Any
) -> tuple[list[Score], dict[str, NDArray[Any]], list[str]]:
    """The scores of a pair task with intervals, the values of its test items, and why there are none."""
    found = probe(lambda rows: _checked(vectors, data, rows), task)
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
    data: EvaluationData,
    rows: Rows,
    own_ND: NDArray[np.float32],
    width: int,
    quantisers: tuple[Quantiser, ...],
    searching: Searching,
) -> list[SearchResult]:
    """Of every retrieval set, by each index and quantiser; the documents are read once for all of them."""
    return [
        evaluate_search(
            _Truncated(documents, width),
            own_ND[np.searchsorted(rows, queries)],
            SearchTask(own.name, own.split, own.relevant, own.grades),
            kinds=searching.indexes,
            quantisers=quantisers,
            threads=searching.threads,
            batch=searching.batch,
        )
        for own, queries, documents in zip(data.searches, data.queries, vectors.documents, strict=True)
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


def _similarities(own_ND: NDArray[np.float32], rows: Rows, sets: Sequence[StsSet]) -> list[NDArray[np.float64]]:
    return [cosine(*(own_ND[np.searchsorted(rows, side)] for side in (s.left_P, s.right_P))) for s in sets]


def _checked(vectors: Vectors, data: EvaluationData, rows: Rows) -> NDArray[np.float32]:
    """The vectors of `rows`, none of them zero."""
    found_ND = vectors.take(rows)
    bad = np.flatnonzero(~(np.linalg.norm(found_ND, axis=1) > LEAST_NORM))
    if len(bad):
        sentence = data.corpus.sentences[int(rows[bad[0]])]
        raise InputError(
            f"encoder {vectors.encoder!r}: the vector of {sentence!r:.120} is zero or not finite, and has no cosine"
        )
    return found_ND


def _space(own_ND: NDArray[np.float32], rows: Rows, data: EvaluationData) -> Space | None:
    sets = [s for s in data.corpus.sts if s.group in SPACE_GROUPS and s.split == "test"]
    if not sets:
        return None
    left, right = (np.searchsorted(rows, side) for side in (sets[0].left_P, sets[0].right_P))
    found = shape(own_ND, left, right, sets[0].score_P)._asdict()
    return Space.model_validate({name: found[name] for name in Space.model_fields})
