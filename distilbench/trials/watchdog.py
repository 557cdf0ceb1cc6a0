"""A worker that hangs ends itself: its stacks go to a file, and whoever started it starts it again."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from pathlib import Path
from types import TracebackType

from distilbench.heartbeat import Subscription, subscribe, unsubscribe
from distilbench.storage.retry import retry_io

ARM_EVERY_S = 1.0
"""Arming starts a thread in C, some 50 microseconds: too much for every step of a small head."""

MARK = "Timeout ("
"""What each dump begins with."""


class Watchdog:
    """Inside `with`, the process ends unless `alive` is called every `limit_s` seconds; 0 is no limit.

    What the work inside says of itself (`heartbeat.beat`) is such a call too.

    Python's faulthandler does it in a thread of its own, without the interpreter's lock: a call that never returns to
    Python is noticed too. Where no thread runs any more (the process was stopped), the driver notices (`search.trial`).
    """

    def __init__(self, file: Path, limit_s: float) -> None:
        self.path, self.limit_s, self._armed_at = file, limit_s, 0.0
        self._listening: Subscription | None = None

    def __enter__(self) -> Watchdog:
        if self.limit_s:
            # Of the folders above it none is made: where they are missing, the run's storage is gone.
            retry_io(lambda: self.path.parent.mkdir(exist_ok=True))
            self._file = retry_io(lambda: self.path.open("a"))
            self._armed_at = -ARM_EVERY_S
            self.alive()
        self._listening = subscribe(self.alive)
        return self

    def alive(self) -> None:
        """There is progress."""
        now = time.monotonic()
        if self.limit_s and now - self._armed_at > min(ARM_EVERY_S, self.limit_s / 4):
            faulthandler.dump_traceback_later(self.limit_s, exit=True, file=self._file)
            self._armed_at = now

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listening is not None:
            unsubscribe(self._listening)
            self._listening = None
        if self.limit_s:
            faulthandler.cancel_dump_traceback_later()
            empty = not os.fstat(self._file.fileno()).st_size
            self._file.close()
            with contextlib.suppress(OSError):  # an empty file does no harm
                if empty:
                    self.path.unlink()

    def hangs(self) -> int:
        """How often this has ended a process."""
        return self.path.read_text(errors="replace").count(MARK) if self.path.exists() else 0
