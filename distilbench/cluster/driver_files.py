"""The driver's files on every node: each has them under the driver's own paths.

On another node than the driver's an artifact, an encoder's folder and the prepared inputs of a run are fetched from the
object storage once, by the first worker that wants them, and then read from there by all.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distilbench.data.sentences import SentenceFile
from distilbench.encoders.student import with_own_tokens
from distilbench.errors import InputError
from distilbench.storage.files import file_sha256, fingerprint
from distilbench.storage.remote import Remote, files_in
from distilbench.storage.retry import StorageGone
from distilbench.storage.store import PARTIAL, ArtifactStore, folder_artifact


@dataclass(frozen=True)
class DriverFiles:
    """The driver's folders, and where the same is in storage. Pickled into every worker."""

    store: ArtifactStore
    """The driver's, with a storage and an absolute folder."""
    node: str
    """Ray's id of the driver's node."""
    folders: dict[str, str] = field(default_factory=dict)
    """Folders outside of the store by their absolute paths, and the artifacts that they are in the storage."""
    run: Path | None = None
    """The driver's run folder, absolute."""
    remote_run: Remote | None = None
    content: str = ""
    """A key of all that a training on the run's prepared inputs depends on."""

    @property
    def here(self) -> bool:
        """Whether this process is on the driver's node."""
        return _node() == self.node

    def provide(self, value: Any) -> None:
        """Have the artifacts and folders on this node that `value` names (see `paths_in`)."""
        for path in paths_in(value) if not self.here else ():
            if str(path) in self.folders:
                _linked(self.store, self.folders[str(path)], path)
            elif path.is_relative_to(self.store.root) and path != self.store.root:
                name = path.relative_to(self.store.root).parts[0]
                if name.endswith(PARTIAL):
                    path.mkdir(parents=True, exist_ok=True)
                else:
                    _fetched(self.store, name)

    def prepared(self, folder: Path) -> Path:
        """The run's prepared inputs on this node, with all that they name."""
        if self.here:
            return folder
        local = _fetched(self.store, self.folders[str(folder)]) / folder.name
        self.provide(json.loads((local / "prepared.json").read_text()))
        return local

    def shard(self, path: Path) -> tuple[Remote, str]:
        """Where a file of an unfinished artifact is in the storage, and its name there."""
        first, *inside = path.relative_to(self.store.root).parts
        assert self.store.remote is not None
        return self.store.remote / first.removesuffix(PARTIAL), "/".join(inside)

    def remote_of(self, path: Path) -> Remote:
        """The copy in the storage of a folder of the run."""
        assert self.run is not None and self.remote_run is not None
        return self.remote_run / path.relative_to(self.run).as_posix()


def share_files(store: ArtifactStore, *values: Any) -> DriverFiles | None:
    """The files of this driver; folders in `values` go to the storage. None where there is no storage."""
    if store.remote is None:
        return None
    store = replace(store, root=store.root.absolute())
    outside = {p for p in paths_in(list(values)) if not p.is_relative_to(store.root) and p.is_dir()}
    return DriverFiles(store, _node(), {str(p): store.push_folder(p) for p in sorted(outside)})


def share_run(store: ArtifactStore, run: Path, remote_run: Remote, prepared: Path) -> DriverFiles:
    """The files for the trials of a run: its prepared inputs go to the storage."""
    prepared = prepared.resolve()
    files = share_files(store, prepared, json.loads((prepared / "prepared.json").read_text()))
    assert files is not None
    return replace(files, run=run.resolve(), remote_run=remote_run, content=content_key(prepared))


def content_key(prepared: Path) -> str:
    """A key of prepared inputs that is the same on every machine: their arrays, and all else without its folders."""
    arrays = {name: file_sha256(path) for name, path in files_in(prepared).items() if name.endswith(".npy")}
    described = json.loads((prepared / "prepared.json").read_text())
    described["students"] = list(described.get("students", {}).values())
    without_folders = re.sub(r'(?<=["@])/[^"]*/(?=[^"/]+")', "", json.dumps(described, sort_keys=True))
    return fingerprint([arrays, without_folders])[:32]


def paths_in(value: Any) -> set[Path]:
    """The absolute paths in a value, which is made of paths, texts, sentence files, dictionaries, lists and data classes.

    In a text it may be that of a student's encoder: `layers:0,2@/folder`.
    """
    if isinstance(value, str):
        match = re.search(r"(?:^|@)(/[^\n]+)$", with_own_tokens(value))
        return {Path(match[1])} if match else set()
    if isinstance(value, Path):
        return {value} if value.is_absolute() else set()
    if isinstance(value, SentenceFile):
        return set(value.paths)
    if dataclasses.is_dataclass(value):
        value = [getattr(value, f.name) for f in dataclasses.fields(value)]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return {path for part in parts for path in paths_in(part)}


@functools.cache
def _fetched(store: ArtifactStore, name: str) -> Path:
    folder = store.fetch(name)
    if folder is None:
        raise StorageGone(f"{store.remote}/{name}: not in the storage, or not whole; repeat the command that makes it")
    return folder


@functools.cache
def _linked(store: ArtifactStore, name: str, path: Path) -> None:
    """Have a folder from outside of the store under its path; an InputError where another one has it."""
    if path.exists():
        if folder_artifact(path)[0] == name:
            return
        if not path.is_symlink() or not path.readlink().is_relative_to(store.root):
            raise InputError(f"{path}: on one of the nodes another folder than the driver's has this path")
    target = _fetched(store, name) / path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    link = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    link.symlink_to(target)
    link.replace(path)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""
