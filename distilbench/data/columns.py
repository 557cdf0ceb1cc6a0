"""One column of text out of a file of any format: TSV, CSV, JSON lines, Parquet, or a sentence a line; in bounded memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from distilbench.data.lines import decoded, read_lines
from distilbench.data.tsv import tsv_rows
from distilbench.errors import InputError

BATCH_ROWS = 4096
"""Rows of a Parquet file in memory at once."""
_PAGE_BUFFER = 1 << 20  # bytes of a Parquet column read ahead; by default it is the column's whole row group

Rows = Iterator[tuple[int, str | InputError]]
"""Row numbers as an editor or a spreadsheet shows them, with a sentence or with what is wrong in that row."""


def read_column(path: Path, column: str) -> Rows:
    """The sentences of `column`, without surrounding blanks; a bad row as its InputError, so that a reader can go on.

    A row is a record: in CSV one may go over several lines. The header of TSV and CSV is row 1, the first row of the others
    is row 1. A plain text file has no columns.

    Raises:
        InputError: the format is not known by the file's name, the column is absent, or the file cannot be read (on).
    """
    suffix = format_of(path)
    if suffix is None:
        raise InputError(f"{path}: the format is not known by the file's name; expected {FORMATS_TOLD}")
    return _READERS[suffix](path, column)


def format_of(path: Path) -> str | None:
    """Which of `_READERS` reads a file, by its name; None where none does."""
    plain = path.name.removesuffix(".gz")
    suffix = Path(plain).suffix
    known = suffix in _READERS and (plain == path.name or suffix != ".parquet")
    return suffix if known else None


def usable(where: object, row: int, what: str, value: object) -> str | InputError:
    """`value` as a sentence without surrounding blanks; an InputError, not raised, where it is none.

    `where` is the file or source, `what` the column as a reader is told of it.
    """
    if not isinstance(value, str):
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return InputError(f"{where}, row {row}: {what} is {shown}; expected a sentence (a string)")
    text = value.strip()
    if not text:
        return InputError(f"{where}, row {row}: {what} is empty; expected a sentence")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes that CSV reading let through, or half a surrogate pair in JSON
            return InputError(f"{where}, row {row}: {what} is not UTF-8 (at character {error.start})")
    return text


def _plain_lines(path: Path, column: str) -> Rows:
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        yield row, text if isinstance(text, InputError) else usable(path, row, "the line", text)


def _tsv(path: Path, column: str) -> Rows:
    what = f"column {column!r}"
    for row, fields in tsv_rows(path, (column,)):
        yield row, fields if isinstance(fields, InputError) else usable(path, row, what, fields[0])


def _csv(path: Path, column: str) -> Rows:
    what, row = f"column {column!r}", 1
    # Bytes that are not UTF-8 are let through here, and refused where they are in the column that is read.
    reader = csv.reader((line.decode(errors="surrogateescape") for _, line in read_lines(path)), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InputError(f"{path}, row 1: not CSV ({error})") from None
    if column not in header:
        raise InputError(f"{path}, row 1: no column {column!r}; the header is {header}")
    position = header.index(column)
    while True:
        row += 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield row, InputError(f"{path}, row {row} (line {reader.line_num}): not CSV ({error})")
            continue
        if fields is None:
            return
        if len(fields) != len(header):
            wrong = f"{len(fields)} fields, expected {len(header)} as in the header"
            yield row, InputError(f"{path}, row {row} (line {reader.line_num}): {wrong}")
        else:
            yield row, usable(path, row, what, fields[position])


def _json_lines(path: Path, column: str) -> Rows:
    what = f"column {column!r}"
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        yield row, text if isinstance(text, InputError) else _json_value(path, row, column, what, text)


def _json_value(path: Path, row: int, column: str, what: str, line: str) -> str | InputError:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"{path}, row {row}: malformed JSON ({error}); expected one object a line")
    if not isinstance(record, dict):
        return InputError(f"{path}, row {row}: a JSON {type(record).__name__}; expected one object a line")
    if column not in record:
        return InputError(f"{path}, row {row}: no column {column!r}; the columns are {list(record)}")
    return usable(path, row, what, record[column])


def _parquet(path: Path, column: str) -> Rows:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    what, row = f"column {column!r}", 0
    try:
        with ParquetFile(path, buffer_size=_PAGE_BUFFER, pre_buffer=False) as file:
            schema = file.schema_arrow
            if column not in schema.names:
                raise InputError(f"{path}: no column {column!r}; the columns are {schema.names}")
            kind = schema.field(column).type
            value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not (pa.types.is_string(value_kind) or pa.types.is_large_string(value_kind)):
                raise InputError(f"{path}: column {column!r} holds {kind}; expected strings")
            for batch in file.iter_batches(BATCH_ROWS, columns=[column]):
                for value in _values(batch.column(0)):
                    row += 1
                    yield row, usable(path, row, what, value)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read after row {row}: {reason}") from None


def _values(array: object) -> Iterator[object]:
    """The strings of an Arrow array; Parquet does not check that they are UTF-8, so a bad one comes as its surrogates."""
    try:
        yield from array.to_pylist()  # type: ignore[attr-defined]
    except UnicodeDecodeError:
        import pyarrow as pa

        for value in array.cast(pa.binary()).to_pylist():  # type: ignore[attr-defined]
            yield None if value is None else value.decode(errors="surrogateescape")


_READERS: dict[str, Callable[[Path, str], Rows]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
    ".txt": _plain_lines,
}
FORMATS_TOLD = "NAME.tsv, .csv, .jsonl, .ndjson or .txt (each also with .gz), or .parquet"
