"""The one error that a user's input can cause."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class InputError(Exception):
    """Bad input: the message names the file, the row, the value and what was expected.

    The command line prints the message alone, without a traceback, and exits with this status.
    """

    status = 2


class NotAllScored(InputError):
    """Some models could not be scored; the others are, and are published."""

    status = 1


def invalid(error: ValidationError, whole: str = "the file") -> str:
    """The first of pydantic's errors: its place (`whole` where it has none), what is wrong, the value."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']} (got {first['input']!r:.80})"


def unforeseen(error: Exception) -> str:
    """Tell in one line of an error that nobody thought of; its traceback is in a file of its own, which the line names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # What comes from a worker begins with its traceback.
    reason = lines[-1 if "Traceback" in str(error) or lines[0].startswith("ray::") else 0] if lines else ""
    try:
        handle, log = tempfile.mkstemp(prefix="distilbench-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        log = "not written, no temporary folder can be"
    return f"{type(error).__name__}: {reason:.300} (not foreseen; the whole log: {log})"


@contextmanager
def naming(where: object) -> Iterator[None]:
    """Begin the message of bad input with the file, or the option, that it is in."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
