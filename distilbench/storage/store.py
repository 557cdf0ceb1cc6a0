"""The store of artifacts: what is made once from the same inputs, found again by their fingerprint.

An artifact is a folder `KIND-FINGERPRINT/` with shard files and `manifest.json`. Shards are written to temporary names
and renamed, the manifest comes last, and only then is the folder given its name: what carries the name is whole.
A killed writer leaves `KIND-FINGERPRINT.partial/`, whose finished shards the next writer keeps. In an object storage there is
one folder, which is finished where it has a manifest.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich
from filelock import FileLock, Timeout

from distilbench.storage.arrays import MANIFEST, damaged_shards
from distilbench.storage.files import file_sha256, fingerprint, remove_folder, write_json
from distilbench.storage.remote import Absent, Remote, files_in, local_name

PARTIAL = ".partial"


def default_store() -> Path:
    """The user's cache folder: `$DISTILBENCH_STORE`, else `$XDG_CACHE_HOME/distilbench`, else `~/.cache/distilbench`."""
    if chosen := os.environ.get("DISTILBENCH_STORE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distilbench"


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

        `parts` have the version of the step (`STEP_VERSION`), which is raised when its code changes what it writes. Of an
        interrupted build only the missing shards are made. Another process that builds the same artifact is waited for.
        """
        if finished := self.find(kind, parts):
            return finished
        path = self.path(kind, parts)
        self.root.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if (path / MANIFEST).exists():  # another process finished it while this one waited
                return path
            partial = _partial(path)
            partial.mkdir(exist_ok=True)
            for leftover in partial.glob(".*.tmp"):
                leftover.unlink()
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

    # In the storage

    def fetch(self, name: str) -> Path | None:
        """The artifact of this name, from the storage where it is not here; None where it is in neither, or not whole."""
        path = self.root.absolute() / name
        if self.remote is None or path.exists():
            return path if path.exists() else None
        self.root.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if not path.exists() and self._fetch(self.remote / name, _partial(path)):
                _partial(path).rename(path)
        return path if path.exists() else None

    def _fetch(self, remote: Remote, partial: Path) -> bool:
        """Copy what the storage has of an artifact; whether it is finished there, and whole.

        What is damaged is named, and deleted here and in the storage with the manifest: it is an unfinished artifact then.
        """
        stored = remote.list()
        if not stored:
            return False
        finished = MANIFEST in stored  # what an interrupted build has left here may be of another version then
        wanted = [name for name in stored if finished or not (partial / local_name(name)).exists()]
        partial.mkdir(parents=True, exist_ok=True)
        try:
            remote.fetch_all(partial, wanted)
        except Absent:  # deleted by another machine meanwhile; what is missing is made
            return False
        if not finished:
            rich.print(f"{remote.name}: {len(wanted)} files of it were in {self.remote}")
            return False
        damaged = damaged_shards(partial)
        if not damaged:
            rich.print(f"{remote.name}: fetched from {self.remote}")
            return True
        # Where the manifest itself cannot be read, the shards may be whole.
        shards = [] if MANIFEST in damaged else [shard for shard in damaged if shard in stored]
        for shard in shards or [MANIFEST]:
            rich.print(f"{remote}/{shard}: not what was written (damaged, or gone), so it is made again")
        for shard in (MANIFEST, *shards):
            (partial / shard).unlink(missing_ok=True)
            remote.delete(shard)
        return False

    def push(self, path: Path) -> None:
        """Copy a finished artifact to the storage, its manifest last, where there is a storage that does not have it."""
        if self.remote is None or (remote := self.remote / path.name).read(MANIFEST) is not None:
            return
        paths = {name: path / name for name in (*json.loads((path / MANIFEST).read_text())["shards"], MANIFEST)}
        stored = remote.list()  # workers have copied what they made
        new = {n: p for n, p in paths.items() if n not in stored or stored[n].size != p.stat().st_size}
        remote.put_all(new, last=MANIFEST)
        remote.delete(*(name for name in stored if name not in paths))

    def push_folder(self, folder: Path) -> str:
        """Copy any folder to the storage, as an artifact under a name of its content; that name."""
        assert self.remote is not None
        name, shards = folder_artifact(folder)
        remote = self.remote / name
        if remote.read(MANIFEST) is None:
            remote.put_all({shard: folder.parent / shard for shard in shards})
            remote.write(MANIFEST, json.dumps({"kind": "folder", "parts": {}, "shards": shards}).encode())
        return name


def folder_artifact(folder: Path) -> tuple[str, dict[str, str]]:
    """The name of a folder as an artifact, which its content gives, and its files with their checksums."""
    shards = {f"{folder.name}/{name}": file_sha256(path) for name, path in files_in(folder).items()}
    return f"folder-{fingerprint(shards)[:24]}", shards


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The artifact's lock, which dies with its process; the user is told where another process has it."""
    lock = FileLock(str(path) + ".lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        rich.print(f"{path.name}: another process is making it; waiting for that")
        held = lock.acquire()
    with held:
        yield


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL)
