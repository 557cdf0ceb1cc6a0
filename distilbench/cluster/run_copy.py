"""A run in storage: the driver's copy of its folder, some seconds old, from which another machine goes on.

Trainings (`trials/`, `confirm/`) are copied by the workers that they are on; the study is copied by SQLite's own backup.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from distilbench.cluster.owner import END_S, Owner
from distilbench.cluster.owner import FILE as OWNER
from distilbench.cluster.place import PREPARED, Place, make_place, of_run
from distilbench.errors import InputError
from distilbench.storage.files import remove_folder, write_json
from distilbench.storage.patience import StorageGone
from distilbench.storage.remote import Remote, files_in
from distilbench.storage.store import ArtifactStore
from distilbench.watchers import Watcher

EVERY_S = 30.0
REPORT_EVERY_S = 60.0
TRAININGS = ("trials", "confirm")
NOT_COPIED = (*TRAININGS, "tune", PREPARED)
"""Folders of a run (or of a method's run in it) that are left out; `prepared` is copied when trials are to read it."""
FIXED = ("students", "predictions", "wandb")
"""Folders whose files do not change once they are there: equal size means equal."""
SMALL = 4 << 20


def copied(name: str) -> bool:
    """Whether a file of a run is copied by the driver."""
    *above, last = name.split("/")
    inner = any(part in NOT_COPIED for part in above[:2])
    hidden = any(part.startswith(".") or part.endswith(".partial") for part in (*above, last))
    return not inner and not hidden and not last.endswith(("-journal", "-wal", "-shm")) and name != OWNER


class _Mirror:
    """One local folder in the storage. Pass after pass it copies what has changed and deletes what is gone."""

    def __init__(self, folder: Path, remote: Remote, *, of_run: bool) -> None:
        self.folder, self.remote, self.of_run = folder, remote, of_run
        self.known: dict[str, tuple[int, int, str]] | None = None

    def copy(self) -> None:
        if self.known is None:
            self.known = self._first()
        with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
            self._copy(self.known, Path(name))

    def _copy(self, copied_looks: dict[str, tuple[int, int, str]], temporary: Path) -> None:
        """Records first are read, then the study, then all else; written in the opposite order.

        So the storage always has what records and study speak of, and every trial that is recorded is in the study.
        """
        snapshots: dict[str, Path] = {}
        kinds: dict[int, list[str]] = {0: [], 1: [], 2: []}
        if self.of_run:
            for suffix, kind in ((".jsonl", 2), (".db", 1)):
                for name, path in self._files().items():
                    if name.endswith(suffix) and "/students/" not in f"/{name}":
                        snapshots[name] = temporary / f"{len(snapshots)}{suffix}"
                        _hold(path, snapshots[name])
                        kinds[kind].append(name)
        files = self._files()
        kinds[0] = [name for name in files if name not in snapshots]
        for kind in (0, 1, 2):
            changed = {}
            for name in kinds[kind]:
                path = snapshots.get(name, files.get(name, self.folder / name))
                with contextlib.suppress(FileNotFoundError):  # replaced or deleted meanwhile: the next pass has it
                    state = path.stat()
                    before = copied_looks.get(name)
                    if before is None or name in snapshots or before[:2] != (state.st_size, state.st_mtime_ns):
                        digest = _digest(path) if state.st_size <= SMALL or name in snapshots else ""
                        look = (state.st_size, state.st_mtime_ns, digest)
                        if before is not None and digest and before[2] == digest:
                            copied_looks[name] = look
                        elif not digest and _fixed(name) and self._already_copied(name, state.st_size, before):
                            copied_looks[name] = look
                        else:
                            changed[name] = (path, look)
            for name, (path, look) in changed.items():
                with contextlib.suppress(FileNotFoundError):
                    self.remote.put(path, name)
                    copied_looks[name] = look
        deleted = (
            [name for name in copied_looks if name not in files] if files else []
        )  # a lost folder does not empty its copy
        self.remote.delete(*deleted)
        for name in deleted:
            del copied_looks[name]

    def _already_copied(self, name: str, size: int, before: tuple[int, int, str] | None) -> bool:
        """Whether a worker, or another driver, has copied it."""
        entry = self.remote.entry(name) if before is None or before[1] == 0 else None
        return entry is not None and entry.size == size

    def _files(self) -> dict[str, Path]:
        files = files_in(self.folder) if self.folder.is_dir() else {}
        return {name: path for name, path in files.items() if not self.of_run or copied(name)}

    def _first(self) -> dict[str, tuple[int, int, str]]:
        """What the storage has, looks unknown."""
        entries = self.remote.list()
        return {name: (entry.size, 0, "") for name, entry in entries.items() if not self.of_run or copied(name)}


class RunCopy(Watcher):
    """The copy of a driver's run. As a watcher of the sweep it copies at once when a stage ends."""

    def __init__(self, storage: Remote, store: ArtifactStore, run: Path, report: Path, console: Console) -> None:
        self.store, self.run, self.console = store, run, console
        self.remote = storage / "runs" / run.name
        self.owner = Owner(self.remote, console)
        self._run = _Mirror(run, self.remote, of_run=True)
        self._report = _Mirror(report, storage / "reports" / run.name, of_run=False)
        self._passes = 0
        self._forgotten: list[Path] = []
        self._lock, self._wake, self._over = threading.Lock(), threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="run copy", daemon=True)
        self._failing = ""

    # A driver's beginning and end

    def take(self) -> None:
        """Own the run, and have its newest state here.

        Raises:
            InputError: another driver is at work on it, or this folder is of another run.
        """
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
        """The last copy, and the run is nobody's; with `whole` False (the driver ends for an error) only if that is quick.

        Raises:
            StorageGone: the last copy failed; what is here is whole.
        """
        self._over = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(None if whole else END_S)
        idle = self._thread.ident is not None and not self._thread.is_alive()
        try:
            if idle and not self.owner.lost and (whole or not self._failing):
                self._copy(report=True)
                if whole:
                    self.console.print(f"In storage: {self.remote} and {self._report.remote}", markup=False)
        except (StorageGone, OSError):
            if whole:
                raise
        finally:
            self.owner.release()

    # While it is at work

    def place(self, run: Path, prepared: Path) -> Place:
        """What the workers of the run in `run` (of one of several methods: below this one) need to know."""
        place = make_place(self.store)
        assert place is not None
        return of_run(place, run, self.remote_of(run), prepared)

    def remote_of(self, folder: Path) -> Remote:
        """What a folder of the run is in the storage."""
        inside = folder.absolute().relative_to(self.run.absolute()).as_posix()
        return self.remote if inside == "." else self.remote / inside

    def forget_trainings(self, run: Path) -> None:
        """Delete the trainings of a run whose trials were set aside."""
        for name in TRAININGS:
            self.remote_of(run / name).delete_all()

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

    def stage(self, name: str) -> None:
        """Copy what the stage before has left, soon."""
        self.owner.check()
        self._wake.set()

    def close(self) -> None:
        """One of the methods is done: copy what it has left, soon."""
        self._wake.set()

    def _work(self) -> None:
        while not self._over:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            if self._over or self.owner.lost:
                return
            try:
                self._copy(report=self._passes * EVERY_S % REPORT_EVERY_S == 0)
                self._passes += 1
                if self._failing:
                    self.console.print(f"{self.remote}: the storage is back", markup=False)
                self._failing = ""
            except Exception as error:  # whatever it is: the sweep goes on, and so does the copying
                if not self._failing:
                    self.console.print(f"{self.remote}: the copy is late: {error}", markup=False)
                self._failing = str(error)

    def _copy(self, *, report: bool) -> None:
        with self._lock:
            forgotten, self._forgotten = self._forgotten, []
        self._run.copy()  # first: a trial that the study there calls interrupted keeps its checkpoints
        for training in forgotten:
            self.remote_of(training).delete_all()
        if report:
            self._report.copy()


@contextlib.contextmanager
def run_copy(
    storage: Remote | None, store: ArtifactStore, run: Path, report: Path, console: Console
) -> Iterator[RunCopy | None]:
    """The copy of a run while a driver works on it; None where there is no storage. It is started by the driver.

    Raises:
        InputError: another driver is at work on it, or the storage cannot be used.
    """
    if storage is None:
        yield None
        return
    copy = RunCopy(storage, store, run, report, console)
    copy.take()
    try:
        yield copy
    except BaseException:
        copy.end(whole=False)
        raise
    copy.end(whole=True)


def _hold(path: Path, to: Path) -> None:
    """A copy of a file as it is at this moment: of records the whole lines, of a database by its own backup."""
    if path.suffix == ".db":
        source, target = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True, timeout=60), sqlite3.connect(to)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)
    else:
        content = path.read_bytes()
        to.write_bytes(content[: content.rfind(b"\n") + 1])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fixed(name: str) -> bool:
    return any(part in FIXED for part in name.split("/")[:-1][:2])
