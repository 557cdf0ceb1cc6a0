"""Storage that is gone for a moment: what failed is tried again for a while, then said."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from distilbench.store import DiskFull

LIMIT_S = 120.0
"""How long storage may be gone. A remounted network disk or a locked database is back within a minute or two."""

T = TypeVar("T")


class StorageGone(Exception):
    """Storage did not come back, or is full; the message says what, and that nothing finished is lost."""


def storage_errors() -> tuple[type[Exception], ...]:
    """What is raised where storage fails: by files, by SQLite, and by Optuna on any database."""
    import sqlalchemy.exc
    from optuna.exceptions import StorageInternalError

    return OSError, sqlite3.OperationalError, StorageInternalError, sqlalchemy.exc.OperationalError


def patiently(action: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """`action()`, again and again while storage fails, for `limit_s` seconds; the action must be safe to repeat.

    Raises:
        StorageGone: it failed for that long, or a disk is full (which waiting does not change).
    """
    deadline, pause = time.monotonic() + limit_s, 0.05
    while True:
        try:
            return action()
        except DiskFull as error:
            raise StorageGone(str(error)) from None
        except storage_errors() as error:
            if time.monotonic() > deadline:
                message = " ".join(str(error).split())
                raise StorageGone(
                    f"storage failed for {limit_s:.0f} s ({type(error).__name__}: {message:.200}); what is finished is kept: "
                    "repeat the command when it is back"
                ) from None
            time.sleep(pause)
            pause = min(2.0, 2 * pause)
