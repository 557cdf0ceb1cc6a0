"""The nearest sentences by the teacher: others of each, which make a batch hard, and documents of each query, among which
the hard negatives of judged queries are.

Axes: N sentences, Q queries, D dimensions, K neighbours, M candidates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, Rows
from distilbench.data.sentences import text_digest
from distilbench.evaluation.sts import Embed
from distilbench.storage.arrays import ShardedArray, array_sha256, load_array, save_array
from distilbench.storage.store import ArtifactStore

NEAREST = "nearest.npy"
STEP_VERSION = 1
EXACT = 20_000
"""Up to so many sentences each is compared with every other."""
PROBED = 8
"""Of the inverted file's lists beyond that: in 50,000 sentences 93 % of the first 31 neighbours are found, in seconds."""
FITTED = 64
"""Sentences for each list that its centroid is fitted on."""
BLOCK = 16_384
"""Documents in memory at a time."""
MINED = 64
"""Candidates for the hard negatives of a query."""
CANDIDATES = ("queries.npy", "rows.npy", "cosine.npy")


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


def nearest_documents(
    vectors_of: Embed, queries: Rows, documents: Rows, count: int
) -> tuple[Rows, NDArray[np.float32]]:
    """The positions in `documents` of the `count` nearest to each query by cosine, Q x K, read block by block, and these
    cosines."""
    queries_QD = vectors_of(queries)
    faiss.normalize_L2(queries_QD)
    best = faiss.ResultHeap(len(queries), min(count, len(documents)), keep_max=True)
    for start in range(0, len(documents), BLOCK):
        block_ND = vectors_of(documents[start : start + BLOCK])
        faiss.normalize_L2(block_ND)
        cosine_QK, found_QK = faiss.knn(queries_QD, block_ND, min(best.k, len(block_ND)), faiss.METRIC_INNER_PRODUCT)
        best.add_result(cosine_QK, found_QK + start)
    best.finalize()
    return np.asarray(best.I), np.asarray(best.D)


def nearest_artifact(vectors: ShardedArray, train: NDArray[np.int64], count: int, store: ArtifactStore) -> Path:
    """The folder with the `count` nearest others of each training sentence (N x K int32), found if it is not there.

    They are named by their place among the training sentences. It takes 35 s of a core for 120,000 sentences: all trials
    read what was found once.
    """
    rows = array_sha256(train)
    parts = {"vectors": vectors.folder.name, "rows": rows, "count": count, "step_version": STEP_VERSION}

    def make(folder: Path, missing: list[str]) -> None:
        found_NK = nearest_others(np.asarray(vectors.take(train), dtype=np.float32), count)
        save_array(folder / NEAREST, found_NK.astype(np.int32))

    return store.build("nearest", parts, [NEAREST], make)


@dataclass(frozen=True)
class Candidates:
    """Of each of the distinct judged `queries` (rising rows) passages that are not known to answer it, the nearest first,
    then -1 where there are fewer."""

    queries: Rows
    rows_QM: Rows
    cosine_QM: NDArray[np.float32]


def load_candidates(folder: Path) -> Candidates:
    """The candidates of an artifact folder, memory-mapped."""
    return Candidates(*(load_array(folder / name) for name in CANDIDATES))


def candidates_artifact(corpus: Corpus, vectors: ShardedArray, store: ArtifactStore) -> Path | None:
    """The folder with the candidates of a corpus's judged queries (none has the text of the query), made if not there; None
    without judgements."""
    if not len(corpus.judged_P2):
        return None
    parts = {
        "vectors": vectors.folder.name,
        "sentences": corpus.sentences_fingerprint,
        "rows": [array_sha256(corpus.judged_P2), array_sha256(corpus.passages)],
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        queries = np.unique(corpus.judged_P2[:, 0])
        found_QM, cosine_QM = nearest_documents(vectors.take, queries, corpus.passages, MINED)
        rows_QM = corpus.passages[found_QM]
        answers_QM = _are_answers(corpus, queries, rows_QM)
        order_QM = np.argsort(answers_QM, axis=1, kind="stable")
        rows_QM = np.take_along_axis(np.where(answers_QM, -1, rows_QM), order_QM, axis=1)
        cosine_QM = np.take_along_axis(np.where(answers_QM, 0, cosine_QM), order_QM, axis=1)
        arrays: list[NDArray[Any]] = [queries, rows_QM, cosine_QM]
        for name, array in zip(CANDIDATES, arrays, strict=True):
            save_array(folder / name, array)

    return store.build("negatives", parts, CANDIDATES, make)


def _are_answers(corpus: Corpus, queries: Rows, rows_QM: Rows) -> NDArray[np.bool_]:
    digest_of = {row: text_digest(corpus.sentences[row].strip()) for row in corpus.passages.tolist()}
    answers: dict[int, set[int]] = defaultdict(set)
    for query, passage in corpus.judged_P2.tolist():
        answers[query].add(passage)
    are_QM = np.zeros(rows_QM.shape, dtype=bool)
    for q, (query, rows) in enumerate(zip(queries.tolist(), rows_QM.tolist(), strict=True)):
        own = text_digest(corpus.sentences[query].strip())
        are_QM[q] = [r in answers[query] or digest_of[r] == own for r in rows]
    return are_QM
