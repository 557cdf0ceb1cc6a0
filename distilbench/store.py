"""The artifact store: files that are expensive to make, under names that tell everything they depend on.

An artifact is a folder `KIND-FINGERPRINT/` with shard files and `manifest.json`. Shards are written to temporary names
and renamed, the manifest comes last, and only then is the folder given its name: what carries the name is whole.
A killed writer leaves `KIND-FINGERPRINT.partial/`, whose finished shards the next writer keeps.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rich
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from distilbench.errors import InputError

if TYPE_CHECKING:
    from distilbench.storage.remote import Remote

MANIFEST = "manifest.json"
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of a disk, and of a user's share of it."""


def default_store() -> Path:
    """The user's cache folder: `$DISTILBENCH_STORE`, else `$XDG_CACHE_HOME/distilbench`, else `~/.cache/distilbench`."""
    if chosen := os.environ.get("DISTILBENCH_STORE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distilbench"


def fingerprint(parts: Any) -> str:
    """SHA-256 (64 hex digits) of JSON-able `parts` in canonical form."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def array_sha256(array: NDArray[Any]) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; renamed to `path` when the block ends well, deleted otherwise.

    Raises:
        DiskFull: the disk is full.
    """
    temporary = path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; an artifact has the permissions of any new file.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if error.errno in FULL or "requested and" in str(error):  # NumPy's, which has no number
            raise disk_full(path, error) from None
        raise
    finally:
        if temporary != path:
            temporary.unlink(missing_ok=True)


class DiskFull(InputError):
    """A file could not be written whole."""


def disk_full(path: Path, error: OSError) -> DiskFull:
    """What to tell the user when `path` could not be written whole."""
    return DiskFull(
        f"{path}: {error.strerror or 'No space left on device'}; what is finished is kept: make room, then repeat the command"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def save_array(path: Path, array: NDArray[Any]) -> str:
    """Write `array` as a `.npy` file, whole or not at all; returns the file's SHA-256."""
    with atomic_path(path) as temporary:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        digest = file_sha256(temporary)
    return digest


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

    def take(self, index: NDArray[np.int64]) -> NDArray[np.float32]:
        """The rows `index` (any order, repeats allowed) as float32, `len(index)` x width, in memory."""
        out = np.empty((len(index), self.width), dtype=np.float32)
        shard_of = index // self.shard_rows
        for shard in np.unique(shard_of):
            here = shard_of == shard
            data = np.load(self.folder / shard_name(int(shard)), mmap_mode="r", allow_pickle=False)
            out[here] = data[index[here] - shard * self.shard_rows]
        return out

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """The rows `start` to `stop` - 1 as float32, in memory; only the shards that hold them are read.

        Raises:
            ValueError: not 0 <= start <= stop <= rows.
        """
        if not 0 <= start <= stop <= self.rows:
            raise ValueError(f"rows {start} to {stop}, expected a range within 0 to {self.rows}")
        out = np.empty((stop - start, self.width), dtype=np.float32)
        for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
            first = shard * self.shard_rows
            low, high = max(start, first), min(stop, first + self.shard_rows)
            data = np.load(self.folder / shard_name(shard), mmap_mode="r", allow_pickle=False)
            out[low - start : high - start] = data[low - first : high - first]
        return out


@dataclass(frozen=True)
class ArtifactStore:
    """A folder of artifacts; what is finished in it is also in the storage `remote`, and what is there is fetched.

    Between machines there is no lock: two that make the same artifact at once both make it, and a mixture of theirs is
    found by its checksums when it is fetched.
    """

    root: Path
    remote: Remote | None = None

    def path(self, kind: str, parts: dict[str, Any]) -> Path:
        """Where the artifact of `kind` that depends on `parts` is, or will be: absolute, since workers run elsewhere."""
        return self.root.absolute() / f"{kind}-{fingerprint(parts)[:24]}"

    def find(self, kind: str, parts: dict[str, Any]) -> Path | None:
        """The finished artifact, its shards verified against the manifest; None when there is none.

        A damaged shard is named, removed, and the artifact demoted to `.partial`, so that only that shard is made again.
        """
        path = self.path(kind, parts)
        if not path.exists() and self.fetch(path.name) is None:
            return None
        if not damaged_shards(path):
            self.push(path)
            return path
        with _locked(path):
            if not path.exists():
                return None
            damaged = damaged_shards(path)  # again: another process may have repaired it
            if not damaged:
                return path
            for name in damaged:
                rich.print(f"{path / name}: not what was written (its checksum differs), so it is made again")
                (path / name).unlink(missing_ok=True)
            remove_folder(_partial(path))
            path.rename(_partial(path))
        return None

    def build(
        self, kind: str, parts: dict[str, Any], shards: Sequence[str], make: Callable[[Path, list[str]], None]
    ) -> Path:
        """Find the artifact or make it; `make(folder, names)` writes the shards `names` into `folder` with `save_array`.

        Of an interrupted build only the missing shards are made. Another process that builds the same artifact is
        waited for.

        Raises:
            RuntimeError: `make` returned without having written every shard.
        """
        if found := self.find(kind, parts):
            return found
        path = self.path(kind, parts)
        self.root.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if (path / MANIFEST).exists():  # another process finished it while this one waited
                return path
            partial = _partial(path)
            partial.mkdir(exist_ok=True)
            for leftover in partial.glob(".*.tmp"):
                leftover.unlink()
            if self.remote is not None:
                from distilbench.storage.artifacts import fetch_begun

                fetch_begun(self.remote, path.name, partial)
            missing = [name for name in shards if not (partial / name).exists()]
            if missing:
                make(partial, missing)
            absent = [name for name in shards if not (partial / name).exists()]
            if absent:
                raise RuntimeError(
                    f"{path.name}: {len(absent)} of {len(shards)} shards were not made: {absent[:3]} ..."
                )
            checksums = {name: file_sha256(partial / name) for name in shards}
            write_json(partial / MANIFEST, {"kind": kind, "parts": parts, "shards": checksums})
            partial.rename(path)
        self.push(path)
        return path

    def fetch(self, name: str) -> Path | None:
        """The artifact of this name, from the storage where it is not here; None where it is in neither, or not whole.

        A damaged shard in the storage is named, and deleted there; the others stay in `.partial`.
        """
        path = self.root.absolute() / name
        if self.remote is None or path.exists():
            return path if path.exists() else None
        from distilbench.storage.artifacts import fetch_artifact

        self.root.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not path.exists() and fetch_artifact(self.remote, name, _partial(path)):
                _partial(path).rename(path)
        return path if path.exists() else None

    def push(self, path: Path) -> None:
        """Copy a finished artifact to the storage, where there is one that does not have it."""
        if self.remote is not None:
            from distilbench.storage.artifacts import push_artifact

            push_artifact(self.remote, path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The artifact's lock, which dies with its process; the user is told where another process has it."""
    lock = FileLock(str(path) + ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        rich.print(f"{path.name}: another process is making it; waiting for that")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def damaged_shards(path: Path) -> list[str]:
    """Shards that are not what the manifest says; every file, where the manifest cannot be read."""
    try:
        checksums: dict[str, str] = json.loads((path / MANIFEST).read_text())["shards"]
        return [n for n, digest in checksums.items() if not (path / n).exists() or file_sha256(path / n) != digest]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return [MANIFEST, *(p.name for p in path.iterdir())]


def claim_folder(folder: Path, config: dict[str, Any], *, may_change: frozenset[str], hint: str = "") -> None:
    """Bind `folder` to `config` (written as `config.json` on first use), or check that it is bound to the same.

    Keys in `may_change` may differ between visits (they do not alter what the numbers mean); the file keeps the latest.
    `hint` is what else the user can do about a difference.

    Raises:
        InputError: the folder belongs to another configuration; the message lists every difference.
    """
    bound = bound_config(folder)
    if bound is not None:
        differences = [f"  {line}" for key, line in config_differences(bound, config) if key not in may_change]
        if differences:
            raise InputError(
                f"{folder}: these results belong to another configuration:\n"
                + "\n".join(differences)
                + f"\nChoose another --name, or repeat the command that made them{hint}."
            )
    elif folder.exists() and any(not p.name.startswith(".config.json.") for p in folder.iterdir()):
        raise InputError(
            f"{folder}: the folder is not empty and holds no config.json, so it is not a results folder of ours"
        )
    write_json(folder / "config.json", config)


def bound_config(folder: Path) -> dict[str, Any] | None:
    """What `folder` is bound to; None where it is not bound to anything.

    Raises:
        InputError: its `config.json` is no JSON object.
    """
    path = folder / "config.json"
    if not path.exists():
        return None
    try:
        bound = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}), so it is not a results folder of ours") from None
    if not isinstance(bound, dict):
        raise InputError(f"{path}: not a JSON object, so it is not a results folder of ours")
    return bound


def config_differences(bound: dict[str, Any], config: dict[str, Any]) -> list[tuple[str, str]]:
    """(top-level key, line to read) of every value that differs; of nested ones only the parts that do."""
    there, now = flat(bound), flat(json.loads(json.dumps(config)))
    return [
        (path[0], f"{'.'.join(path)}: {_shown(there, path)} there, {_shown(now, path)} now")
        for path in sorted(there.keys() | now.keys())
        if there.get(path) != now.get(path)
    ]


def flat(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The leaves of nested dictionaries by their keys, outermost first."""
    if not isinstance(value, dict) or not value:
        return {path: value} if path else {}
    return {at: leaf for key, part in value.items() for at, leaf in flat(part, (*path, str(key))).items()}


def _shown(values: dict[tuple[str, ...], Any], path: tuple[str, ...]) -> str:
    return repr(values[path]) if values.get(path) is not None else "nothing"


def remove_folder(folder: Path) -> None:
    """Delete a folder and what is in it; nothing when it does not exist."""
    shutil.rmtree(folder, ignore_errors=True)
