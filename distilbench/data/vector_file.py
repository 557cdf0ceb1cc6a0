"""Vectors of texts in a file, such as those of an API or of an existing index: checked once, and found again by their text.

NAME.parquet             columns text (strings) and vector (lists of numbers)
NAME.npy                 rows x dimensions, beside the texts: NAME.txt, or the column text of NAME.tsv, .csv, .jsonl, .parquet

The file is streamed. In memory: 16 bytes for each row while it is read, and a block of rows.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distilbench.choices import Stored
from distilbench.data.columns import FORMATS_TOLD, format_of, read_column
from distilbench.data.sentences import FILE, TEXT, SentenceFile, in_batches, write_arrow
from distilbench.errors import InputError
from distilbench.storage.arrays import ShardedArray, save_array, shard_name, shard_ranges
from distilbench.storage.files import file_sha256
from distilbench.storage.store import ArtifactStore

SHARD_ROWS = 8192
VECTOR_COLUMNS = ("vector", "embedding", "embeddings", "vectors")
"""The first of these that a Parquet file has holds its vectors."""
EXPECTED = "expected NAME.parquet with the columns text and vector, or NAME.npy beside NAME.txt"
LEAST_NORM = 1e-12
DIGESTS, ORDER = "digests.npy", "order.npy"
STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it writes."""

Block = tuple[int, NDArray[np.float32]]
"""Number of a block's first row (from 0), and its vectors."""


@dataclass(frozen=True)
class VectorFile:
    """Where vectors and their texts are: `texts` is the file itself, or the one beside a `.npy`."""

    path: Path
    texts: Path
    column: str = TEXT

    def identity(self) -> dict[str, str]:
        """The SHA-256 of what is read."""
        return {path.name: file_sha256(path) for path in dict.fromkeys((self.path, self.texts))} | {
            "column": self.column
        }

    def shape(self) -> tuple[int, int]:
        """Rows and dimensions, by the file's header and its first row.

        Raises:
            InputError: the file cannot be read, or has no vectors.
        """
        if self.path.suffix == ".npy":
            return _open_npy(self.path).shape
        with _open_parquet(self.path) as file:
            rows = int(file.metadata.num_rows)
            first = next(_parquet_blocks(self.path, 1), None)
        if first is None:
            raise InputError(f"{self.path}: no row in it; {EXPECTED}")
        return rows, first[1].shape[1]


def vector_file(path: Path, column: str = TEXT) -> VectorFile:
    """A file of vectors, and the file that has their texts.

    Raises:
        InputError: there is no such file, none with the texts, or it has another format or no such column.
    """
    if not path.is_file():
        raise InputError(f"--teacher-vectors {path}: no such file; {EXPECTED}")
    if path.suffix == ".parquet":
        _vector_column(path)
        return VectorFile(path, path, column)
    if path.suffix != ".npy":
        raise InputError(f"--teacher-vectors {path}: the format is not known by the file's name; {EXPECTED}")
    beside = sorted(
        p for p in path.parent.glob(f"{path.stem}.*") if p != path and format_of(p) and _stem(p) == path.stem
    )
    if len(beside) != 1:
        found = f"found {', '.join(p.name for p in beside)}" if beside else "found none"
        raise InputError(
            f"--teacher-vectors {path}: {found} with its texts; expected one of {path.stem}.txt, or {FORMATS_TOLD}"
        )
    return VectorFile(path, beside[0], column)


@dataclass(frozen=True)
class GivenVectors:
    """The vectors of a file, checked and in the store; `order` sorts its rows by the digests of their texts."""

    vectors: ShardedArray
    texts: SentenceFile
    digests_N: NDArray[np.int64]
    order_N: NDArray[np.int64]

    def places(self, sentences: Sequence[str]) -> NDArray[np.int64]:
        """The row of each sentence, or -1 where it is not in the file; blanks at the ends do not count."""
        texts = [sentence.strip() for sentence in sentences]
        asked = np.array([_digest(text) for text in texts], dtype=np.int64)
        sorted_N = self.digests_N[self.order_N]
        first, after = (np.searchsorted(sorted_N, asked, side=side) for side in ("left", "right"))
        places, left = np.full(len(texts), -1, dtype=np.int64), np.flatnonzero(first < after)
        further = 0
        while len(left):  # more than once only where several texts have one digest
            rows = self.order_N[first[left] + further]
            same = np.array([texts[i] == text for i, text in zip(left.tolist(), self.texts.take(rows), strict=True)])
            places[left[same]] = rows[same]
            further += 1
            left = left[~same & (first[left] + further < after[left])]
        return places


