"""Storage that is gone for a moment: what failed is tried again for a while, then said."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from errno import ENOENT
from pathlib import Path
from typing import TypeVar

from distilbench.errors import InputError
from distilbench.heartbeat import beat
from distilbench.storage.files import FULL, DiskFull

LIMIT_S = 120.0
"""Seconds that storage may be gone. A remounted network disk or a locked database is back within a minute or two."""

KEPT = "what is finished is kept"

T = TypeVar("T")


class StorageGone(InputError):
    """Storage did not come back, or is full; the message says what, and that nothing finished is lost."""


def storage_errors() -> tuple[type[Exception], ...]:
    """The errors of failing storage: of files, of SQLite, and of Optuna on any database."""
    import sqlalchemy.exc
    from optuna.exceptions import StorageInternalError
    from safetensors import SafetensorError

    database = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError, sqlalchemy.exc.InternalError)
    return OSError, SafetensorError, sqlite3.OperationalError, StorageInternalError, *database


def retry_io(
    action: Callable[[], T],
    limit_s: float | None = None,
    *,
    what: Path | str = "",
) -> T:
    """`action()`, again and again while storage fails, for `limit_s` seconds (None: LIMIT_S); it must be safe to repeat.

    `what` names what is written, for errors that do not. To wait is a sign of life.
    """
    limit_s = LIMIT_S if limit_s is None else limit_s
    began, pause = time.monotonic(), 0.05
    named = f"{what}: " if what else ""
    # Not while an exception is handled: what these imports keep of their own would keep it, and its frames' tensors.
    failures = storage_errors()
    while True:
        try:
            return action()
        except DiskFull as error:
            raise StorageGone(str(error)) from None
        except failures as error:
            reason = reason_of(error)
            if _is_full(error):
                raise StorageGone(f"{named}{reason}; {KEPT}: make room, then repeat the command") from None
            if time.monotonic() - began > limit_s:
                raise StorageGone(
                    f"{named}storage failed for {limit_s:.0f} s ({reason}); {KEPT}: repeat the command when it is back"
                ) from None
            beat()
            time.sleep(pause)
            pause = min(2.0, 2 * pause)


def require_exists(path: Path) -> None:
    """Raise the error of a file that is gone unless `path` is there.

    Before writing below a folder that always has it: a file written into a mount point without its disk, or into a folder
    that is made anew, is lost when the disk is back.
    """
    if not path.exists():
        raise FileNotFoundError(ENOENT, "storage is gone", str(path))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def reason_of(error: BaseException) -> str:
    """The first cause, the driver's own words: what Optuna says of it does not name it, and SQLAlchemy adds the statement."""
    import sqlalchemy.exc

    first = error
    for cause in _causes(error):
        if isinstance(cause, sqlalchemy.exc.DBAPIError) and cause.orig is not None:
            first = cause.orig
            break
        if isinstance(cause, sqlite3.Error):
            first = cause
            break
    return f"{type(first).__name__}: {' '.join(str(first).split()):.200}"


def _is_full(error: BaseException) -> bool:
    """Whether a disk or a user's share of it is full; SQLite and safetensors have no error number for that."""
    texts = ("database or disk is full", "No space left on device", *(f"(os error {number})" for number in FULL))
    return any(
        (isinstance(cause, OSError) and cause.errno in FULL) or any(text in str(cause) for text in texts)
        for cause in _causes(error)
    )
