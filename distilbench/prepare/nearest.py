"""The nearest sentences by the teacher: others of each, which make a batch hard, and documents of each query.

Axes: N sentences, Q queries, D dimensions, K neighbours.
"""

from __future__ import annotations

import math
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Rows
from distilbench.evaluation.sts import Embed
from distilbench.storage.arrays import ShardedArray, array_sha256, save_array
from distilbench.storage.store import ArtifactStore

FILE = "nearest.npy"
STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it finds."""
EXACT = 20_000
"""Up to so many sentences each is compared with every other."""
PROBED = 8
"""Of the inverted file's lists beyond that: in 50,000 sentences 93 % of the first 31 neighbours are found, in seconds."""
FITTED = 64
"""Sentences for each list that its centroid is fitted on."""
BLOCK = 16_384
"""Documents in memory at a time."""


def nearest_others(vectors_ND: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The rows of the `count` others of the highest cosine to each, N x K, the nearest first.

    Among more than `EXACT` sentences they are looked for in an inverted file, and some are missed; a row that lacks
    neighbours there repeats itself.
    """
    n, width = vectors_ND.shape
    if not 0 < count < n:
        raise ValueError(f"{count} neighbours of {n} sentences, expected 1 to {n - 1}")
    unit_ND = np.ascontiguousarray(vectors_ND, dtype=np.float32)
    unit_ND = unit_ND / np.maximum(np.linalg.norm(unit_ND, axis=1, keepdims=True), 1e-12)
    index: faiss.Index = faiss.IndexFlatIP(width)
    if n > EXACT:
        lists = math.isqrt(n)
        index = faiss.IndexIVFFlat(index, width, lists, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = PROBED
        index.train(unit_ND[np.random.default_rng(0).permutation(n)[: FITTED * lists]])
    index.add(unit_ND)
    _, found_NK = index.search(unit_ND, count + 1)
    itself_N = np.arange(n)[:, None]
    # A duplicate may come before the sentence itself, which is put last and left out.
    order_NK = np.argsort(found_NK == itself_N, axis=1, kind="stable")
    others_NK = np.take_along_axis(found_NK, order_NK, axis=1)[:, :count]
    return np.where(others_NK < 0, itself_N, others_NK)


def nearest_documents(vectors_of: Embed, queries: Rows, documents: Rows, count: int) -> Rows:
    """The positions in `documents` of the `count` nearest to each query by cosine, Q x K, read block by block."""
    queries_QD = vectors_of(queries)
    faiss.normalize_L2(queries_QD)
    best = faiss.ResultHeap(len(queries), min(count, len(documents)), keep_max=True)
    for start in range(0, len(documents), BLOCK):
        block_ND = vectors_of(documents[start : start + BLOCK])
        faiss.normalize_L2(block_ND)
        cosine_QK, found_QK = faiss.knn(queries_QD, block_ND, min(best.k, len(block_ND)), faiss.METRIC_INNER_PRODUCT)
        best.add_result(cosine_QK, found_QK + start)
    best.finalize()
    return np.asarray(best.I)


def nearest_artifact(vectors: ShardedArray, train: NDArray[np.int64], count: int, store: ArtifactStore) -> Path:
    """The folder with the `count` nearest others of each training sentence, found if it is not there.

    They are named by their place among the training sentences. It takes 35 s of a core for 120,000 sentences: all trials
    read what was found once.
    """
    parts = {
        "vectors": vectors.folder.name,
        "rows": array_sha256(train),
        "count": count,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        found_NK = nearest_others(np.asarray(vectors.take(train), dtype=np.float32), count)
        save_array(folder / FILE, found_NK.astype(np.int32))

    return store.build("nearest", parts, [FILE], make)


def load_nearest(folder: Path) -> NDArray[np.int32]:
    """What an artifact folder has, N x K, memory-mapped."""
    found_NK: NDArray[np.int32] = np.load(folder / FILE, mmap_mode="r", allow_pickle=False)
    return found_NK
