"""Plain TSV with a header line, LF, no quoting; optionally gzipped. Errors name file, row and value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from distilbench.data.lines import decoded, read_lines
from distilbench.errors import InputError


def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Row number (the header is row 1) and the values of `columns`, in that order.

    Raises:
        InputError: the file is not UTF-8 or not gzip, a column is absent from the header, or a row has another number
            of fields than the header.
    """
    for row, fields in tsv_rows(path, columns):
        if isinstance(fields, InputError):
            raise fields
        yield row, fields


def tsv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str] | InputError]]:
    """As `read_tsv`, but a bad row is given as its InputError, and reading can go on behind it.

    Raises:
        InputError: the file cannot be read, or a column is absent from the header.
    """
    lines = read_lines(path)
    first = decoded(path, 1, next(lines, (1, b""))[1])
    if isinstance(first, InputError):
        raise first
    header = first.split("\t")
    absent = [c for c in columns if c not in header]
    if absent:
        raise InputError(f"{path}, row 1: no column {absent[0]!r}; the header is {header}")
    positions = [header.index(c) for c in columns]
    for row, line in lines:
        text = decoded(path, row, line)
        if isinstance(text, InputError):
            yield row, text
            continue
        fields = text.split("\t")
        if len(fields) != len(header):
            yield row, InputError(f"{path}, row {row}: {len(fields)} fields, expected {len(header)} as in the header")
        else:
            yield row, [fields[p] for p in positions]


def sentence(path: Path, row: int, column: str, value: str) -> str:
    """`value` without surrounding blanks.

    Raises:
        InputError: nothing is left.
    """
    text = value.strip()
    if not text:
        raise InputError(f"{path}, row {row}: column {column!r} is empty; expected a sentence")
    return text


def finite_number(path: Path, row: int, column: str, value: str) -> float:
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
