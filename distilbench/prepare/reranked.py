"""A reranker's scores of judged queries' passages, which `rerank` learns from.

A reranker is a cross-encoder with one output. It reads a query and a passage at once: too slow to search with, but better
than vectors at telling which passage answers. Its scores are computed once and kept.

Axes: T judged pairs, Q queries, K candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from distilbench.cluster.nodes import gpus_elsewhere
from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.errors import InputError
from distilbench.prepare.cross_encoder import SHARD_PAIRS, CrossEncoding, cross_encoder_outputs
from distilbench.prepare.nearest import RERANKED, load_candidates
from distilbench.prepare.pool import run_pool
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.arrays import ShardedArray, save_array
from distilbench.storage.store import ArtifactStore

STEP_VERSION = 1
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
    """The folder with a reranker's scores of the judged pairs and of `count` candidates of each query, made if not there."""
    parts = {
        "reranker": EncoderSpec(str(reranker.absolute())).identity()["source"],
        "candidates": candidates.name,
        "count": count,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        found = load_candidates(candidates)
        rows_QK = np.asarray(found.rows_QM[:, :count])
        there_QK = rows_QK >= 0
        of_candidates = np.column_stack(
            [np.broadcast_to(found.queries[:, None], rows_QK.shape)[there_QK], rows_QK[there_QK]]
        )
        pairs_P2 = np.concatenate([corpus.judged_P2, of_candidates])
        text_of: Mapping[int, str] = {row: corpus.sentences[row] for row in np.unique(pairs_P2).tolist()}
        left, right = ([text_of[row] for row in side] for side in pairs_P2.T.tolist())
        work = CrossEncoding(reranker.absolute(), None, left, right, folder)
        gpu = default_device() == "cuda" or gpus_elsewhere(size.grow_to)
        label = f"Reranker's scores, {len(found.queries):,} queries"
        run_pool(work, work.missing(len(left), SHARD_PAIRS), label, size=size, gpu=gpu, store=store)
        score_P = ShardedArray.open(folder, len(left), SHARD_PAIRS).block(0, len(left))[:, 0]
        score_QK = np.full(rows_QK.shape, np.nan, dtype=np.float32)
        score_QK[there_QK] = score_P[len(corpus.judged_P2) :]
        for name, array in zip(RERANKED, (score_P[: len(corpus.judged_P2)], score_QK), strict=True):
            save_array(folder / name, array)
        for path in folder.glob("shard-*.npy"):
            path.unlink()

    return store.build("reranked", parts, RERANKED, make)
