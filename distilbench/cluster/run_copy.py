"""A run in storage: the driver's copy of its folder, some seconds old, from which another machine goes on.

Trainings (`trials/`, `confirm/`) are copied by the workers that they are on; the study is copied by SQLite's own backup.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from distilbench.cluster.owner import END_S, Owner
from distilbench.cluster.owner import FILE as OWNER
from distilbench.cluster.path_map import PREPARED, PathMap, map_run
from distilbench.errors import InputError
from distilbench.events import Event
from distilbench.storage.files import remove_folder, write_json
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote
from distilbench.storage.retry import StorageGone
from distilbench.storage.store import ArtifactStore

EVERY_S = 30.0
TRAININGS = ("trials", "confirm")
NOT_COPIED = (*TRAININGS, "tune", PREPARED)
"""Folders of a run (or of a method's run in it) that are left out; `prepared` is copied when trials are to read it."""
FIXED = ("students", "predictions", "wandb")
"""Folders whose files do not change once they are there."""

_active: RunCopy | None = None


def active_copy() -> RunCopy | None:
    """The copy of the run that this process drives; None where there is no storage."""
    return _active


def active_map() -> PathMap | None:
    """Where workers on other nodes find what this driver has; None: under the driver's paths."""
    return _active.path_map if _active else None


def copied(name: str) -> bool:
    """Whether a file of a run is copied by the driver."""
    *above, last = name.split("/")
    inner = any(part in NOT_COPIED for part in above[:2])
    hidden = any(part.startswith(".") or part.endswith(".partial") for part in (*above, last))
    return not inner and not hidden and not last.endswith(("-journal", "-wal", "-shm")) and name != OWNER


def _fixed(name: str) -> bool:
    return any(part in FIXED for part in name.split("/")[:-1][:2])


class RunCopy:
    """The copy of a driver's run. As a listener of the sweep's tally it copies at once when a stage ends."""

    def __init__(self, storage: Remote, store: ArtifactStore, run: Path, report: Path, console: Console) -> None:
        self.store, self.run, self.console = store, run, console
        self.remote = storage / "runs" / run.name
        self.owner = Owner(self.remote, console)
        self.path_map: PathMap | None = None
        self._run = FolderCopy(run, self.remote, (".db", ".jsonl"), copied=copied, fixed=_fixed)
        self._report = FolderCopy(report, storage / "reports" / run.name)
        self._failing = ""
        self._forgotten: list[Path] = []
        self._lock, self._wake, self._over = threading.Lock(), threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="run copy", daemon=True)

    # A driver's beginning and end

    def take(self) -> None:
        """Own the run, and have its newest state here; an InputError where another driver is at work on it."""
        self.remote.check()
        self.owner.take()
        try:
            self._adopt()
        except BaseException:
            self.owner.release()
            raise

    def _adopt(self) -> None:
        note = self.run.with_name(f".{self.run.name}.storage.json")
        in_folder = self.run.is_dir() and any(not p.name.startswith(".") for p in self.run.iterdir())
        names = [name for name in self.remote.list() if copied(name) or f"/{PREPARED}/" in f"/{name}"]
        in_storage = any(name.rpartition("/")[2] == "config.json" and "/students/" not in f"/{name}" for name in names)
        copied_to = json.loads(note.read_text()).get("copy") if note.exists() else None
        if in_storage and in_folder and copied_to != str(self.remote):
            raise InputError(
                f"{self.run}: another run of this name is in {self.remote}; choose another --name, or move one away"
            )
        if in_storage and (not in_folder or self.owner.before != self.owner.me):
            self.console.print(f"{self.run}: the run is fetched from {self.remote}", markup=False)
            fresh = self.run.with_name(f".{self.run.name}.fetching")
            remove_folder(fresh)
            self.remote.fetch_all(fresh, names)
            remove_folder(self.run)
            fresh.rename(self.run)
        self.run.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"copy": str(self.remote)})

    def start(self) -> None:
        """From now on the folder is copied."""
        self._thread.start()

    def end(self, *, whole: bool) -> None:
        """The last copy, and the run is nobody's; with `whole` False (the driver ends for an error) only if that is quick."""
        self._over = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(None if whole else END_S)
        idle = self._thread.ident is not None and not self._thread.is_alive()
        try:
            if idle and not self.owner.lost and (whole or not self._failing):
                self._copy()
                if whole:
                    self.console.print(f"In storage: {self.remote} and {self._report.remote}", markup=False)
        except (StorageGone, OSError):
            if whole:
                raise
        finally:
            self.owner.release()

    # While it is at work

    def share(self, run: Path, prepared: Path) -> None:
        """Give the workers of the run in `run` (of one of several methods: below this one) what they need."""
        self.path_map = map_run(self.store, run, self.remote_of(run), prepared)

    def remote_of(self, folder: Path) -> Remote:
        """The copy in the storage of a folder of the run."""
        inside = folder.resolve().relative_to(self.run.resolve()).as_posix()
        return self.remote if inside == "." else self.remote / inside

    def forget(self, training: Path) -> None:
        """Delete a training that nobody goes on with, soon."""
        with self._lock:
            self._forgotten.append(training)

    def keep_trainings(self, run: Path, keep: set[str]) -> None:
        """Delete the trainings of a run's search but those of these names."""
        trials = self.remote_of(run / TRAININGS[0])
        for name in {name.partition("/")[0] for name in trials.list()} - keep:
            (trials / name).delete_all()

    @property
    def lost(self) -> bool:
        """Whether another machine has taken the run over."""
        return bool(self.owner.lost)

    def __call__(self, event: Event) -> None:
        """Copy what a stage, or one of the methods, has left, soon."""
        if event.kind == "stage":
            self.owner.check()
        if event.kind in ("stage", "close"):
            self._wake.set()

    def _work(self) -> None:
        while not self._over:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            if self._over or self.owner.lost:
                return
            try:
                self._copy()
                if self._failing:
                    self.console.print(f"{self.remote}: the storage is back", markup=False)
                self._failing = ""
            except Exception as error:  # whatever it is: the sweep goes on, and so does the copying
                if not self._failing:
                    self.console.print(f"{self.remote}: the copy is late: {error}", markup=False)
                self._failing = str(error)

    def _copy(self) -> None:
        """Records are read first, then the study, then all else; written in the opposite order.

        So the storage always has what records and study speak of, and every trial that is recorded is in the study. Trainings
        are deleted last: a trial that the study there calls interrupted keeps its checkpoints.
        """
        with self._lock:
            forgotten, self._forgotten = self._forgotten, []
        with tempfile.TemporaryDirectory(prefix="distilbench-") as temporary:
            held: dict[str, Path] = {}
            for suffix in (".jsonl", ".db"):
                for name, path in self._run.files().items():
                    if name.endswith(suffix) and "/students/" not in f"/{name}":
                        held[name] = Path(temporary) / f"{len(held)}{suffix}"
                        hold(path, held[name])
            self._run.push(held)
        for training in forgotten:
            self.remote_of(training).delete_all()
        self._report.push()


@contextlib.contextmanager
def run_copy(
    storage: Remote | None, store: ArtifactStore, run: Path, report: Path, console: Console
) -> Iterator[RunCopy | None]:
    """The copy of a run while a driver works on it; None where there is no storage. It is started by the driver."""
    global _active
    if storage is None:
        yield None
        return
    copy = RunCopy(storage, store, run, report, console)
    copy.take()
    _active = copy
    try:
        yield copy
    except BaseException:
        copy.end(whole=False)
        raise
    else:
        copy.end(whole=True)
    finally:
        _active = None


def hold(path: Path, to: Path) -> None:
    """A copy of a file as it is at this moment: of records the whole lines, of a database by its own backup."""
    if path.suffix == ".db":
        source, target = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True, timeout=60), sqlite3.connect(to)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)
    else:
        content = path.read_bytes()
        to.write_bytes(content[: content.rfind(b"\n") + 1])
