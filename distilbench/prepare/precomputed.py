"""The vectors of a corpus's sentences out of those that were given as the teacher's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from distilbench.data.sentences import CorpusText
from distilbench.data.vector_file import SHARD_ROWS, GivenVectors
from distilbench.errors import InputError
from distilbench.storage.arrays import ShardedArray, save_array, shard_name, shard_ranges
from distilbench.storage.store import ArtifactStore

STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it writes."""


def corpus_vectors(text: CorpusText, given: GivenVectors, store: ArtifactStore) -> ShardedArray:
    """The given vectors of the sentences, a row each in their order, in the store."""
    parts = {"given": given.vectors.folder.name, "sentences": text.fingerprint, "step_version": STEP_VERSION}
    ranges = shard_ranges(len(text.sentences), SHARD_ROWS)

    def make(folder: Path, missing: list[str]) -> None:
        for shard, (start, stop) in enumerate(ranges):
            if shard_name(shard) not in missing:
                continue
            texts = text.sentences[start:stop]
            places = given.places(texts)
            if (places < 0).any():
                raise InputError(f"--teacher-vectors: no vector of {texts[int((places < 0).argmax())]!r:.120}")
            save_array(folder / shard_name(shard), given.vectors.take(places).astype(np.float16))

    folder = store.build("embeddings", parts, [shard_name(i) for i, _ in enumerate(ranges)], make)
    return ShardedArray(folder, len(text.sentences), given.vectors.width, SHARD_ROWS)
