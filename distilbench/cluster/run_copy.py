"""A run in storage: the driver's copy of its folder, some seconds old, from which another machine goes on.

Trainings (`trials/`, `confirm/`) are copied by the workers that they are on; the study is copied by SQLite's own backup. A
small file there says whose the run is, since one driver at a time may write it, and has the heartbeat of that driver.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from distilbench.cluster.driver_files import DriverFiles, share_run
from distilbench.errors import InputError
from distilbench.events import Event
from distilbench.storage.files import write_json
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote
from distilbench.storage.retry import StorageGone
from distilbench.storage.store import ArtifactStore

EVERY_S = 30.0
TRAININGS = ("trials", "confirm")
NOT_COPIED = (*TRAININGS, "tune")
"""Folders of a run (or of a method's run in it) that are left out."""
OWNER = "owner.json"
BEAT_S = 30.0
DEAD_S = 180.0
"""Without a heartbeat for so long, a driver is taken to be dead."""
LOOK_S = 5.0
END_S = 10.0
"""A driver that ends for an error does not wait longer for what its threads are at."""

_active: RunCopy | None = None


def active_copy() -> RunCopy | None:
    """The copy of the run that this process drives; None where there is no storage."""
    return _active


def driver_files() -> DriverFiles | None:
    """How workers on other nodes find what this driver has; None: they see the same disk."""
    return _active.files if _active else None


def copied(name: str) -> bool:
    """Whether a file of a run is copied by the driver."""
    *above, last = name.split("/")
    inner = any(part in NOT_COPIED for part in above[:2])
    hidden = any(part.startswith(".") or part.endswith(".partial") for part in (*above, last))
    return not inner and not hidden and not last.endswith(("-journal", "-wal", "-shm")) and name != OWNER


class Owner:
    """The ownership of a run in the storage; taken by `take`, kept by a thread until `release`.

    `note` is a file beside the run's folder here, of which one process at a time is the writer: it has the name under which
    this folder's drivers own the run.
    """

    def __init__(self, remote: Remote, note: Path, console: Console) -> None:
        self.remote, self.note, self.console = remote, note, console
        noted = json.loads(note.read_text()) if note.exists() else {}
        self.copied_to = noted.get("copy")
        """The storage that this folder's runs were copied to before."""
        self.me = noted.get("owner") or f"{socket.gethostname()}-{uuid.uuid4().hex}"
        self.before = ""
        """Whose the run was."""
        self.lost = ""
        """Whose it has become, where another machine took it over."""
        self._beats, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="owner", daemon=True)

    def take(self) -> None:
        """Take the run, at once from this folder's own earlier driver, from another when it has been silent for DEAD_S.

        A driver that is alive keeps it: an InputError.
        """
        owner = self._read()
        self.before = owner["owner"] if owner else ""
        if owner and not owner["released"] and self.before != self.me:
            self._wait_until_dead(owner)
        self._write()
        if self.before not in ("", self.me):
            time.sleep(min(2.0, DEAD_S / 10))  # two that took over at once: the second one's word counts
            if (self._read() or {}).get("owner") != self.me:
                raise InputError(
                    f"{self.remote}: another driver took it over at this moment; wait for it, or take another --name"
                )
        self._thread.start()

    def keep(self) -> None:
        """Note that the run's folder is what the storage has."""
        self.note.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.note, {"copy": str(self.remote), "owner": self.me})

    def _wait_until_dead(self, owner: dict[str, Any]) -> None:
        host, dead_at = owner["owner"].rpartition("-")[0], time.monotonic() + DEAD_S
        self.console.print(
            f"{self.remote}: a driver on {host} has not said that it ended; waiting {DEAD_S:.0f} s whether it is alive",
            markup=False,
        )
        while time.monotonic() < dead_at:
            time.sleep(min(LOOK_S, DEAD_S / 10))
            now = self._read()
            if now is None or now["released"]:
                return
            if now != owner:
                raise InputError(
                    f"{self.remote}: a driver on {host} is at work on it; wait for it, or choose another --name"
                )
        self.console.print(f"{self.remote}: the driver on {host} is gone; this one goes on with the run", markup=False)

    def _read(self) -> dict[str, Any] | None:
        with contextlib.suppress(ValueError):
            owner = json.loads(self.remote.read(OWNER) or b"null")
            if isinstance(owner, dict) and owner.keys() >= {"owner", "beat", "released"}:
                return owner
        return None

    def _write(self, *, released: bool = False) -> None:
        self._beats += 1
        beat = {"owner": self.me, "beat": self._beats, "released": released}
        self.remote.write(OWNER, (json.dumps(beat) + "\n").encode())

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            # Whatever goes wrong, it is tried again; who is silent too long loses the run.
            with contextlib.suppress(Exception):
                now = self._read()
                if now is not None and now["owner"] != self.me:
                    self.lost = now["owner"].rpartition("-")[0]
                    return
                self._write()

    def release(self) -> None:
        """Say that nobody is at work on it any more; an error here is none: a silent owner is dead after a while."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        if not self.lost and not self._thread.is_alive():
            with contextlib.suppress(StorageGone, OSError):
                self._write(released=True)


class RunCopy:
    """The copy of a driver's run. As a listener of the sweep's tally it copies at once when a stage ends."""

    def __init__(self, storage: Remote, store: ArtifactStore, run: Path, report: Path, console: Console) -> None:
        self.store, self.run, self.console = store, run, console
        self.remote = storage / "runs" / run.name
        self.owner = Owner(self.remote, run.with_name(f".{run.name}.storage.json"), console)
        self.files: DriverFiles | None = None
        # Every trial that is recorded is in the study there, and whatever the study and the records name.
        self._run = FolderCopy(run, self.remote, (".db", ".jsonl"), copied=copied, hold=hold)
        self._report = FolderCopy(report, storage / "reports" / run.name)
        self._failing = ""
        self._forgotten: list[Path] = []
        self._wake, self._over = threading.Event(), False
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
        in_folder = self.run.is_dir() and any(not p.name.startswith(".") for p in self.run.iterdir())
        names = [name for name in self.remote.list() if copied(name)]
        in_storage = any(name.rpartition("/")[2] == "config.json" and "/students/" not in f"/{name}" for name in names)
        if in_storage and in_folder and self.owner.copied_to != str(self.remote):
            raise InputError(
                f"{self.run}: another run of this name is in {self.remote}; choose another --name, or move one away"
            )
        if in_storage and (not in_folder or self.owner.before != self.owner.me):
            self.console.print(f"{self.run}: the run is fetched from {self.remote}", markup=False)
            self._run.fetch(names)
        self.owner.keep()

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
        self.files = share_run(self.store, run, self.remote_of(run), prepared)

    def remote_of(self, folder: Path) -> Remote:
        """The copy in the storage of a folder of the run."""
        inside = folder.resolve().relative_to(self.run.resolve()).as_posix()
        return self.remote if inside == "." else self.remote / inside

    def forget(self, training: Path) -> None:
        """Delete a training that nobody goes on with, soon."""
        self._forgotten.append(training)

    def keep_trainings(self, run: Path, keep: set[str]) -> None:
        """Delete the trainings of a run's search but those of these names."""
        trials = self.remote_of(run / TRAININGS[0])
        for name in {name.partition("/")[0] for name in trials.list()} - keep:
            (trials / name).delete_all()

    def __call__(self, event: Event) -> None:
        """Copy what a stage, or one of the methods, has left, soon."""
        if event.kind == "stage" and self.owner.lost:
            raise InputError(
                f"{self.remote}: a driver on {self.owner.lost} has taken the run over, since this one was not heard of for "
                f"{DEAD_S:.0f} s; this one ends"
            )
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
        """Trainings are deleted last: a trial that the study there calls interrupted keeps its checkpoints."""
        forgotten = len(self._forgotten)
        self._run.push()
        for _ in range(forgotten):
            self.remote_of(self._forgotten[0]).delete_all()
            self._forgotten.pop(0)
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
