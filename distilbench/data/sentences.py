"""Sentences on disk: Arrow files with a column `text`, memory-mapped, so that a corpus need not fit in memory."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distilbench.storage.files import atomic_path
from distilbench.storage.store import ArtifactStore

TEXT = "text"
FILE = "sentences.arrow"
SENTENCES = pa.schema([(TEXT, pa.string())])
CHUNK = 8192
"""Sentences that are read or written at a time."""


@dataclass(frozen=True)
class CorpusText:
    """The sentences of a corpus, their fingerprint, and their roles where they count: what an encoding of them depends on."""

    sentences: Sequence[str]
    fingerprint: str
    roles_N: NDArray[np.int8] | None = None


def text_digest(text: str, size: int = 16) -> bytes:
    """A digest of `size` bytes: no two texts have the same of 16."""
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def text_digests(texts: Iterable[str]) -> NDArray[np.bytes_]:
    """The digests of N texts, 16 bytes each."""
    return np.array([text_digest(text) for text in texts], dtype="S16")


class SentenceFile(Sequence[str]):
    """The sentences of one or more Arrow files, one after the other, read where they are asked for.

    Pickled as the paths: a worker maps the files itself, when it first reads a sentence (on another node they may be
    elsewhere).
    """

    def __init__(self, *paths: Path) -> None:
        self.paths = paths

    @functools.cached_property
    def _chunks(self) -> list[pa.Array]:
        return [chunk for path in self.paths for chunk in read_arrow(path).column(TEXT).chunks]

    @functools.cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([len(chunk) for chunk in self._chunks], dtype=np.int64)

    def column(self) -> pa.ChunkedArray:
        """All of them; their bytes stay on disk until they are read."""
        return pa.chunked_array(self._chunks, pa.string())

    def __reduce__(self) -> tuple[type[SentenceFile], tuple[Path, ...]]:
        return SentenceFile, self.paths

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.take(np.array([index % len(self)]))[0]

    def take(self, rows: NDArray[np.int64]) -> list[str]:
        """The sentences `rows`, in any order."""
        chunk_of = np.searchsorted(self._ends, rows, side="right")
        starts = np.concatenate([[0], self._ends[:-1]])
        return [
            self._chunks[c][row].as_py()
            for c, row in zip(chunk_of.tolist(), (rows - starts[chunk_of]).tolist(), strict=True)
        ]

    def __iter__(self) -> Iterator[str]:
        for chunk in self._chunks:
            for start in range(0, len(chunk), CHUNK):
                yield from chunk[start : start + CHUNK].to_pylist()


def read_arrow(path: Path) -> pa.Table:
    """The table of an Arrow file; its bytes stay on disk until they are read."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def write_arrow(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Write batches as one Arrow file, whole or not at all; the number of rows."""
    rows = 0
    with atomic_path(path) as temporary, pa.OSFile(str(temporary), "wb") as sink:
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def in_batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    """The sentences in lists of `CHUNK`; the last may be shorter."""
    batch: list[str] = []
    for sentence in sentences:
        batch.append(sentence)
        if len(batch) == CHUNK:
            yield batch
            batch = []
    if batch:
        yield batch


def write_sentences(path: Path, sentences: Iterable[str]) -> int:
    """Write sentences as a file that `SentenceFile` reads; how many they are."""
    batches = (pa.record_batch([pa.array(batch, pa.string())], schema=SENTENCES) for batch in in_batches(sentences))
    return write_arrow(path, batches, SENTENCES)


def sentences_artifact(sentences: Sequence[str], sentences_fingerprint: str, store: ArtifactStore) -> SentenceFile:
    """The sentences as files that workers can map: themselves if they are, else an artifact, written if not there."""
    if isinstance(sentences, SentenceFile):
        return sentences

    def make(folder: Path, missing: list[str]) -> None:
        write_sentences(folder / FILE, sentences)

    return SentenceFile(store.build("sentences", {"sentences": sentences_fingerprint}, [FILE], make) / FILE)
