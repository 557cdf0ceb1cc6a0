"""Retrieval with FAISS: MRR@10 and Recall@100 of the exact index and of IVF, with what each costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import RetrievalSet
from distilbench.evaluation.sts import Embed
from distilbench.records import IndexCost, Score

DEPTH = 100
REPEATS = 3
"""Searches timed; the fastest counts."""
POINTS_PER_LIST = 39
"""FAISS's own lower limit for training a list's centroid."""


def unit(vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of norm 1 (zero rows stay zero), so that inner product is cosine."""
    norms = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return np.divide(vectors_ND, norms, out=np.zeros_like(vectors_ND), where=norms > 0)


def ivf_setting(documents: int) -> tuple[int, int]:
    """(nlist, nprobe): the power of two nearest 4 sqrt(documents), at least 39 documents a list; HPD's 5 probes per 1,024
    lists, never under 5."""
    nlist = 2 ** max(0, round(np.log2(4 * documents**0.5)))
    while nlist > 1 and documents < nlist * POINTS_PER_LIST:
        nlist //= 2
    return nlist, min(nlist, max(5, round(5 * nlist / 1024)))


def reciprocal_ranks(found_QR: NDArray[np.int64], relevant: tuple[NDArray[np.int64], ...]) -> NDArray[np.float64]:
    """Of each query: 1 / rank of the first relevant document within the first 10, 0 when none is. MRR@10 is their mean."""
    gains = []
    for found, wanted in zip(found_QR, relevant, strict=True):
        hits = np.flatnonzero(np.isin(found[:10], wanted))
        gains.append(1 / (hits[0] + 1) if len(hits) else 0.0)
    return np.array(gains)


def recall_at(k: int, found_QR: NDArray[np.int64], relevant: tuple[NDArray[np.int64], ...]) -> float:
    """Mean share of a query's relevant documents within the first k, x 100."""
    shares = [np.isin(w, f[:k]).mean() for f, w in zip(found_QR, relevant, strict=True)]
    return 100 * float(np.mean(shares))


@contextmanager
def faiss_threads(threads: int) -> Iterator[None]:
    """FAISS works on `threads` threads within the block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def timed(search: Callable[..., NDArray[np.int64]], *arguments: Any) -> tuple[NDArray[np.int64], float]:
    """What `search(*arguments)` finds, and the seconds of its fastest run."""
    seconds = []
    found = np.empty((0, 0), dtype=np.int64)
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = search(*arguments)
        seconds.append(time.perf_counter() - began)
    return found, min(seconds)


def _search(index: faiss.Index, queries_QD: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
    return index.search(queries_QD, depth)[1]


def index_cost(
    task: RetrievalSet,
    kind: Literal["flat", "ivf", "int8", "binary"],
    found_QR: NDArray[np.int64],
    exact_QR: NDArray[np.int64],
    *,
    reciprocal_Q: NDArray[np.float64],
    build_s: float,
    search_s: float,
    size: int,
    threads: int,
    lists: tuple[int, int] | None = None,
) -> IndexCost:
    """The record of an index that found `found_QR` where the exact one finds `exact_QR` (positions, best first).

    `reciprocal_Q` are the `reciprocal_ranks` of what it found, `search_s` is for all queries, `size` is in bytes, `lists`
    is IVF's (nlist, nprobe).
    """
    nlist, nprobe = lists or (None, None)
    overlap = [np.isin(e[:10], f[:10]).mean() for e, f in zip(exact_QR, found_QR, strict=True)]
    return IndexCost(
        set=task.name,
        split=task.split,
        kind=kind,
        nlist=nlist,
        nprobe=nprobe,
        documents=len(task.documents),
        queries=len(task.queries),
        build_s=build_s,
        bytes=size,
        ms_per_1000_queries=1e6 * search_s / len(task.queries),
        threads=threads,
        mrr10=100 * float(np.mean(reciprocal_Q)),
        recall100=recall_at(DEPTH, found_QR, task.relevant),
        overlap10_with_flat=100 * float(np.mean(overlap)),
    )


def scores_of(cost: IndexCost) -> list[Score]:
    """MRR@10 and Recall@100 of the index, as scores."""
    common = {"task": "retrieval", "set": cost.set, "split": cost.split, "variant": "all", "n": cost.queries}
    return [
        Score.model_validate({**common, "metric": "mrr@10", "value": cost.mrr10}),
        Score.model_validate({**common, "metric": "recall@100", "value": cost.recall100}),
    ]


def retrieval_scores(
    embed: Embed, task: RetrievalSet, *, threads: int = 1
) -> tuple[list[Score], list[IndexCost], NDArray[np.float64]]:
    """Quality by the exact index, the cost of the exact and the IVF index, and the reciprocal ranks by the exact one.

    It searches on `threads` threads.
    """
    documents_ND, queries_QD = unit(embed(task.documents)), unit(embed(task.queries))
    count, width = documents_ND.shape
    depth = min(DEPTH, count)
    nlist, nprobe = ivf_setting(count)
    costs, exact, exact_reciprocal_Q = [], np.empty((0, 0), dtype=np.int64), np.empty(0)
    with faiss_threads(threads):
        for kind in ("flat", "ivf"):
            began = time.perf_counter()
            if kind == "flat":
                index: faiss.Index = faiss.IndexFlatIP(width)
            else:
                index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, nlist, faiss.METRIC_INNER_PRODUCT)
                index.nprobe = nprobe
                index.train(documents_ND)
            index.add(documents_ND)
            build = time.perf_counter() - began
            found, seconds = timed(_search, index, queries_QD, depth)
            reciprocal_Q = reciprocal_ranks(found, task.relevant)
            if kind == "flat":
                exact, exact_reciprocal_Q = found, reciprocal_Q
            cost = index_cost(
                task,
                kind,
                found,
                exact,
                reciprocal_Q=reciprocal_Q,
                build_s=build,
                search_s=seconds,
                size=faiss.serialize_index(index).nbytes,
                threads=threads,
                lists=(nlist, nprobe) if kind == "ivf" else None,
            )
            costs.append(cost)
    return scores_of(costs[0]), costs, exact_reciprocal_Q
