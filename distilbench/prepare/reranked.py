"""A reranker's scores of judged queries' passages, which `rerank` learns from.

A reranker is a cross-encoder with one output. It reads a query and a passage at once: too slow to search with, but better
than vectors at telling which passage answers. Its scores are computed once and kept.

Axes: T judged pairs, Q queries, K candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.cross_encoder import CrossEncoding, cross_encoder_outputs, save_outputs
from distilbench.prepare.nearest import load_candidates
from distilbench.prepare.prepared import SCORES
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.store import ArtifactStore

STEP_VERSION = 2
"""Part of every fingerprint: raise it when the code below changes what it computes."""


def check_reranker(folder: str | None) -> None:
    """Raise `InputError` unless the folder is a cross-encoder with one output."""
    if not folder:
        raise InputError("rerank: nothing says which reranker scores the passages; expected --cross-encoder FOLDER")
    outputs = cross_encoder_outputs(Path(folder))
    if len(outputs) != 1:
        raise InputError(
            f"--cross-encoder {folder}: it has {len(outputs)} outputs ({', '.join(outputs)}); rerank expects a reranker's one"
        )


def reranked_artifact(
    corpus: Corpus, candidates: Path, count: int, reranker: Path, store: ArtifactStore, size: PoolSize = AS_FIT
) -> Path:
    """The folder with a reranker's scores of each judged pair and of `count` candidates of its query, made if not there.

    T x (1 + K), float32, the judged passage first; NaN where a query has fewer candidates.
    """
    parts = {
        "reranker": EncoderSpec(str(reranker.absolute())).identity()["source"],
        "candidates": candidates.name,
        "count": count,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        found, judged_P2 = load_candidates(candidates), corpus.judged_P2
        rows_QK = np.asarray(found.rows_QM[:, :count])
        there_QK = rows_QK >= 0
        query_QK = np.broadcast_to(found.queries[:, None], rows_QK.shape)
        pairs_P2 = np.concatenate([judged_P2, np.column_stack([query_QK[there_QK], rows_QK[there_QK]])])
        text_of: Mapping[int, str] = {row: corpus.sentences[row] for row in np.unique(pairs_P2).tolist()}
        left, right = ([text_of[row] for row in side] for side in pairs_P2.T.tolist())

        def by_judged_pair(score_P1: NDArray[np.float32]) -> NDArray[np.float32]:
            own_T, others = np.split(score_P1[:, 0], [len(judged_P2)])
            score_QK = np.full(rows_QK.shape, np.nan, dtype=np.float32)
            score_QK[there_QK] = others
            return np.column_stack([own_T, score_QK[np.searchsorted(found.queries, judged_P2[:, 0])]])

        work = CrossEncoding(reranker.absolute(), None, left, right, folder)
        save_outputs(work, SCORES, by_judged_pair, f"Reranker's scores, {len(found.queries):,} queries", store, size)

    return store.build("reranked", parts, [SCORES], make)
