"""Rows of files of any format: TSV, CSV, JSON lines, Parquet, or a line of text each; in bounded memory.

Python's own `csv` and `json` read them, so that an error can name the row. TSV is plain: a header line, LF, no quoting.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from distilbench.errors import InputError

LONGEST_LINE = 1 << 24
"""Bytes. A file without line ends is refused at this length instead of being read into memory whole."""
BATCH_ROWS = 4096
"""Rows of a Parquet file in memory at once."""
_PAGE_BUFFER = 1 << 20  # bytes of a Parquet column read ahead; by default it is the column's whole row group
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_FORMATS = (".tsv", ".csv", ".jsonl", ".ndjson", ".txt", ".parquet")
FORMATS_TOLD = "NAME.tsv, .csv, .jsonl, .ndjson or .txt (each also with .gz), or .parquet"

Rows = Iterator[tuple[int, Sequence[Any]]]
"""Row numbers as an editor or a spreadsheet shows them, with the values of several columns as the file has them."""
_Records = Iterator[tuple[int, str, list[str]]]  # a row's number, how an error names it, its fields


# Files


def files_of(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder whose names match, plain or else gzipped; the plain ones first."""
    plain = sorted(path for path in folder.glob(pattern) if path.is_file())
    names = {f"{path.name}.gz" for path in plain}
    return plain + sorted(p for p in folder.glob(f"{pattern}.gz") if p.name not in names and p.is_file())


def either(folder: Path, name: str) -> Path | None:
    """The first of `files_of` a folder; None where it has none."""
    return next(iter(files_of(folder, name)), None)


def format_of(path: Path) -> str | None:
    """The format of a file by its name, such as ".tsv"; None where it is not known."""
    plain = path.name.removesuffix(".gz")
    suffix = Path(plain).suffix
    known = suffix in _FORMATS and (plain == path.name or suffix != ".parquet")
    return suffix if known else None


# Rows


