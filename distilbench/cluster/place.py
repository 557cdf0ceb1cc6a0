"""Where a worker finds the driver's files: on the driver's node under its paths, elsewhere in the node's scratch folder.

On another node an artifact, an encoder's folder and the prepared inputs of a run are fetched from storage once, by the first
worker that wants them, and then read from there by all.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from distilbench.cluster.prepared_paths import artifacts_of, with_paths
from distilbench.data.sentences import SentenceFile
from distilbench.encoders.student import MEAN, StudentSpec, with_encoder
from distilbench.storage.artifacts import push_folder
from distilbench.storage.files import file_sha256, fingerprint, remove_folder, write_json
from distilbench.storage.patience import StorageGone
from distilbench.storage.remote import Absent, Remote
from distilbench.storage.scratch import scratch
from distilbench.storage.store import ArtifactStore

PREPARED = "prepared"
PARTIAL = ".partial"
FOLDERS = ".folders.json"
"""The folders of its teacher and student, and their names in the store."""

T = TypeVar("T")


@dataclass(frozen=True)
class PreparedKeys:
    """What tells a run's prepared inputs: `files` tells their exact files, `content` what a training on them depends on."""

    files: str
    content: str


@dataclass(frozen=True)
class Place:
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

    def local(self, path: Path) -> Path:
        """A path of the driver on this node; an artifact, or an encoder's folder, is fetched where it is not there.

        Raises:
            StorageGone: it is not in the storage; or as of `Remote`.
        """
        if self.here:
            return path
        local_store = ArtifactStore(scratch() / "store", self.remote_store)
        if str(path) in self.folders:
            name, inside = self.folders[str(path)], [path.name]
        elif path.is_relative_to(self.store) and path != self.store:
            name, *inside = path.relative_to(self.store).parts
        else:
            return path
        if name.endswith(PARTIAL):
            folder = local_store.root.joinpath(name, *inside)
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        artifact = _fetched(local_store, name)
        return artifact.joinpath(*inside)

    def moved(self, value: T) -> T:
        """`value` with every path in it as it is on this node: of paths, sentence files, and data classes of them."""
        return value if self.here else _moved(value, self.local, self.folders)

    def shard(self, folder: Path, name: str) -> tuple[Remote, str]:
        """Where the file `name` of an unfinished artifact's `folder` (here or on the driver's node) is in storage."""
        root = self.store if folder.is_relative_to(self.store) else scratch() / "store"
        first, *inside = folder.relative_to(root).parts
        return self.remote_store / first.removesuffix(PARTIAL), "/".join([*inside, name])

    # Of a run

    def prepared(self, folder: Path) -> Path:
        """The run's prepared inputs on this node.

        Raises:
            StorageGone: they are not in the storage as the driver left them.
        """
        if self.here:
            return folder
        assert self.remote_run is not None and self.keys is not None
        copy = scratch() / PREPARED / self.keys.files
        if not (copy / "prepared.json").exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{copy}.lock"):
                if not (copy / "prepared.json").exists():
                    self._fetch_prepared(copy)
        self._fetch_artifacts(copy)
        return copy

    def _fetch_prepared(self, copy: Path) -> None:
        assert self.remote_run is not None and self.keys is not None
        remove_folder(copy)
        partial = copy.with_name(f"{copy.name}{PARTIAL}")
        remove_folder(partial)
        try:
            (self.remote_run / PREPARED).fetch_all(partial)
        except Absent:
            partial.mkdir(exist_ok=True)
        if prepared_keys(partial).files != self.keys.files:
            raise StorageGone(f"{self.remote_run}/{PREPARED}: not what the driver left there; repeat the command")
        described = json.loads((partial / "prepared.json").read_text())
        described = with_paths(described, lambda path: str(self.local(Path(path))), self._encoder)
        write_json(partial / "prepared.json", described)
        partial.rename(copy)

    def _encoder(self, name: str) -> str:
        ours = name in self.folders or Path(name).is_relative_to(self.store)  # a pruned one is an artifact
        return str(self.local(Path(name))) if ours else name

    def _fetch_artifacts(self, copy: Path) -> None:
        """Again where a clean-up of the node has deleted them."""
        described = json.loads((copy / "prepared.json").read_text())
        store = scratch() / "store"
        for path in (Path(name) for name in artifacts_of(described) if name):
            if path.is_relative_to(store):
                _fetched(ArtifactStore(store, self.remote_store), path.relative_to(store).parts[0])

    def run_folder(self) -> Path:
        """The run's folder for this node's workers: trials, logs, students on their way."""
        assert self.run is not None and self.remote_run is not None
        if self.here:
            return self.run
        folder = scratch() / "runs" / fingerprint([self.remote_run.uri, self.remote_run.endpoint])[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def in_run(self, path: Path) -> Path:
        """A path of the driver below the run, on this node."""
        assert self.run is not None
        return self.run_folder() / path.relative_to(self.run)

    def remote_of(self, path: Path) -> Remote:
        """What a folder of the driver below the run is in the storage."""
        assert self.run is not None and self.remote_run is not None
        return self.remote_run / path.relative_to(self.run).as_posix()


def make_place(store: ArtifactStore, *values: Any) -> Place | None:
    """The place of this driver; the encoders' folders in `values` go to the storage. None where there is no storage."""
    if store.remote is None:
        return None
    root = store.root.absolute()
    outside = {
        p for value in values for p in _paths(value) if p.is_absolute() and not p.is_relative_to(root) and p.is_dir()
    }
    return Place(root, store.remote, _node(), {str(p): _pushed_folder(store.remote, p) for p in sorted(outside)})


def of_run(place: Place, run: Path, remote_run: Remote, prepared: Path) -> Place:
    """The place for the trials of a run: its prepared inputs go to the storage."""
    described = json.loads((prepared / "prepared.json").read_text())
    students = [described["student"], *(own["student"] for own in described.get("students", {}).values())]
    named = [described["teacher"]["name"], *(StudentSpec.parse(student).encoder or "" for student in students)]
    encoders = make_place(ArtifactStore(place.store, place.remote_store), *(Path(n) for n in named))
    assert encoders is not None
    files = sorted(p.name for p in prepared.iterdir() if p.is_file() and not p.name.startswith("."))
    remote_files = (remote_run / PREPARED).list()
    (remote_run / PREPARED).put_all(prepared, files, last=["prepared.json"])
    (remote_run / PREPARED).delete(*(name for name in remote_files if name not in files))
    remote_run.write(FOLDERS, json.dumps(encoders.folders).encode())  # for `distilbench reproduce`
    return replace(
        place,
        folders={**place.folders, **encoders.folders},
        run=run.absolute(),
        remote_run=remote_run,
        keys=prepared_keys(prepared),
    )


def prepared_keys(folder: Path) -> PreparedKeys:
    """The keys of prepared inputs; both are of no machine but `files`, which has its paths."""
    files = {p.name: file_sha256(p) for p in sorted(folder.glob("*")) if p.is_file() and not p.name.startswith(".")}
    if "prepared.json" not in files:
        return PreparedKeys("", "")
    described = json.loads((folder / "prepared.json").read_text())
    content = {
        "arrays": {name: digest for name, digest in files.items() if name.endswith(".npy")},
        "artifacts": [name and Path(name).name for name in artifacts_of(described)],
        "student": with_encoder(described["student"], lambda name: Path(name).name),
        **({"pooling": pooling} if (pooling := described.get("pooling", MEAN)) != MEAN else {}),
        "dev": described["dev"],
        **({"judged": described["judged"]} if "judged" in described else {}),
    }
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


def _paths(value: Any) -> Iterator[Path]:
    """The paths in a value; a text is one where it could be."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        if value.startswith("/") and len(value) < 4096 and "\n" not in value:
            yield Path(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for part in dataclasses.fields(value):
            yield from _paths(getattr(value, part.name))


def _moved(value: Any, local: Callable[[Path], Path], folders: dict[str, str]) -> Any:
    if isinstance(value, SentenceFile):
        return SentenceFile(*(local(path) for path in value.paths))
    if isinstance(value, Path):
        return local(value)
    if isinstance(value, str):
        return str(local(Path(value))) if value in folders else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _moved(getattr(value, f.name), local, folders) for f in dataclasses.fields(value) if f.init}
        return replace(value, **changed)
    return value
