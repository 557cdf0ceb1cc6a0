"""A teacher's vectors in a Parquet file, such as those of an API: checked once, and found again by their text.

The file has a column `text` of strings and a column `vector` of lists of numbers. It is streamed: in memory are 24 bytes for
each row, and a block of rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, PairTask, Rows
from distilbench.data.readers import check_once, opened_parquet, sentence, unreadable
from distilbench.data.sentences import TEXT, CorpusText, text_digests
from distilbench.errors import InputError
from distilbench.storage.arrays import ShardedArray, load_array, save_array, shard_name, shard_ranges
from distilbench.storage.files import file_sha256
from distilbench.storage.store import ArtifactStore

SHARD_ROWS = 8192
VECTOR_COLUMNS = ("vector", "embedding", "embeddings", "vectors")
"""The first of these that a file has holds its vectors."""
EXPECTED = "expected NAME.parquet with the columns text and vector"
LEAST_NORM = 1e-12
DIGESTS, ORDER = "digests.npy", "order.npy"
STEP_VERSION = 2


@dataclass(frozen=True)
class VectorFile:
    """A Parquet file with vectors, and the column of their texts."""

    path: Path
    column: str = TEXT

    def identity(self) -> dict[str, str]:
        """The SHA-256 of what is read."""
        return {self.path.name: file_sha256(self.path), "column": self.column}

    def shape(self) -> tuple[int, int]:
        """Rows and dimensions, by the file's header and its first row."""
        with opened_parquet(self.path) as file:
            rows = int(file.metadata.num_rows)
        first = next(self.blocks(1), None)
        if first is None:
            raise InputError(f"{self.path}: no row in it; {EXPECTED}")
        return rows, first[1].shape[1]

    def blocks(self, size: int) -> Iterator[tuple[list[Any], NDArray[np.float32]]]:
        """Texts and vectors of up to `size` rows at a time, all vectors as wide as the first."""
        start, width = 0, 0
        with opened_parquet(self.path) as file:
            columns = [self.column, _vector_column(self.path, file.schema_arrow)]
            if self.column not in file.schema_arrow.names:
                raise InputError(f"{self.path}: no column {self.column!r}; the columns are {file.schema_arrow.names}")
            check_once(self.path, columns, file.schema_arrow.names)
            try:
                for batch in file.iter_batches(size, columns=columns):
                    vectors_ND = _matrix(self.path, batch.column(columns[1]), start, width)
                    width = vectors_ND.shape[1]
                    yield batch.column(columns[0]).to_pylist(), vectors_ND
                    start += len(vectors_ND)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise unreadable(self.path, start, error) from None


def vector_file(path: Path, column: str = TEXT) -> VectorFile:
    """The file of vectors at `path`, whose texts are in `column`."""
    if not path.is_file():
        raise InputError(f"--teacher-vectors {path}: no such file; {EXPECTED}")
    if path.suffix != ".parquet":
        raise InputError(f"--teacher-vectors {path}: the format is not known by the file's name; {EXPECTED}")
    with opened_parquet(path) as file:
        _vector_column(path, file.schema_arrow)
    return VectorFile(path, column)


