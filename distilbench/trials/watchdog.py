"""A worker that hangs ends itself: its stacks go to a file, and whoever started it starts it again."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import time
from pathlib import Path
from types import TracebackType

from distilbench.heartbeat import subscribe, unsubscribe
from distilbench.storage.retry import retry_io

HANG_S = 600.0
"""Seconds without progress after which a training's process ends and is started again."""
ARM_EVERY_S = 1.0
"""Arming starts a thread in C, some 50 microseconds: too much for every step of a small head."""
MARK = "Timeout ("
"""What each dump begins with."""


class Watchdog:
    """Inside `with`, the process ends unless `alive` is called every `limit_s` seconds.

    What the work inside says of itself (`heartbeat.beat`) is such a call too.

    Python's faulthandler does it in a thread of its own, without the interpreter's lock: a call that never returns to
    Python is noticed too. Where no thread runs any more (the process was stopped), the driver notices (`search.trial`).
    """

    def __init__(self, file: Path, limit_s: float = HANG_S) -> None:
        self.path, self.limit_s = file, limit_s

    def __enter__(self) -> Watchdog:
        # Of the folders above it none is made: where they are missing, the run's storage is gone.
        retry_io(lambda: self.path.parent.mkdir(exist_ok=True))
        self._file = retry_io(lambda: self.path.open("a"))
        self._armed_at = -math.inf
        self.alive()
        self._listening = subscribe(self.alive)
        return self

    def alive(self) -> None:
        """There is progress."""
        now = time.monotonic()
        if now - self._armed_at > min(ARM_EVERY_S, self.limit_s / 4):
            faulthandler.dump_traceback_later(self.limit_s, exit=True, file=self._file)
            self._armed_at = now

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        unsubscribe(self._listening)
        faulthandler.cancel_dump_traceback_later()
        empty = not os.fstat(self._file.fileno()).st_size
        self._file.close()
        with contextlib.suppress(OSError):  # an empty file does no harm
            if empty:
                self.path.unlink()

    def hangs(self) -> int:
        """How often this has ended a process."""
        return self.path.read_text(errors="replace").count(MARK) if self.path.exists() else 0
