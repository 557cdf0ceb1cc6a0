"""Patience with storage: a moment's failure is waited for, a long one and a full disk are said."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy.exc
from optuna.exceptions import StorageInternalError
from safetensors import SafetensorError

from distilbench.errors import InputError
from distilbench.heartbeat import subscribe, unsubscribe
from distilbench.storage import retry
from distilbench.storage.files import disk_full
from distilbench.storage.retry import StorageGone, retry_io


class Failing:
    """An action that raises `errors`, then gives 7."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return 7


def by(cause: Exception) -> StorageInternalError:
    """Optuna's error, as it raises it."""
    error = StorageInternalError("An exception is raised during the commit.")
    error.__cause__ = sqlalchemy.exc.OperationalError("INSERT", None, cause)
    error.__cause__.__cause__ = cause
    return error


LOCKED = sqlite3.OperationalError("database is locked")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "bad"), FileNotFoundError(2, "none"), SafetensorError("I/O error"), LOCKED, by(LOCKED)],
    ids=lambda e: type(e).__name__,
)
def test_a_moments_failure_is_waited_for(error: Exception) -> None:
    action, waits = Failing(error, error), list[int]()
    listening = subscribe(lambda: waits.append(1))
    assert retry_io(action) == 7
    unsubscribe(listening)
    assert action.calls == 3 and len(waits) == 2, "each wait is a sign of life"


def test_what_is_no_storages_failure_is_not_repeated() -> None:
    action = Failing(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        retry_io(action)
    assert action.calls == 1


def test_a_long_failure_is_said_with_its_first_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LIMIT_S", 0.2)
    with pytest.raises(StorageGone) as raised:
        retry_io(Failing(*(by(LOCKED) for _ in range(99))), what=Path("r/study.db"))
    assert str(raised.value) == (
        "r/study.db: storage failed for 0 s (OperationalError: database is locked); what is finished is kept: "
        "repeat the command when it is back"
    )
    assert isinstance(raised.value, InputError)  # so that the command prints it as one line


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        by(sqlite3.OperationalError("database or disk is full")),
        disk_full(Path("f"), OSError(errno.ENOSPC, "No space left on device")),
    ],
)
def test_a_full_disk_is_said_at_once(error: Exception) -> None:
    action = Failing(error)
    with pytest.raises(StorageGone, match="make room, then repeat the command"):
        retry_io(action, what="f")
    assert action.calls == 1
