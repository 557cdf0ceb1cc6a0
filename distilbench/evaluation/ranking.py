"""Ranking metrics of every query, as trec_eval defines them: the values that a bootstrap over queries resamples.

Axes in names: Q queries, R ranks (best first), P pairs of a query and a document relevant to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.records import Metric

Relevant = tuple[NDArray[np.int64], ...]
Grades = tuple[NDArray[np.float64], ...]


class Qrels(NamedTuple):
    """Pairs of a query and a relevant document, sorted by query, then document; `count_Q` relevant ones of each query."""

    query_P: NDArray[np.int64]
    document_P: NDArray[np.int64]
    grade_P: NDArray[np.float64]
    count_Q: NDArray[np.int64]


def qrels_of(relevant: Relevant, grades: Grades | None = None) -> Qrels:
    """Sort the pairs of each query and its `relevant` positions and their `grades` (parallel to it; None: all 1)."""
    count_Q = np.array([len(positions) for positions in relevant], dtype=np.int64)
    document_P = np.concatenate(relevant).astype(np.int64)
    grade_P = np.ones(len(document_P)) if grades is None else np.concatenate(grades).astype(np.float64)
    query_P = np.repeat(np.arange(len(count_Q)), count_Q)
    order = np.lexsort((document_P, query_P))
    return Qrels(query_P, document_P[order], grade_P[order], count_Q)


def gains(found_QR: NDArray[np.int64], qrels: Qrels) -> NDArray[np.float64]:
    """The grade of each document found (positions, -1 where nothing was), Q x R; 0 where it is not relevant."""
    span = 1 + max(int(qrels.document_P.max()), int(found_QR.max(initial=-1)))
    key_P = qrels.query_P * span + qrels.document_P  # rising, since the pairs are sorted
    key_QR = np.arange(len(found_QR))[:, None] * span + found_QR
    at_QR = np.minimum(np.searchsorted(key_P, key_QR), len(key_P) - 1)
    return np.where((key_P[at_QR] == key_QR) & (found_QR >= 0), qrels.grade_P[at_QR], 0.0)


def without_own(found_QR: NDArray[np.int64], own_Q: NDArray[np.int64] | None, depth: int) -> NDArray[np.int64]:
    """The first `depth` documents found but the query's own one (-1: it has none; None: no query has), Q x depth at most."""
    if own_Q is not None:
        is_own_QR = (found_QR == own_Q[:, None]) & (found_QR >= 0)
        own_last_QR = np.argsort(is_own_QR, axis=1, kind="stable")
        found_QR = np.where(np.sort(is_own_QR, axis=1), -1, np.take_along_axis(found_QR, own_last_QR, axis=1))
    return found_QR[:, :depth]


def reciprocal_rank(gain_QR: NDArray[np.float64], k: int = 10) -> NDArray[np.float64]:
    """1 / rank of the first relevant document within the first k, 0 when none is."""
    hit_QR = gain_QR[:, :k] > 0
    return np.where(hit_QR.any(axis=1), 1 / (1 + np.argmax(hit_QR, axis=1)), 0.0)


def ndcg(gain_QR: NDArray[np.float64], qrels: Qrels, k: int = 10) -> NDArray[np.float64]:
    """Discounted cumulative gain of the first k over that of the best order of all relevant documents.

    A document of grade g at rank r gains g / log2(r + 1): Järvelin and Kekäläinen (2002) with trec_eval's discount.
    """
    found_R = gain_QR[:, :k]
    found_Q = found_R @ (1 / np.log2(np.arange(found_R.shape[1]) + 2))
    best_first = np.lexsort((-qrels.grade_P, qrels.query_P))
    rank_P = np.arange(len(best_first)) - np.repeat(np.cumsum(qrels.count_Q) - qrels.count_Q, qrels.count_Q)
    ideal_P = np.where(rank_P < k, qrels.grade_P[best_first] / np.log2(rank_P + 2), 0)
    return found_Q / np.bincount(qrels.query_P, weights=ideal_P, minlength=len(qrels.count_Q))


def average_precision(gain_QR: NDArray[np.float64], qrels: Qrels, k: int = 100) -> NDArray[np.float64]:
    """Sum of the precisions at the ranks of relevant documents within the first k, over all relevant documents."""
    hit_QR = gain_QR[:, :k] > 0
    precision_QR = np.cumsum(hit_QR, axis=1) / np.arange(1, hit_QR.shape[1] + 1)
    return (precision_QR * hit_QR).sum(axis=1) / qrels.count_Q


def recall(gain_QR: NDArray[np.float64], qrels: Qrels, k: int) -> NDArray[np.float64]:
    """Share of the relevant documents within the first k."""
    return (gain_QR[:, :k] > 0).sum(axis=1) / qrels.count_Q


def ranking_metrics(
    found_QR: NDArray[np.int64], relevant: Relevant, grades: Grades | None = None
) -> dict[Metric, NDArray[np.float64]]:
    """All ranking metrics, 0 to 1, a value for each query.

    `found_QR` holds positions of documents, best first, -1 where nothing was found; what it has no columns for counts as
    not found. 4,000 queries x 100 ranks take 0.1 s.
    """
    qrels = qrels_of(relevant, grades)
    gain_QR = gains(found_QR, qrels)
    return {
        "mrr@10": reciprocal_rank(gain_QR, 10),
        "ndcg@10": ndcg(gain_QR, qrels, 10),
        "map@100": average_precision(gain_QR, qrels, 100),
        "recall@1": recall(gain_QR, qrels, 1),
        "recall@10": recall(gain_QR, qrels, 10),
        "recall@100": recall(gain_QR, qrels, 100),
    }
