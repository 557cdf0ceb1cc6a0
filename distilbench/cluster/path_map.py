"""Where a node finds the driver's files: on the driver's node under its paths, elsewhere in the node's scratch folder.

On another node an artifact, an encoder's folder and the prepared inputs of a run are fetched from storage once, by the first
worker that wants them, and then read from there by all.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from distilbench.data.sentences import SentenceFile
from distilbench.encoders.student import with_encoder
from distilbench.storage.artifacts import push_folder
from distilbench.storage.files import file_sha256, fingerprint, remove_folder, write_json
from distilbench.storage.remote import Absent, Remote
from distilbench.storage.retry import StorageGone
from distilbench.storage.scratch import scratch
from distilbench.storage.store import ArtifactStore

PREPARED = "prepared"
PARTIAL = ".partial"

T = TypeVar("T")


@dataclass(frozen=True)
class PreparedKeys:
    """Keys of a run's prepared inputs: `files` of their exact files, `content` of all that a training on them depends on."""

    files: str
    content: str


@dataclass(frozen=True)
class PathMap:
    """The driver's folders, and where the same is in storage. Pickled into every worker."""

    store: Path
    """The driver's artifact store, absolute."""
    remote_store: Remote
    node: str
    """Ray's id of the driver's node."""
    folders: dict[str, str] = field(default_factory=dict)
    """Folders of encoders outside of the store, by path, and the names that they have in the storage."""
    run: Path | None = None
    """The driver's run folder, absolute."""
    remote_run: Remote | None = None
    keys: PreparedKeys | None = None

    @property
    def here(self) -> bool:
        """Whether this process is on the driver's node."""
        return _node() == self.node and self.store.exists()

    def localise(self, value: T) -> T:
        """`value` with every path of the driver in it as it is on this node; artifacts and encoders are fetched.

        `value` is made of paths, texts, sentence files, dictionaries, lists and data classes.
        """
        return value if self.here else _with_paths(value, self._local)

    def _local(self, path: Path) -> Path:
        if str(path) in self.folders:
            name, inside = self.folders[str(path)], [path.name]
        elif path.is_relative_to(self.store) and path != self.store:
            name, *inside = path.relative_to(self.store).parts
        else:
            return path
        local_store = ArtifactStore(scratch() / "store", self.remote_store)
        if name.endswith(PARTIAL):
            folder = local_store.root.joinpath(name, *inside)
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        return _fetched(local_store, name).joinpath(*inside)

    def shard(self, folder: Path, name: str) -> tuple[Remote, str]:
        """Where the file `name` of an unfinished artifact's `folder` (here or on the driver's node) is in storage."""
        root = self.store if folder.is_relative_to(self.store) else scratch() / "store"
        first, *inside = folder.relative_to(root).parts
        return self.remote_store / first.removesuffix(PARTIAL), "/".join([*inside, name])

    # Of a run

    def prepared(self, folder: Path) -> Path:
        """The run's prepared inputs on this node, with the artifacts that they name."""
        if self.here:
            return folder
        assert self.remote_run is not None and self.keys is not None
        copy = scratch() / PREPARED / self.keys.files
        file = copy / "prepared.json"
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{copy}.lock"):
            if not file.exists():
                self._fetch_prepared(copy)
        store = ArtifactStore(scratch() / "store", self.remote_store)
        for path in paths_in(json.loads(file.read_text())):  # again where a clean-up of the node has deleted them
            if path.is_relative_to(store.root):
                _fetched(store, path.relative_to(store.root).parts[0])
        return copy

    def _fetch_prepared(self, copy: Path) -> None:
        assert self.remote_run is not None and self.keys is not None
        partial = copy.with_name(f"{copy.name}{PARTIAL}")
        for folder in (copy, partial):
            remove_folder(folder)
        try:
            (self.remote_run / PREPARED).fetch_all(partial)
        except Absent:
            partial.mkdir(exist_ok=True)
        if prepared_keys(partial) != self.keys:
            raise StorageGone(f"{self.remote_run}/{PREPARED}: not what the driver left there; repeat the command")
        described = json.loads((partial / "prepared.json").read_text())
        write_json(partial / "prepared.json", self.localise(described))
        partial.rename(copy)

    def in_run(self, path: Path) -> Path:
        """A path of the driver in the run, on this node: trials, logs, students on their way."""
        assert self.run is not None and self.remote_run is not None
        if self.here:
            return path
        folder = scratch() / "runs" / fingerprint([self.remote_run.uri, self.remote_run.endpoint])[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return folder / path.relative_to(self.run)

    def remote_of(self, path: Path) -> Remote:
        """The copy in the storage of a folder of the driver in the run."""
        assert self.run is not None and self.remote_run is not None
        return self.remote_run / path.relative_to(self.run).as_posix()


def map_paths(store: ArtifactStore, *values: Any) -> PathMap | None:
    """The map of this driver; the encoders' folders in `values` go to the storage. None where there is no storage."""
    if store.remote is None:
        return None
    root = store.root.absolute()
    outside = {p for value in values for p in paths_in(value) if not p.is_relative_to(root) and p.is_dir()}
    return PathMap(root, store.remote, _node(), {str(p): _pushed_folder(store.remote, p) for p in sorted(outside)})


def map_run(store: ArtifactStore, run: Path, remote_run: Remote, prepared: Path) -> PathMap:
    """The map for the trials of a run: its prepared inputs go to the storage."""
    path_map = map_paths(store, json.loads((prepared / "prepared.json").read_text()))
    assert path_map is not None
    files = {p.name: p for p in sorted(prepared.iterdir()) if p.is_file() and not p.name.startswith(".")}
    remote_files = (remote_run / PREPARED).list()
    (remote_run / PREPARED).put_all(files, last=["prepared.json"])
    (remote_run / PREPARED).delete(*(name for name in remote_files if name not in files))
    return replace(path_map, run=run.absolute(), remote_run=remote_run, keys=prepared_keys(prepared))


def prepared_keys(folder: Path) -> PreparedKeys:
    """The keys of prepared inputs; `content` is the same on every machine, `files` has its paths."""
    files = {p.name: file_sha256(p) for p in sorted(folder.glob("*")) if p.is_file() and not p.name.startswith(".")}
    if "prepared.json" not in files:
        return PreparedKeys("", "")
    described = json.loads((folder / "prepared.json").read_text())
    arrays = {name: digest for name, digest in files.items() if name.endswith(".npy")}
    described["students"] = list(described.get("students", {}).values())
    content = [arrays, _with_paths(described, lambda path: Path(path.name))]
    return PreparedKeys(fingerprint(files)[:32], fingerprint(content)[:32])


@functools.cache
def _fetched(local_store: ArtifactStore, name: str) -> Path:
    folder = local_store.fetch(name)
    if folder is None:
        raise StorageGone(
            f"{local_store.remote}/{name}: not in the storage, or not whole; repeat the command that makes it"
        )
    return folder


@functools.cache
def _pushed_folder(remote: Remote, folder: Path) -> str:
    return push_folder(remote, folder)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""


def _with_paths(value: Any, change: Callable[[Path], Path], name: str = "") -> Any:
    """`value`, the field `name` of something, with every absolute path in it changed; of a student that of its encoder."""

    def text(path: str) -> str:
        return str(change(Path(path))) if path.startswith("/") and "\n" not in path else path

    if isinstance(value, str):
        return with_encoder(value, text) if name == "student" else text(value)
    if isinstance(value, Path):
        return change(value)
    if isinstance(value, SentenceFile):
        return SentenceFile(*map(change, value.paths))
    if isinstance(value, dict):
        return {key: _with_paths(part, change, key) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_paths(part, change) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {
            f.name: _with_paths(getattr(value, f.name), change, f.name) for f in dataclasses.fields(value) if f.init
        }
        return replace(value, **parts)
    return value


def paths_in(value: Any) -> list[Path]:
    """The absolute paths in a value."""
    paths: list[Path] = []

    def note(path: Path) -> Path:
        paths.append(path)
        return path

    _with_paths(value, note)
    return [path for path in paths if path.is_absolute()]
