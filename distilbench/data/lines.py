"""The lines of a text file as bytes, plain or gzipped, in bounded memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from distilbench.errors import InputError

LONGEST_LINE = 1 << 24
"""Bytes. A file without line ends is refused at this length instead of being read into memory whole."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Row number (the first is 1) and the line with its end; a line ends at "\n" alone, the first loses its byte order mark.

    Raises:
        InputError: the file cannot be opened, ends too early or is damaged (gzip), or has a line above `LONGEST_LINE`.
    """
    row = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                row += 1
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    raise InputError(
                        f"{path}, row {row}: a line of more than {LONGEST_LINE} bytes; expected one row a line"
                    )
                yield row, line.removeprefix(_BYTE_ORDER_MARK) if row == 1 else line
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read after row {row}: {error}") from None


def decoded(path: Path, row: int, line: bytes) -> str | InputError:
    """A line as text, without its end; an InputError, not raised, where it is not UTF-8."""
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        return InputError(f"{path}, row {row}: not UTF-8 ({error.reason} at byte {error.start} of the row)")
