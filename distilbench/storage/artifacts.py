"""Artifacts in the storage: the shards below `NAME/`, finished where there is a manifest, which comes last."""

from __future__ import annotations

import json
from pathlib import Path

import rich

from distilbench.storage.arrays import MANIFEST, damaged_shards
from distilbench.storage.files import file_sha256, fingerprint
from distilbench.storage.remote import Absent, Remote, local_name

_pushed: set[tuple[str, str]] = set()
"""Artifacts that this process knows to be in the storage."""


def push_artifact(remote: Remote, path: Path) -> None:
    """Copy a finished artifact, its manifest last, unless a finished one is there."""
    remote_artifact, key = remote / path.name, (remote.uri, path.name)
    if key in _pushed:
        return
    if remote_artifact.entry(MANIFEST) is None:
        paths = {name: path / name for name in (*json.loads((path / MANIFEST).read_text())["shards"], MANIFEST)}
        there = remote_artifact.list()  # workers have copied what they made
        new = {n: p for n, p in paths.items() if n not in there or there[n].size != p.stat().st_size}
        remote_artifact.put_all(new, last=[MANIFEST])
        remote_artifact.delete(*(name for name in there if name not in paths))
    _pushed.add(key)


def fetch_artifact(remote: Remote, name: str, partial: Path) -> bool:
    """Copy what the storage has of an artifact into `partial`; whether it is finished there, and whole.

    What is damaged is named, and deleted here and in the storage with the manifest: it is an unfinished artifact then.
    """
    remote_artifact = remote / name
    there = remote_artifact.list()
    if not there:
        return False
    finished = MANIFEST in there  # what an interrupted build has left here may be of another version then
    new = [name for name in there if finished or not (partial / local_name(name)).exists()]
    partial.mkdir(parents=True, exist_ok=True)
    try:
        remote_artifact.fetch_all(partial, new)
    except Absent:  # deleted by another machine meanwhile; what is missing is made
        return False
    if not finished:
        rich.print(f"{name}: {len(new)} files of it were in {remote}")
        return False
    _pushed.discard((remote.uri, name))
    damaged = damaged_shards(partial)
    if not damaged:
        rich.print(f"{name}: fetched from {remote}")
        _pushed.add((remote.uri, name))
        return True
    # Where the manifest itself cannot be read, the shards may be whole.
    shards = [] if MANIFEST in damaged else [shard for shard in damaged if shard in there]
    for shard in shards or [MANIFEST]:
        rich.print(f"{remote_artifact}/{shard}: not what was written (damaged, or gone), so it is made again")
    for shard in (MANIFEST, *shards):
        (partial / shard).unlink(missing_ok=True)
        remote_artifact.delete(shard)
    return False


def push_folder(remote: Remote, folder: Path) -> str:
    """Copy an encoder's folder, under a name that its content gives it; that name."""
    paths = {p.relative_to(folder.parent).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    shards = {name: file_sha256(path) for name, path in paths.items()}
    name = f"folder-{fingerprint(shards)[:24]}"
    if (remote.uri, name) not in _pushed:
        if (remote / name).entry(MANIFEST) is None:
            (remote / name).put_all(paths)
            (remote / name).write(MANIFEST, json.dumps({"kind": "folder", "parts": {}, "shards": shards}).encode())
        _pushed.add((remote.uri, name))
    return name