def read_tsv(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Row number (the header is row 1) and the values of `columns` of a TSV file."""
    return _chosen(path, _tsv(path), columns)


def read_columns(path: Path, columns: Sequence[str], numbers: str = "", optional: Sequence[str] = ()) -> Rows:
    """The values of `columns`, in that order, unchecked. A row that cannot be read is an InputError.

    A row is a record: in CSV one may go over several lines. The header of TSV and CSV is row 1, the first row of the others
    is row 1. A Parquet column holds strings; the one called `numbers` may hold whole numbers. A record of JSON lines may
    lack the `optional` columns (None). A plain text file has no columns: its only value is the line.
    """
    match known_format(path):
        case ".parquet":
            return _parquet(path, columns, numbers)
        case ".tsv":
            return _chosen(path, _tsv(path), columns)
        case ".csv":
            return _chosen(path, _csv(path), columns)
        case ".txt":
            return ((row, (text,)) for row, text in _lines(path))
    return _json_lines(path, columns, optional)


def column_names(path: Path) -> list[str]:
    """The columns of a file, of JSON lines those of the first row; none of a plain text file."""
    match known_format(path):
        case ".txt":
            return []
        case ".parquet":
            with opened_parquet(path) as file:
                return list(file.schema_arrow.names)
        case ".tsv" | ".csv" as suffix:
            return next(_tsv(path) if suffix == ".tsv" else _csv(path), (1, "", []))[2]
    return list(next(_json_objects(path), (1, {}))[1])


# Values


def sentence(where: object, row: int, column: str, value: object) -> str:
    """`value` as a sentence without surrounding blanks; `where` is the file or source."""
    if not isinstance(value, str):
        shown = repr(value)
        problem = f"{shown if len(shown) <= 60 else shown[:57] + '...'}; expected a sentence (a string)"
    elif not (text := value.strip()):
        problem = "empty; expected a sentence"
    else:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes that CSV reading let through, or half a surrogate pair in JSON
            problem = f"not UTF-8 (at character {error.start})"
        else:
            return text
    raise InputError(f"{where}, row {row}: column {column!r} is {problem}")


def finite_number(path: Path, row: int, column: str, value: str) -> float:
    """`value` as a finite number."""
    try:
        parsed = float(value)
    except ValueError:
        parsed = math.nan
    if not math.isfinite(parsed):
        raise InputError(f"{path}, row {row}: column {column!r} is {value!r:.80}; expected a number")
    return parsed


def one_of(path: Path, row: int, column: str, value: str, allowed: Sequence[str]) -> str:
    """`value`, which is one of the `allowed`."""
    if value not in allowed:
        raise InputError(f"{path}, row {row}: column {column!r} is {value!r:.80}; expected {' or '.join(allowed)}")
    return value


def flag(path: Path, row: int, column: str, value: str) -> bool:
    """`value` as a truth value: "0" or "1"."""
    return one_of(path, row, column, value, ("0", "1")) == "1"


# Formats


def known_format(path: Path) -> str:
    """The format of a file, which is known."""
    suffix = format_of(path)
    if suffix is None:
        raise InputError(f"{path}: the format is not known by the file's name; expected {FORMATS_TOLD}")
    return suffix


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""The lines with their ends; a line ends at "\n" alone, the first loses its byte order mark."""
    row = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                row += 1
                if row == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise InputError(f"{path}: it is UTF-16; expected UTF-8")
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    raise InputError(
                        f"{path}, row {row}: a line of more than {LONGEST_LINE} bytes; expected one row a line"
                    )
                if row == 1 and not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
                    raise InputError(f"{path}: its lines end in carriage returns alone; expected line feeds")
                yield row, line.removeprefix(b"\xef\xbb\xbf") if row == 1 else line
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read after row {row}: {error}") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for row, line in _raw_lines(path):
        try:
            yield row, line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            where = f"{path}, row {row}"
            raise InputError(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the row)") from None


def _tsv(path: Path) -> _Records:
    return ((row, f"{path}, row {row}", text.split("\t")) for row, text in _lines(path))


def _csv(path: Path) -> _Records:
    # Bytes that are not UTF-8 are let through here, and refused where they are in a column that is read.
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader((line.decode(errors="surrogateescape") for _, line in _raw_lines(path)), strict=True)
    row = 0
    try:
        for row, fields in enumerate(reader, 1):
            yield row, f"{path}, row {row} (line {reader.line_num})", fields
    except csv.Error as error:
        raise InputError(f"{path}, row {row + 1} (line {reader.line_num}): not CSV ({error})") from None


def _chosen(path: Path, records: _Records, columns: Sequence[str]) -> Rows:
    """The values of `columns` of the rows behind a header."""
    header = next(records, (1, "", [""]))[2]
    if absent := [c for c in columns if c not in header]:
        raise InputError(f"{path}, row 1: no column {absent[0]!r}; the header is {header!s:.200}")
    check_once(path, columns, header)
    positions = [header.index(c) for c in columns]
    for row, where, fields in records:
        if fields in ([], [""]):  # a blank line, which is a value where there is one column
            if len(header) > 1:
                continue
            fields = [""]
        if len(fields) != len(header):
            raise InputError(f"{where}: {len(fields)} fields, expected {len(header)} as in the header")
        yield row, [fields[p] for p in positions]


def check_once(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a file of which several columns have one of the names that are read."""
    if twice := [column for column in columns if names.count(column) > 1]:
        raise InputError(f"{path}: {names.count(twice[0])} columns are called {twice[0]!r}; expected one")


def _json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    outermost: list[tuple[str, Any]] = []

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal outermost
        outermost = pairs  # objects within it are made before it
        return dict(pairs)

    decoder = json.JSONDecoder(object_pairs_hook=as_dict)
    for row, text in _lines(path):
        if not text.strip():
            continue
        try:
            record = decoder.decode(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, row {row}: malformed JSON ({error}); expected one object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{path}, row {row}: a JSON {type(record).__name__}; expected one object a line")
        if len(record) < len(outermost):
            [(key, times)] = Counter(name for name, _ in outermost).most_common(1)
            raise InputError(f"{path}, row {row}: key {key!r} is there {times} times; expected each key once")
        yield row, record


def _json_lines(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Rows:
    for row, record in _json_objects(path):
        if absent := [c for c in columns if c not in record and c not in optional]:
            raise InputError(f"{path}, row {row}: no column {absent[0]!r}; the columns are {list(record)!s:.200}")
        yield row, [record.get(c) for c in columns]


def opened_parquet(path: Path) -> ParquetFile:
    """A Parquet file, of which little is read ahead."""
    try:
        return ParquetFile(path, buffer_size=_PAGE_BUFFER, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, 0, error) from None


def _parquet(path: Path, columns: Sequence[str], numbers: str) -> Rows:
    row = 0
    try:
        with opened_parquet(path) as file:
            schema = file.schema_arrow
            check_once(path, columns, schema.names)
            for column in columns:
                if column not in schema.names:
                    raise InputError(f"{path}: no column {column!r}; the columns are {schema.names!s:.200}")
                kind = schema.field(column).type
                value_kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                whole = column == numbers and pa.types.is_integer(value_kind)
                if not (whole or any(is_text(value_kind) for is_text in _TEXT)):
                    raise InputError(f"{path}: column {column!r} holds {kind}; expected strings")
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                for values in zip(*(_values(batch.column(column)) for column in columns), strict=True):
                    row += 1
                    yield row, values
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, row, error) from None


def unreadable(path: Path, row: int, error: Exception) -> InputError:
    """The error of a file that is damaged behind a row."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(f"{path}: cannot be read after row {row}: {reason}")


def _values(array: Any) -> Iterator[object]:
    """The strings of an Arrow array; Parquet does not check that they are UTF-8, so a bad one comes as its surrogates."""
    try:
        yield from array.to_pylist()
    except UnicodeDecodeError:
        for value in array.cast(pa.binary()).to_pylist():
            yield None if value is None else value.decode(errors="surrogateescape")
