"""The one error that a user's input can cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(Exception):
    """Bad input: the message names the file, the row, the value and what was expected.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """


@contextmanager
def naming(where: object) -> Iterator[None]:
    """Begin the message of bad input with the file, or the option, that it is in."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
