"""Retrieval with FAISS: MRR@10 and Recall@100 of the exact index and of IVF, with what each costs."""

from __future__ import annotations

import time

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


def mrr_at_10(found_QR: NDArray[np.int64], relevant: tuple[NDArray[np.int64], ...]) -> float:
    """Mean over queries of 1 / rank of the first relevant document within the first 10 (0 when none), x 100."""
    gains = []
    for found, wanted in zip(found_QR, relevant, strict=True):
        hits = np.flatnonzero(np.isin(found[:10], wanted))
        gains.append(1 / (hits[0] + 1) if len(hits) else 0.0)
    return 100 * float(np.mean(gains))


def recall_at(k: int, found_QR: NDArray[np.int64], relevant: tuple[NDArray[np.int64], ...]) -> float:
    """Mean share of a query's relevant documents within the first k, x 100."""
    shares = [np.isin(w, f[:k]).mean() for f, w in zip(found_QR, relevant, strict=True)]
    return 100 * float(np.mean(shares))


def _search(index: faiss.Index, queries_QD: NDArray[np.float32], depth: int) -> tuple[NDArray[np.int64], float]:
    seconds = []
    found = np.empty((0, 0), dtype=np.int64)
    for _ in range(REPEATS):
        began = time.perf_counter()
        _, found = index.search(queries_QD, depth)
        seconds.append(time.perf_counter() - began)
    return found, min(seconds)


def retrieval_scores(embed: Embed, task: RetrievalSet, *, threads: int = 1) -> tuple[list[Score], list[IndexCost]]:
    """Quality by the exact index, and the cost of the exact and the IVF index; searching on `threads` threads."""
    documents_ND, queries_QD = unit(embed(task.documents)), unit(embed(task.queries))
    count, width = documents_ND.shape
    depth = min(DEPTH, count)
    nlist, nprobe = ivf_setting(count)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        costs, exact = [], np.empty((0, 0), dtype=np.int64)
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
            found, seconds = _search(index, queries_QD, depth)
            exact = found if kind == "flat" else exact
            overlap = [np.isin(e[:10], f[:10]).mean() for e, f in zip(exact, found, strict=True)]
            costs.append(
                IndexCost(
                    set=task.name,
                    split=task.split,
                    kind=kind,
                    nlist=nlist if kind == "ivf" else None,
                    nprobe=nprobe if kind == "ivf" else None,
                    documents=count,
                    queries=len(queries_QD),
                    build_s=build,
                    bytes=faiss.serialize_index(index).nbytes,
                    ms_per_1000_queries=1e6 * seconds / len(queries_QD),
                    threads=threads,
                    mrr10=mrr_at_10(found, task.relevant),
                    recall100=recall_at(DEPTH, found, task.relevant),
                    overlap10_with_flat=100 * float(np.mean(overlap)),
                )
            )
    finally:
        faiss.omp_set_num_threads(before)
    flat = costs[0]
    common = {"task": "retrieval", "set": task.name, "split": task.split, "variant": "all", "n": flat.queries}
    return [
        Score.model_validate({**common, "metric": "mrr@10", "value": flat.mrr10}),
        Score.model_validate({**common, "metric": "recall@100", "value": flat.recall100}),
    ], costs
