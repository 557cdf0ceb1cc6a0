"""Vectors that an encoder gave the same text before, for another corpus: a corpus that grows is not encoded anew."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from distilbench.data.sentences import FILE, SentenceFile
from distilbench.storage.arrays import MANIFEST, ShardedArray, shard_name
from distilbench.storage.store import ArtifactStore

KIND = "embeddings"


@dataclass(frozen=True)
class KnownVectors:
    """Of N sentences, which of `sources` has the vector of each (-1: none), and in which row."""

    sources: tuple[ShardedArray, ...]
    source_N: NDArray[np.int16]
    row_N: NDArray[np.int64]

    def unknown(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the sentences `rows` that no source has."""
        return rows[self.source_N[rows] < 0]

    def with_vectors(self, rows: NDArray[np.int64], vectors: ShardedArray) -> KnownVectors:
        """The same with the vectors of the sentences `rows`, in their order."""
        source_N, row_N = self.source_N.copy(), self.row_N.copy()
        source_N[rows], row_N[rows] = len(self.sources), np.arange(len(rows))
        return KnownVectors((*self.sources, vectors), source_N, row_N)

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """The vectors of the sentences `start` to `stop` - 1, n x D; all of them must be known."""
        source_n, row_n = self.source_N[start:stop], self.row_N[start:stop]
        out = np.empty((stop - start, self.sources[0].width), dtype=np.float32)
        for source in np.unique(source_n):
            of_it = source_n == source
            out[of_it] = self.sources[source].take(row_n[of_it])
        return out


def known_vectors(sentences: SentenceFile, parts: Mapping[str, Any], store: ArtifactStore) -> KnownVectors:
    """What the store has of `sentences` among artifacts that depend on the same `parts`, their sentences excepted.

    The largest is looked at first; another one is read only if it has sentences that those before it do not have.
    """
    sources: list[ShardedArray] = []
    source_N = np.full(len(sentences), -1, dtype=np.int16)
    row_N = np.zeros(len(sentences), dtype=np.int64)
    text = sentences.column()
    for theirs, of_theirs in _others(parts, store):
        found = pc.index_in(text, value_set=theirs.column())
        is_new_N = np.asarray(found.is_valid()) & (source_N < 0)
        if is_new_N.any() and (path := store.find(KIND, of_theirs)):
            width = np.load(path / shard_name(0), mmap_mode="r", allow_pickle=False).shape[1]
            source_N[is_new_N] = len(sources)
            row_N[is_new_N] = np.asarray(found.fill_null(0))[is_new_N]
            sources.append(ShardedArray(path, len(theirs), width, parts["shard_rows"]))
        if (source_N >= 0).all():
            break
    return KnownVectors(tuple(sources), source_N, row_N)


def _others(parts: Mapping[str, Any], store: ArtifactStore) -> Iterator[tuple[SentenceFile, dict[str, Any]]]:
    """Sentences and parts of finished artifacts whose parts differ in their sentences alone, the largest first."""
    found: list[tuple[int, dict[str, Any]]] = []
    for manifest in store.root.glob(f"{KIND}-*/{MANIFEST}"):
        try:
            described = json.loads(manifest.read_text())
            theirs, shards = dict(described["parts"]), len(described["shards"])
        except (OSError, ValueError, LookupError, TypeError):
            continue  # another process takes it away, or it is damaged: `ArtifactStore.find` says so to whom it concerns
        if theirs != parts and theirs | {"sentences": parts["sentences"]} == parts:
            found.append((shards, theirs))
    for _, theirs in sorted(found, key=lambda one: (-one[0], one[1]["sentences"])):
        path: Path | None = store.find("sentences", {"sentences": theirs["sentences"]})
        if path is not None:
            yield SentenceFile(path / FILE), theirs
