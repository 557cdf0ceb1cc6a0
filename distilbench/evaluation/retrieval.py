"""What every search with FAISS shares: unit vectors, depth, threads, timing, and how many lists IVF has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

DEPTH = 100
REPEATS = 3
"""Searches timed at most; the fastest counts."""
ENOUGH_S = 2.0
"""After so many seconds of searches no more of them are timed: what takes long is not disturbed as a whole."""
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


@contextmanager
def faiss_threads(threads: int) -> Iterator[None]:
    """FAISS works on `threads` threads within the block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextmanager
def quick_clustering() -> Iterator[None]:
    """FAISS compares few narrow vectors with centroids by matrix products within the block.

    Left alone, FAISS 1.15 does so from 128,000 numbers on (20,000 vectors of 7 dimensions), and below them pair by pair,
    which takes ten times as long.
    """
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


def timed(search: Callable[..., NDArray[np.int64]], *arguments: Any) -> tuple[NDArray[np.int64], float]:
    """What `search(*arguments)` finds, and the seconds of its fastest run."""
    seconds = []
    positions = np.empty((0, 0), dtype=np.int64)
    for _ in range(REPEATS):
        began = time.perf_counter()
        positions = search(*arguments)
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > ENOUGH_S:
            break
    return positions, min(seconds)