def given_vectors(file: VectorFile, stored: Stored, store: ArtifactStore) -> GivenVectors:
    """The vectors and texts of a file, copied into the store once; every row is checked.

    Raises:
        InputError: a row has no text, a text that is there already, or a vector of another width, that is zero, or that is
            not finite in the stored precision. File and row are named; those of a `.npy` are counted from 0.
    """
    rows, width = file.shape()
    parts: dict[str, Any] = {"file": file.identity(), "stored": stored, "step_version": STEP_VERSION}
    shards = [shard_name(i) for i, _ in enumerate(shard_ranges(rows, SHARD_ROWS))]

    def make(folder: Path, missing: list[str]) -> None:
        digests = array("q")
        numbers = array("q")

        def texts() -> Iterator[str]:
            for row, text in _texts(file, rows):
                digests.append(_digest(text))
                numbers.append(row)
                yield text

        schema = pa.schema([(TEXT, pa.string())])
        batches = (pa.record_batch([pa.array(batch, pa.string())], schema=schema) for batch in in_batches(texts()))
        write_arrow(folder / FILE, batches, schema)
        row_N = np.frombuffer(numbers, dtype=np.int64)
        digest_N = np.frombuffer(digests, dtype=np.int64)
        order_N = np.argsort(digest_N, kind="stable")
        _check_once(file, SentenceFile(folder / FILE), digest_N, order_N, row_N)
        for shard, (start, vectors_ND) in enumerate(_checked(file, width, row_N, stored)):
            assert start == shard * SHARD_ROWS
            save_array(folder / shard_name(shard), vectors_ND)
        save_array(folder / ORDER, order_N)
        save_array(folder / DIGESTS, digest_N)

    folder = store.build("teacher-vectors", parts, [FILE, *shards, ORDER, DIGESTS], make)
    return GivenVectors(
        ShardedArray(folder, rows, width, SHARD_ROWS),
        SentenceFile(folder / FILE),
        *(np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in (DIGESTS, ORDER)),
    )


def _texts(file: VectorFile, rows: int) -> Iterator[tuple[int, str]]:
    """Row number and text of each vector; as many as there are vectors."""
    count = 0
    for row, text in read_column(file.texts, file.column):
        if isinstance(text, InputError):
            raise text
        count += 1
        yield row, text
    if count != rows:
        raise InputError(f"{file.path}: {rows:,} vectors, but {count:,} texts in {file.texts.name}; expected as many")


def _check_once(
    file: VectorFile,
    texts: SentenceFile,
    digest_N: NDArray[np.int64],
    order_N: NDArray[np.int64],
    row_N: NDArray[np.int64],
) -> None:
    """Check that no text is there twice: equal digests first, then the texts themselves."""
    sorted_N = digest_N[order_N]
    starts = np.flatnonzero(np.concatenate([[True], sorted_N[1:] != sorted_N[:-1]]))
    for start, stop in (
        zip(starts.tolist(), [*starts[1:].tolist(), len(sorted_N)], strict=True) if len(sorted_N) else ()
    ):
        if stop - start == 1:
            continue
        first: dict[str, int] = {}
        rows = order_N[start:stop]
        for row, text in zip(rows.tolist(), texts.take(rows), strict=True):
            if text in first:
                raise InputError(
                    f"{file.texts}, row {row_N[row]}: text {text!r:.80} is there already, in row {row_N[first[text]]}; "
                    "expected each text once"
                )
            first[text] = row


