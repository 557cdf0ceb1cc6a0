"""Candidates for hard negatives: of each judged query the nearest passages by the teacher, and the best by BM25.

Axes: Q distinct queries, M candidates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, Rows
from distilbench.data.sentences import text_digest
from distilbench.prepare.nearest import BLOCK, nearest_documents
from distilbench.storage.arrays import ShardedArray, array_sha256, save_array
from distilbench.storage.store import ArtifactStore

MINED = 64
"""Candidates of each kind for a query."""
BM25 = "bm25"
QUERIES = "queries.npy"
STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it writes."""


@dataclass(frozen=True)
class Candidates:
    """Of each of the distinct `queries` (rising rows) passages that are not known to answer it, the best first.

    By the teacher's cosine, and by BM25 where that was asked for; -1 fills a row that has fewer. `cosine` is always the
    teacher's.
    """

    queries: Rows
    teacher_QM: Rows
    teacher_cosine_QM: NDArray[np.float32]
    bm25_QM: Rows | None = None
    bm25_cosine_QM: NDArray[np.float32] | None = None


def load_candidates(folder: Path) -> Candidates:
    """The candidates of an artifact folder, memory-mapped."""
    names = [QUERIES, *_files("teacher"), *(_files(BM25) if (folder / _files(BM25)[0]).exists() else ())]
    return Candidates(*(np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in names))


def negatives_artifact(corpus: Corpus, vectors: ShardedArray, by: Sequence[str], store: ArtifactStore) -> Path | None:
    """The folder with the candidates of a corpus's judged queries, made if not there; None without judgements.

    `by` says what finds them: with "bm25" or "both" BM25 too. A passage with the text of the query is no candidate.
    """
    if not len(corpus.judged_P2) or not by:
        return None
    with_bm25 = bool({BM25, "both"} & set(by))
    parts = {
        "vectors": vectors.folder.name,
        "sentences": corpus.sentences_fingerprint,
        "rows": [array_sha256(corpus.judged_P2), array_sha256(corpus.passages)],
        "bm25": with_bm25,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        queries = np.unique(corpus.judged_P2[:, 0])
        kinds = {"teacher": corpus.passages[nearest_documents(vectors.take, queries, corpus.passages, MINED)]}
        if with_bm25:
            asked, texts = ([corpus.sentences[int(row)] for row in rows] for rows in (queries, corpus.passages))
            kinds[BM25] = best_by_words(asked, texts, corpus.passages)
        for kind, rows_QM in kinds.items():
            candidates_QM, (rows_file, cosine_file) = _without_answers(corpus, queries, rows_QM), _files(kind)
            save_array(folder / rows_file, candidates_QM)
            save_array(folder / cosine_file, _cosines(vectors, queries, candidates_QM))
        save_array(folder / QUERIES, queries)

    names = [QUERIES, *_files("teacher"), *(_files(BM25) if with_bm25 else ())]
    return store.build("negatives", parts, names, make)


def best_by_words(queries: Sequence[str], texts: Sequence[str], passages: Rows, count: int = MINED) -> Rows:
    """The rows of the passages that BM25 ranks first for each query, Q x M; -1 where no more share a word with it.

    Words are those of two or more letters or digits, lower-cased, in any language that separates them.
    """
    import bm25s

    quiet = {"show_progress": False}
    index = bm25s.BM25(backend="numpy")
    try:
        with np.errstate(invalid="ignore"):  # the mean length of passages without a word
            index.index(bm25s.tokenize(list(texts), stopwords=None, **quiet), **quiet)
    except ValueError:  # no word in any passage
        return np.full((len(queries), 1), -1, dtype=np.int64)
    asked = bm25s.tokenize(list(queries), stopwords=None, **quiet)
    found_QM, score_QM = index.retrieve(asked, k=min(count, len(texts)), n_threads=1, **quiet)
    return np.where(score_QM > 0, passages[found_QM], -1)


def _without_answers(corpus: Corpus, queries: Rows, rows_QM: Rows) -> Rows:
    """The candidates with -1, at the end, in place of a query's relevant passages and of any with the text of the query."""
    digest_of = {row: text_digest(corpus.sentences[row].strip()) for row in corpus.passages.tolist()}
    answers: dict[int, set[int]] = defaultdict(set)
    for query, passage in corpus.judged_P2.tolist():
        answers[query].add(passage)
    kept_QM = rows_QM.copy()
    for q, (query, rows) in enumerate(zip(queries.tolist(), rows_QM.tolist(), strict=True)):
        known, own = answers[query], text_digest(corpus.sentences[query].strip())
        kept_QM[q] = [-1 if r < 0 or r in known or digest_of[r] == own else r for r in rows]
    return np.take_along_axis(kept_QM, np.argsort(kept_QM < 0, axis=1, kind="stable"), axis=1)


def _cosines(vectors: ShardedArray, queries: Rows, rows_QM: Rows) -> NDArray[np.float32]:
    """The teacher's cosines of queries and candidates; 0 where there is none."""
    out = np.zeros(rows_QM.shape, dtype=np.float32)
    step = max(1, BLOCK // rows_QM.shape[1])
    for start in range(0, len(queries), step):
        part = rows_QM[start : start + step]
        asked_QD, found_QMD = vectors.take(queries[start : start + step]), vectors.take(np.maximum(part, 0).ravel())
        faiss.normalize_L2(asked_QD)
        faiss.normalize_L2(found_QMD)
        cosine = np.einsum("qd,qmd->qm", asked_QD, found_QMD.reshape(*part.shape, -1))
        out[start : start + step] = np.where(part < 0, 0, cosine)
    return out


def _files(kind: str) -> tuple[str, str]:
    return f"{kind}.npy", f"{kind}-cosine.npy"
