"""Vectors that an encoder gave the same text before, for another corpus: a corpus that grows is not encoded anew."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from distilbench.data.sentences import FILE, SentenceFile
from distilbench.storage.arrays import MANIFEST, ShardedArray, shard_name
from distilbench.storage.store import ArtifactStore

KIND = "embeddings"


def known_vectors(
    sentences: SentenceFile, parts: Mapping[str, Any], store: ArtifactStore
) -> tuple[ShardedArray, NDArray[np.int64]] | None:
    """The artifact that has the most of N `sentences`, and the row of each in it (-1: it has not that one).

    It depends on the same `parts`, its sentences excepted. None if the store has no such artifact.
    """
    text, most, best = sentences.column(), 0, None
    for theirs, their_parts in _others(parts, store):
        found = pc.index_in(text, value_set=theirs.column())
        if len(found) - found.null_count > most:
            most, best = len(found) - found.null_count, (their_parts, len(theirs), found)
    if best is None or (path := store.find(KIND, best[0])) is None:
        return None
    width = np.load(path / shard_name(0), mmap_mode="r", allow_pickle=False).shape[1]
    row_N = np.asarray(best[2].fill_null(-1)).astype(np.int64)
    return ShardedArray(path, best[1], width, parts["shard_rows"]), row_N


def _others(parts: Mapping[str, Any], store: ArtifactStore) -> Iterator[tuple[SentenceFile, dict[str, Any]]]:
    """Sentences and parts of finished artifacts whose parts differ in their sentences alone, in a fixed order."""
    for manifest in sorted(store.root.glob(f"{KIND}-*/{MANIFEST}")):
        try:
            theirs = dict(json.loads(manifest.read_text())["parts"])
        except (OSError, ValueError, LookupError, TypeError):
            continue  # another process takes it away, or it is damaged: `ArtifactStore.find` says so to whom it concerns
        if theirs != parts and theirs | {"sentences": parts["sentences"]} == parts:
            path = store.find("sentences", {"sentences": theirs["sentences"]})
            if path is not None:
                yield SentenceFile(path / FILE), theirs