@dataclass(frozen=True)
class GivenVectors:
    """The vectors of a file, checked and in the store; `digests_N` of the texts are sorted, `order_N` are their rows."""

    vectors: ShardedArray
    digests_N: NDArray[np.bytes_]
    order_N: NDArray[np.int64]

    def places(self, sentences: Sequence[str]) -> NDArray[np.int64]:
        """The row of each sentence, or -1 where it is not in the file; blanks at the ends do not count."""
        asked_N = text_digests([sentence.strip() for sentence in sentences])
        places = np.minimum(np.searchsorted(self.digests_N, asked_N), len(self.digests_N) - 1)
        return np.where(self.digests_N[places] == asked_N, self.order_N[places], -1)

    def of_sentences(self, text: CorpusText, store: ArtifactStore) -> ShardedArray:
        """A row for each sentence of a corpus, in the store; of those that have no vector, zeros."""
        parts = {"given": self.vectors.folder.name, "sentences": text.fingerprint, "step_version": STEP_VERSION}
        ranges = shard_ranges(len(text.sentences), SHARD_ROWS)

        def make(folder: Path, missing: list[str]) -> None:
            for shard, (start, stop) in enumerate(ranges):
                if shard_name(shard) in missing:
                    places_N = self.places(text.sentences[start:stop])
                    vectors_ND = np.zeros((stop - start, self.vectors.width), dtype=np.float16)
                    vectors_ND[places_N >= 0] = self.vectors.take(places_N[places_N >= 0])
                    save_array(folder / shard_name(shard), vectors_ND)

        folder = store.build("embeddings", parts, [shard_name(i) for i, _ in enumerate(ranges)], make)
        return ShardedArray(folder, len(text.sentences), self.vectors.width, SHARD_ROWS)


def given_vectors(file: VectorFile, store: ArtifactStore) -> GivenVectors:
    """The vectors of a file, copied into the store once; every row is checked."""
    rows, width = file.shape()
    shards = [shard_name(i) for i, _ in enumerate(shard_ranges(rows, SHARD_ROWS))]

    def make(folder: Path, missing: list[str]) -> None:
        digests = list[NDArray[np.bytes_]]()
        # Batches are whole over the boundaries of row groups: each is a shard.
        for shard, (texts, vectors_ND) in enumerate(file.blocks(SHARD_ROWS)):
            start = shard * SHARD_ROWS
            digests.append(
                text_digests([sentence(file.path, start + i, file.column, text) for i, text in enumerate(texts, 1)])
            )
            save_array(folder / shard_name(shard), _in_float16(file, vectors_ND, start))
        digest_N = np.concatenate(digests)
        order_N = np.argsort(digest_N, kind="stable")
        _check_once(file, digest_N[order_N], order_N)
        save_array(folder / ORDER, order_N)
        save_array(folder / DIGESTS, digest_N[order_N])

    parts = {"file": file.identity(), "step_version": STEP_VERSION}
    folder = store.build("teacher-vectors", parts, [*shards, ORDER, DIGESTS], make)
    vectors = ShardedArray(folder, rows, width, SHARD_ROWS)
    return GivenVectors(vectors, load_array(folder / DIGESTS), load_array(folder / ORDER))


def restrict_to_vectors(corpus: Corpus, known_N: NDArray[np.bool_], source: str, named: Rows) -> Corpus:
    """`corpus` with the sets, pairs and training sentences of which `source` has every vector; `known_N` says it by row.

    Rows keep their numbers. What is left out is told. `named` are training rows that the user asked for (`--text`): each
    must have a vector.
    """
    missing: list[str] = []

    def is_whole(name: str, columns: Iterable[Rows]) -> bool:
        rows = np.unique(np.concatenate([*columns]))
        unknown = rows[~known_N[rows]]
        if len(unknown):
            counted = f"{len(unknown):,} of its {len(rows):,} texts have no vector in {source}"
            missing.append(f"{name}: {counted}, such as {corpus.quoted(int(unknown[0]))}")
        return not len(unknown)

    def whole_tasks(tasks: tuple[PairTask, ...]) -> tuple[PairTask, ...]:
        return tuple(task for task in tasks if is_whole(f"pair task {task.name}", task.columns))

    unnamed = named[~known_N[named]]
    if len(unnamed):
        raise InputError(
            f"{source}: no vector of {corpus.sentences[int(unnamed[0])]!r:.120} of --text ({len(unnamed):,} of "
            f"{len(named):,} sentences have none); expected one of each: leave --text out to train on the texts of the file"
        )
    kept = corpus.without_training(np.flatnonzero(~known_N))
    without = len(corpus.train) - len(kept.train)
    if not len(kept.train):
        raise InputError(f"{source}: no vector of any of {without:,} training sentences; expected some")
    left_out = f"; {without:,} sentences without a vector left out" if without else ""
    return replace(
        kept,
        passages=corpus.passages[known_N[corpus.passages]],
        sts=tuple(s for s in corpus.sts if is_whole(f"{s.name} ({s.split})", s.columns)),
        retrieval=tuple(t for t in corpus.retrieval if is_whole(f"{t.name} retrieval, {t.split}", t.columns)),
        classification=tuple(s for s in corpus.classification if is_whole(f"classification {s.name}", s.columns)),
        pair_tasks=whole_tasks(corpus.pair_tasks),
        probed=whole_tasks(corpus.probed),
        found=(*corpus.found, f"{source}: vectors of {int(known_N.sum()):,} of {len(known_N):,} texts{left_out}"),
        missing=(*corpus.missing, *missing),
    )


