"""One driver at a time: a small file in the storage says whose a run is, and a heartbeat that it is alive."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import Any

from rich.console import Console

from distilbench.errors import InputError
from distilbench.storage.process import process_mark
from distilbench.storage.remote import Remote
from distilbench.storage.retry import StorageGone
from distilbench.storage.scratch import identity

FILE = "owner.json"
BEAT_S = 30.0
DEAD_S = 180.0
"""Without a heartbeat for so long, a driver is taken to be dead."""
LOOK_S = 5.0
END_S = 10.0
"""A driver that ends for an error does not wait longer for what its threads are at."""


class Owner:
    """The ownership of `run`; taken by `take`, kept by a thread until `release`."""

    def __init__(self, run: Remote, console: Console) -> None:
        self.run, self.console = run, console
        self.me, self.process = identity(), f"{os.getpid()} {process_mark(os.getpid())}"
        self.before = ""
        """Whose the run was."""
        self.lost = ""
        """Whose it has become, where another machine took it over."""
        self._beats, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="owner", daemon=True)

    def take(self) -> None:
        """Take the run, at once from this machine's own earlier driver, from another when it has been silent for DEAD_S.

        A driver that is alive keeps it: an InputError.
        """
        owner = self._read()
        self.before = str(owner["owner"]) if owner else ""
        if owner is not None and not owner.get("released"):
            pid, _, mark = str(owner["process"]).partition(" ")
            if self.before != self.me:
                self._wait_until_dead(owner)
            elif owner["process"] != self.process and process_mark(int(pid)) == mark:
                raise InputError(f"{self.run}: another process of this machine is running it (number {pid})")
        self._write()
        if self.before not in ("", self.me):
            time.sleep(min(2.0, DEAD_S / 10))  # two that took over at once: the second one's word counts
            if (self._read() or {}).get("owner") != self.me:
                raise InputError(
                    f"{self.run}: another driver took it over at this moment; wait for it, or take another --name"
                )
        self._thread.start()

    def _wait_until_dead(self, owner: dict[str, Any]) -> None:
        """Listen for a heartbeat of another machine's driver: an InputError where there is one."""
        host, dead_at = str(owner["owner"]).rpartition("-")[0], time.monotonic() + DEAD_S
        self.console.print(
            f"{self.run}: a driver on {host} has not said that it ended; waiting {DEAD_S:.0f} s whether it is alive",
            markup=False,
        )
        while time.monotonic() < dead_at:
            time.sleep(min(LOOK_S, DEAD_S / 10))
            now = self._read()
            if now is None or now.get("released"):
                return
            if (now["owner"], now["beat"]) != (owner["owner"], owner["beat"]):
                raise InputError(
                    f"{self.run}: a driver on {host} is at work on it; wait for it, or choose another --name"
                )
        self.console.print(f"{self.run}: the driver on {host} is gone; this one goes on with the run", markup=False)

    def _read(self) -> dict[str, Any] | None:
        with contextlib.suppress(ValueError):
            owner = json.loads(self.run.read(FILE) or b"null")
            if isinstance(owner, dict) and {"owner", "process", "beat"} <= owner.keys():
                return owner
        return None

    def _write(self, *, released: bool = False) -> None:
        self._beats += 1
        beat = {"owner": self.me, "process": self.process, "beat": self._beats, "released": released}
        self.run.write(FILE, (json.dumps(beat) + "\n").encode())

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with contextlib.suppress(
                Exception
            ):  # whatever it is: it is tried again; who waits too long may lose the run
                now = self._read()
                if now is not None and now["owner"] != self.me:
                    self.lost = str(now["owner"]).rpartition("-")[0]
                    return
                self._write()

    def check(self) -> None:
        """Raise an InputError where another machine has taken the run over."""
        if self.lost:
            raise InputError(
                f"{self.run}: a driver on {self.lost} has taken the run over, since this one was not heard of for "
                f"{DEAD_S:.0f} s; this one ends"
            )

    def release(self) -> None:
        """Say that nobody is at work on it any more; an error here is none: a silent owner is dead after a while."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        if not self.lost and not self._thread.is_alive():
            with contextlib.suppress(StorageGone, OSError):
                self._write(released=True)
