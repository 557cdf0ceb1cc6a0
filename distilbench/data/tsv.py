"""Plain TSV with a header line, LF, no quoting; optionally gzipped. Errors name file, row and value."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from distilbench.errors import InputError


def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Row number (the header is row 1) and the values of `columns`, in that order.

    Raises:
        InputError: the file is not UTF-8 or not gzip, a column is absent from the header, or a row has another number
            of fields than the header.
    """
    row = 1
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            header = file.readline().decode("utf-8-sig").rstrip("\r\n").split("\t")
            absent = [c for c in columns if c not in header]
            if absent:
                raise InputError(f"{path}, row 1: no column {absent[0]!r}; the header is {header}")
            positions = [header.index(c) for c in columns]
            for row, line in enumerate(file, start=2):
                fields = line.decode().rstrip("\r\n").split("\t")
                if len(fields) != len(header):
                    raise InputError(
                        f"{path}, row {row}: {len(fields)} fields, expected {len(header)} as in the header"
                    )
                yield row, [fields[p] for p in positions]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, row {row}: not UTF-8 ({error.reason} at byte {error.start} of the row)") from None
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read after row {row}: {error}") from None


def sentence(path: Path, row: int, column: str, value: str) -> str:
    """`value` without surrounding blanks.

    Raises:
        InputError: nothing is left.
    """
    text = value.strip()
    if not text:
        raise InputError(f"{path}, row {row}: column {column!r} is empty; expected a sentence")
    return text


def number(path: Path, row: int, column: str, value: str) -> float:
    """`value` as a finite number.

    Raises:
        InputError: it is not one.
    """
    try:
        parsed = float(value)
    except ValueError:
        parsed = math.nan
    if not math.isfinite(parsed):
        raise InputError(f"{path}, row {row}: column {column!r} is {value!r}; expected a number")
    return parsed


def flag(path: Path, row: int, column: str, value: str) -> bool:
    """`value` as a truth value.

    Raises:
        InputError: it is neither "0" nor "1".
    """
    if value not in ("0", "1"):
        raise InputError(f"{path}, row {row}: column {column!r} is {value!r}; expected 0 or 1")
    return value == "1"