def _checked(file: VectorFile, width: int, row_N: NDArray[np.int64], stored: Stored) -> Iterator[Block]:
    """Blocks of `SHARD_ROWS` rows in the stored precision, every one checked."""
    blocks = _npy_blocks(file.path) if file.path.suffix == ".npy" else _parquet_blocks(file.path, SHARD_ROWS)
    for start, vectors_ND in blocks:
        with np.errstate(over="ignore"):
            kept_ND = vectors_ND.astype(stored)
        norm_N = np.linalg.norm(kept_ND.astype(np.float32), axis=1)
        bad = np.flatnonzero(~((norm_N > LEAST_NORM) & np.isfinite(kept_ND).all(axis=1)))
        if len(bad):
            row = int(bad[0])
            strange = np.flatnonzero(~np.isfinite(kept_ND[row]))
            found = f"dimension {strange[0]} is {vectors_ND[row][strange[0]]}" if len(strange) else "it is zero"
            more = f" (stored as {stored})" if len(strange) and np.isfinite(vectors_ND[row][strange[0]]) else ""
            number = row_N[start + row] if file.path == file.texts else start + row
            raise InputError(
                f"{file.path}, row {number}: the vector has no direction: {found}{more}; expected {width} finite numbers, "
                "not all 0"
            )
        yield start, kept_ND


def _open_npy(path: Path) -> NDArray[Any]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not an array that can be read ({error!s:.200}); {EXPECTED}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or 0 in found.shape or found.dtype.kind != "f":
        shape = getattr(found, "shape", None)
        raise InputError(
            f"{path}: of shape {shape} and type {getattr(found, 'dtype', '?')}; expected rows x dimensions of floats"
        )
    return found


def _npy_blocks(path: Path) -> Iterator[Block]:
    vectors_ND = _open_npy(path)
    for start, stop in shard_ranges(len(vectors_ND), SHARD_ROWS):
        with np.errstate(over="ignore"):
            yield start, np.asarray(vectors_ND[start:stop]).astype(np.float32)


def _open_parquet(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}; {EXPECTED}") from None


def _vector_column(path: Path) -> str:
    """The column with the vectors.

    Raises:
        InputError: there is none, or it holds no lists of numbers.
    """
    with _open_parquet(path) as file:
        schema = file.schema_arrow
    name = next((name for name in VECTOR_COLUMNS if name in schema.names), None)
    if name is None:
        raise InputError(f"{path}: no column {VECTOR_COLUMNS[0]!r}; the columns are {schema.names}; {EXPECTED}")
    kind = schema.field(name).type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InputError(f"{path}: column {name!r} holds {kind}; expected lists of numbers")
    return name


def _parquet_blocks(path: Path, size: int) -> Iterator[Block]:
    """Blocks of `size` rows, all of the width of the first."""
    column, width, start, held = _vector_column(path), 0, 0, list[NDArray[np.float32]]()
    first_row = 0
    with _open_parquet(path) as file:
        batches = file.iter_batches(min(size, 1024), columns=[column])
        for batch in _readable(path, batches):
            vectors_ND = _matrix(path, batch.column(0), start, width)
            width = vectors_ND.shape[1]
            start += len(vectors_ND)
            held.append(vectors_ND)
            while sum(map(len, held)) >= size:
                joined = np.concatenate(held)
                yield first_row, joined[:size]
                first_row, held = first_row + size, [joined[size:]]
    left = np.concatenate(held) if held else np.empty((0, width), dtype=np.float32)
    if len(left):
        yield first_row, left


def _readable(path: Path, batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read on: {str(error).splitlines()[0]}") from None


def _matrix(path: Path, lists: Any, start: int, width: int) -> NDArray[np.float32]:
    """The lists of a batch as rows; `width` 0 is that of the first of them. Row numbers are those of Parquet, from 1."""
    lengths = [0 if n is None else n for n in pa.compute.list_value_length(lists).to_pylist()]
    expected = width or (lengths[0] if lengths else 0)
    for row, length in enumerate(lengths, start=start + 1):
        if length != expected or not length:
            what = f"{length} numbers" if length else "no numbers"
            raise InputError(
                f"{path}, row {row}: a vector of {what}; expected {expected or 'some'}, as in the first row"
            )
    values = lists.flatten()
    if values.null_count:
        row = start + 1 + int(np.flatnonzero(np.array(values.is_null()))[0]) // expected
        raise InputError(f"{path}, row {row}: a number of the vector is missing; expected {expected} numbers")
    with np.errstate(over="ignore"):
        return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.float32).reshape(len(lengths), expected)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]
