"""Columns of text out of a file of any format: TSV, CSV, JSON lines, Parquet, or a sentence a line; in bounded memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distilbench.data.lines import decoded, read_lines
from distilbench.data.tsv import tsv_rows
from distilbench.errors import InputError

BATCH_ROWS = 4096
"""Rows of a Parquet file in memory at once."""
_PAGE_BUFFER = 1 << 20  # bytes of a Parquet column read ahead; by default it is the column's whole row group

Rows = Iterator[tuple[int, str | InputError]]
"""Row numbers as an editor or a spreadsheet shows them, with a sentence or with what is wrong in that row."""
Fields = Iterator[tuple[int, Sequence[object] | InputError]]
"""The same with the values of several columns, as the file has them."""


def read_column(path: Path, column: str) -> Rows:
    """The sentences of `column`, without surrounding blanks; a bad row as its InputError, so that a reader can go on.

    A row is a record: in CSV one may go over several lines. The header of TSV and CSV is row 1, the first row of the others
    is row 1. A plain text file has no columns.

    Raises:
        InputError: the format is not known by the file's name, the column is absent, or the file cannot be read (on).
    """
    what = "the line" if format_of(path) == ".txt" else f"column {column!r}"
    return (
        (row, values if isinstance(values, InputError) else usable(path, row, what, values[0]))
        for row, values in read_columns(path, (column,))
    )


def read_columns(path: Path, columns: Sequence[str], numbers: str = "") -> Fields:
    """The values of `columns`, in that order, unchecked; a bad row as its InputError. Rows are counted as `read_column` does.

    A Parquet column holds strings; the one called `numbers` may hold whole numbers. A plain text file has no columns: its
    only value is the line.

    Raises:
        InputError: as of `read_column`.
    """
    suffix = format_of(path)
    if suffix is None:
        raise InputError(f"{path}: the format is not known by the file's name; expected {FORMATS_TOLD}")
    if suffix == ".parquet":
        return _parquet(path, columns, numbers)
    return _READERS[suffix](path, columns)


def column_names(path: Path) -> list[str]:
    """The columns of a file, of JSON lines those of the first row; none of a plain text file.

    Raises:
        InputError: the format is not known by the file's name, or the file cannot be read.
    """
    suffix = format_of(path)
    if suffix is None:
        raise InputError(f"{path}: the format is not known by the file's name; expected {FORMATS_TOLD}")
    if suffix == ".txt":
        return []
    if suffix == ".parquet":
        return _parquet_names(path)
    text = decoded(path, 1, next(read_lines(path), (1, b""))[1])
    if isinstance(text, InputError):
        raise text
    if suffix in (".jsonl", ".ndjson"):
        record = _json_object(path, 1, text)
        if isinstance(record, InputError):
            raise record
        return list(record)
    return text.split("\t") if suffix == ".tsv" else next(csv.reader([text]), [])


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


def _plain_lines(path: Path, columns: Sequence[str]) -> Fields:
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        yield row, text if isinstance(text, InputError) else (text,)


def _tsv(path: Path, columns: Sequence[str]) -> Fields:
    yield from tsv_rows(path, columns)


def _csv(path: Path, columns: Sequence[str]) -> Fields:
    row = 1
    # Bytes that are not UTF-8 are let through here, and refused where they are in a column that is read.
    reader = csv.reader((line.decode(errors="surrogateescape") for _, line in read_lines(path)), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InputError(f"{path}, row 1: not CSV ({error})") from None
    if absent := [c for c in columns if c not in header]:
        raise InputError(f"{path}, row 1: no column {absent[0]!r}; the header is {header}")
    positions = [header.index(c) for c in columns]
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
            yield row, [fields[p] for p in positions]


def _json_lines(path: Path, columns: Sequence[str]) -> Fields:
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        yield row, text if isinstance(text, InputError) else _json_values(path, row, columns, text)


def _json_values(path: Path, row: int, columns: Sequence[str], line: str) -> Sequence[object] | InputError:
    record = _json_object(path, row, line)
    if isinstance(record, InputError):
        return record
    if absent := [c for c in columns if c not in record]:
        return InputError(f"{path}, row {row}: no column {absent[0]!r}; the columns are {list(record)}")
    return [record[c] for c in columns]


def _json_object(path: Path, row: int, line: str) -> dict[str, object] | InputError:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"{path}, row {row}: malformed JSON ({error}); expected one object a line")
    if not isinstance(record, dict):
        return InputError(f"{path}, row {row}: a JSON {type(record).__name__}; expected one object a line")
    return record


def _parquet(path: Path, columns: Sequence[str], numbers: str = "") -> Fields:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    row = 0
    try:
        with ParquetFile(path, buffer_size=_PAGE_BUFFER, pre_buffer=False) as file:
            schema = file.schema_arrow
            for column in columns:
                if column not in schema.names:
                    raise InputError(f"{path}: no column {column!r}; the columns are {schema.names}")
                kind = schema.field(column).type
                value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                whole = column == numbers and pa.types.is_integer(value_kind)
                if not (whole or pa.types.is_string(value_kind) or pa.types.is_large_string(value_kind)):
                    raise InputError(f"{path}: column {column!r} holds {kind}; expected strings")
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                for values in zip(*(_values(batch.column(column)) for column in columns), strict=True):
                    row += 1
                    yield row, values
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read after row {row}: {reason}") from None


def _parquet_names(path: Path) -> list[str]:
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read after row 0: {reason}") from None


def _values(array: object) -> Iterator[object]:
    """The strings of an Arrow array; Parquet does not check that they are UTF-8, so a bad one comes as its surrogates."""
    try:
        yield from array.to_pylist()  # type: ignore[attr-defined]
    except UnicodeDecodeError:
        import pyarrow as pa

        for value in array.cast(pa.binary()).to_pylist():  # type: ignore[attr-defined]
            yield None if value is None else value.decode(errors="surrogateescape")


_READERS: dict[str, Callable[[Path, Sequence[str]], Fields]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
    ".txt": _plain_lines,
}
FORMATS_TOLD = "NAME.tsv, .csv, .jsonl, .ndjson or .txt (each also with .gz), or .parquet"