def _in_float16(file: VectorFile, vectors_ND: NDArray[np.float32], start: int) -> NDArray[np.float16]:
    """The vectors as they are kept; each has a direction then."""
    with np.errstate(over="ignore"):
        stored_ND = vectors_ND.astype(np.float16)
    norm_N = np.linalg.norm(stored_ND.astype(np.float32), axis=1)
    for row in np.flatnonzero(~((norm_N > LEAST_NORM) & np.isfinite(norm_N)))[:1]:
        strange = vectors_ND[row][~np.isfinite(stored_ND[row])]
        what = f"{strange[0]} is in it (float16 ends at 65,504)" if len(strange) else "it is zero"
        raise InputError(
            f"{file.path}, row {start + row + 1}: the vector has no direction: {what}; expected {vectors_ND.shape[1]} "
            "finite numbers, not all 0"
        )
    return stored_ND


def _check_once(file: VectorFile, sorted_N: NDArray[np.bytes_], order_N: NDArray[np.int64]) -> None:
    again = np.flatnonzero(sorted_N[1:] == sorted_N[:-1])
    if len(again):
        first, second = int(order_N[again[0]]), int(order_N[again[0] + 1])
        texts = (text for block, _ in file.blocks(SHARD_ROWS) for text in block)
        text = next(itertools.islice(texts, first, None))
        raise InputError(
            f"{file.path}, row {second + 1}: text {text!r:.80} is there already, in row {first + 1}; expected each text once"
        )


def _vector_column(path: Path, schema: Any) -> str:
    name = next((name for name in VECTOR_COLUMNS if name in schema.names), None)
    if name is None:
        raise InputError(f"{path}: no column {VECTOR_COLUMNS[0]!r}; the columns are {schema.names}; {EXPECTED}")
    check_once(path, (name,), schema.names)
    kind = schema.field(name).type
    value = getattr(kind, "value_type", pa.null()) if pa.types.is_nested(kind) else pa.null()
    if not (pa.types.is_floating(value) or pa.types.is_integer(value)):
        raise InputError(f"{path}: column {name!r} holds {kind}; expected lists of numbers")
    return name


def _matrix(path: Path, lists: Any, start: int, width: int) -> NDArray[np.float32]:
    """The lists of a batch as rows; `width` 0 is that of the first of them."""
    length_N = pa.compute.list_value_length(lists).fill_null(0).to_numpy()
    width = width or int(length_N[0])
    for row in np.flatnonzero((length_N != width) | (length_N == 0))[:1]:
        what = f"{length_N[row]} numbers" if length_N[row] else "no numbers"
        raise InputError(
            f"{path}, row {start + row + 1}: a vector of {what}; expected {width or 'some'}, as in the first row"
        )
    values = lists.flatten()
    for place in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[:1]:
        row = start + 1 + place // width
        raise InputError(f"{path}, row {row}: a number of the vector is missing; expected {width} numbers")
    with np.errstate(over="ignore"):
        return values.to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, width)
