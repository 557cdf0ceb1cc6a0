"""Arrays on disk in shards, each with a checksum, listed in a manifest that is written last."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.storage.files import atomic_path, file_sha256

MANIFEST = "manifest.json"


def damaged_shards(path: Path) -> list[str]:
    """Shards that are not what the manifest says; every file, where the manifest cannot be read.

    Another process may take the folder away meanwhile, to repair it: then the manifest alone is named.
    """
    try:
        checksums: dict[str, str] = json.loads((path / MANIFEST).read_text())["shards"]
        return [n for n, digest in checksums.items() if not (path / n).exists() or file_sha256(path / n) != digest]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        with contextlib.suppress(FileNotFoundError):
            return [MANIFEST, *(p.name for p in path.iterdir())]
        return [MANIFEST]


def array_sha256(array: NDArray[Any]) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write `array` as a `.npy` file, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def load_array(path: Path) -> NDArray[Any]:
    """The array of a `.npy` file, memory-mapped."""
    return np.load(path, mmap_mode="r", allow_pickle=False)


def shard_ranges(rows: int, shard_rows: int) -> list[tuple[int, int]]:
    """Row ranges [start, stop) of consecutive shards."""
    return [(start, min(start + shard_rows, rows)) for start in range(0, rows, shard_rows)]


def shard_name(index: int) -> str:
    """File name of shard `index`."""
    return f"shard-{index:05d}.npy"


@dataclass(frozen=True)
class ShardedArray:
    """N rows in consecutive `.npy` shards of `shard_rows` rows (the last may be shorter), memory-mapped."""

    folder: Path
    rows: int
    width: int
    shard_rows: int

    @classmethod
    def open(cls, folder: Path, rows: int, shard_rows: int) -> ShardedArray:
        """The array of so many rows in a folder, as wide as its first shard."""
        return cls(folder, rows, load_array(folder / shard_name(0)).shape[1], shard_rows)

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows `index` (any order, repeats allowed) as float32, `len(index)` x width, in memory."""
        out = np.empty((len(index), self.width), dtype=np.float32)
        shard_of = index // self.shard_rows
        for shard in np.unique(shard_of):
            in_shard = shard_of == shard
            data = load_array(self.folder / shard_name(int(shard)))
            out[in_shard] = data[index[in_shard] - shard * self.shard_rows]
        return out

    def shards(self) -> Iterator[NDArray[np.floating]]:
        """The shards one after the other as they are stored, in memory."""
        for shard in range(-(-self.rows // self.shard_rows)):
            yield np.load(self.folder / shard_name(shard), allow_pickle=False)

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """The rows `start` to `stop` - 1 as float32, in memory; only the shards that hold them are read."""
        return self.take(np.arange(start, stop))


def packed(codes_Vd: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Codes from -8 to 7, two a byte, the first in its low half."""
    halves = np.zeros(codes_Vd.size + codes_Vd.size % 2, dtype=np.uint8)
    halves[: codes_Vd.size] = codes_Vd.reshape(-1) + 8
    return np.asarray(halves[::2] + 16 * halves[1::2], dtype=np.uint8)


def unpacked(bytes_: NDArray[np.uint8], rows: int) -> NDArray[np.int8]:
    """The codes of so many rows, V x d."""
    halves = np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(-1)
    return halves[: len(halves) // rows * rows].reshape(rows, -1).astype(np.int8) - np.int8(8)
