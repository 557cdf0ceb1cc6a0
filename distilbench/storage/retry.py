"""Storage that is gone for a moment: what failed is tried again for a while, then said."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from errno import ENOENT
from pathlib import Path
from typing import TypeVar

from distilbench.errors import InputError
from distilbench.heartbeat import beat
from distilbench.storage.files import FULL, DiskFull

LIMIT_S = 120.0
"""Seconds that storage may be gone. A remounted network disk or a locked database is back within a minute or two."""

KEPT = "what is finished is kept"
FULL_SIGNS = ("database or disk is full", "No space left on device", *(f"(os error {number})" for number in FULL))
"""SQLite and safetensors have no error number for a full disk."""

T = TypeVar("T")


class StorageGone(InputError):
    """Storage did not come back, or is full; the message says what, and that nothing finished is lost."""


def retry_io(action: Callable[[], T], limit_s: float | None = None, *, what: Path | str = "") -> T:
    """`action()`, again and again while storage fails, for `limit_s` seconds (None: LIMIT_S); it must be safe to repeat.

    Storage is files, SQLite, and Optuna on any database. `what` names what is written, for errors that do not. To wait is a
    sign of life.
    """
    # Not while an exception is handled: what these imports keep of their own would keep it, and its frames' tensors.
    from optuna.exceptions import StorageInternalError
    from safetensors import SafetensorError
    from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

    failures = (OSError, SafetensorError, sqlite3.OperationalError, StorageInternalError)
    limit_s = LIMIT_S if limit_s is None else limit_s
    began, pause, named = time.monotonic(), 0.05, f"{what}: " if what else ""
    while True:
        try:
            return action()
        except DiskFull as error:
            raise StorageGone(str(error)) from None
        except (*failures, OperationalError, InterfaceError, InternalError) as error:
            reason = reason_of(error)
            text = str(_first_cause(error))
            if any(sign in text for sign in FULL_SIGNS) or getattr(error, "errno", None) in FULL:
                raise StorageGone(f"{named}{reason}; {KEPT}: make room, then repeat the command") from None
            if time.monotonic() - began > limit_s:
                raise StorageGone(
                    f"{named}storage failed for {limit_s:.0f} s ({reason}); {KEPT}: repeat the command when it is back"
                ) from None
            beat()
            time.sleep(pause)
            pause = min(2.0, 2 * pause)


def reason_of(error: BaseException) -> str:
    """The first cause, the driver's own words: what Optuna says of it does not name it, and SQLAlchemy adds the statement."""
    first = _first_cause(error)
    return f"{type(first).__name__}: {' '.join(str(first).split()):.200}"


def _first_cause(error: BaseException) -> BaseException:
    return error if error.__cause__ is None else _first_cause(error.__cause__)


def require_exists(path: Path) -> None:
    """Raise the error of a file that is gone unless `path` is there.

    Before writing below a folder that always has it: a file written into a mount point without its disk, or into a folder
    that is made anew, is lost when the disk is back.
    """
    if not path.exists():
        raise FileNotFoundError(ENOENT, "storage is gone", str(path))
