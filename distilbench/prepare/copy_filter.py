"""How far the augmented copies are from their sources for the teacher, and the filter by that cosine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus
from distilbench.storage.arrays import ShardedArray, array_sha256, save_array
from distilbench.storage.store import ArtifactStore

CHUNK = 8192
STEP_VERSION = 1
FILE = "cosine.npy"
PERCENTILES = (5, 50, 95)


def copy_cosines(corpus: Corpus, vectors: ShardedArray, store: ArtifactStore) -> NDArray[np.float32]:
    """The teacher's cosine of each copy to its source, in the order of `corpus.copies`."""
    copies = corpus.copies
    parts = {
        "vectors": vectors.folder.name,
        "rows": [array_sha256(copies.rows), array_sha256(copies.source)],
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        cosine = np.empty(len(copies.rows), dtype=np.float32)
        for start in range(0, len(cosine), CHUNK):
            part = slice(start, start + CHUNK)
            copy, source = vectors.take(copies.rows[part]), vectors.take(copies.source[part])
            lengths = np.linalg.norm(copy, axis=1) * np.linalg.norm(source, axis=1)
            cosine[part] = np.einsum("nd,nd->n", copy, source) / np.maximum(lengths, 1e-12)
        save_array(folder / FILE, cosine)

    return np.load(store.build("cosines", parts, [FILE], make) / FILE, allow_pickle=False)


def filtered(corpus: Corpus, cosine: NDArray[np.float32], least: float | None) -> Corpus:
    """`corpus` with the copies whose cosine to the source is `least` or more (None: all), and a line per operation.

    The sentences of the others stay in the corpus, so that another threshold needs no other embeddings.
    """
    copies = corpus.copies
    keep = np.ones(len(cosine), dtype=bool) if least is None else cosine >= least
    lines = []
    for number, name in enumerate(copies.names):
        mine = copies.operation == number
        if mine.any():
            low, middle, high = np.percentile(cosine[mine], PERCENTILES)
            line = f"{name}: teacher's cosine to the source {low:.2f} / {middle:.2f} / {high:.2f} (5 %, median, 95 %)"
            if least is not None:
                line += f"; {(mine & ~keep).sum():,} of {mine.sum():,} below {least:g} left out"
            lines.append(line)
    near_copies = replace(copies, rows=copies.rows[keep], source=copies.source[keep], operation=copies.operation[keep])
    return replace(corpus, copies=near_copies, found=(*corpus.found, *lines))
