"""Artifacts in the storage: the shards below `NAME/`, finished where there is a manifest, which comes last."""

from __future__ import annotations

import json
from pathlib import Path

import rich

from distilbench.errors import InputError
from distilbench.storage.arrays import MANIFEST, damaged_shards
from distilbench.storage.files import file_sha256, fingerprint
from distilbench.storage.remote import Absent, Remote, local_name

_pushed: set[tuple[str, str]] = set()
"""What this process has found or made in the storage."""


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
    """Copy a finished artifact into `partial`; whether it was there and is whole.

    What is damaged is named, and deleted here and in the storage with the manifest: it is an unfinished artifact then.
    """
    remote_artifact = remote / name
    manifest = remote_artifact.read(MANIFEST)
    if manifest is None:
        return False
    _pushed.discard((remote.uri, name))
    try:
        shards = [local_name(shard) for shard in json.loads(manifest)["shards"]]
    except (InputError, ValueError, LookupError, TypeError, AttributeError):
        rich.print(f"{remote_artifact}/{MANIFEST}: cannot be read, so what is damaged there is made again")
        remote_artifact.delete(MANIFEST)
        return False
    partial.mkdir(parents=True, exist_ok=True)
    present = remote_artifact.list()
    local_shards = {s for s in shards if (partial / s).exists()}  # of a build here that was interrupted
    remote_artifact.fetch_all(partial, [s for s in shards if s in present and s not in local_shards])
    (partial / MANIFEST).write_bytes(manifest)
    remote_artifact.fetch_all(partial, [s for s in damaged_shards(partial) if s in local_shards and s in present])
    damaged = damaged_shards(partial)
    if not damaged:
        rich.print(f"{name}: fetched from {remote}")
        _pushed.add((remote.uri, name))
        return True
    for shard in damaged:
        rich.print(
            f"{remote_artifact}/{shard}: not what was written (its checksum differs, or it is gone), so it is made again"
        )
        (partial / shard).unlink(missing_ok=True)
    (partial / MANIFEST).unlink()
    remote_artifact.delete(MANIFEST)
    remote_artifact.delete(*(shard for shard in damaged if shard in present))
    return False


def fetch_begun(remote: Remote, name: str, partial: Path) -> None:
    """Copy the finished shards of an artifact that is not finished: what other machines have made of it."""
    remote_artifact = remote / name
    shards = [n for n in remote_artifact.list() if n != MANIFEST and not (partial / local_name(n)).exists()]
    if shards:
        try:
            remote_artifact.fetch_all(partial, shards)
        except Absent:  # finished or deleted by another machine meanwhile; what is missing is made
            return
        rich.print(f"{name}: {len(shards)} files of it were in {remote}")


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
