"""Documents to index: their ids and texts out of one file of any format, streamed onto disk, each id once."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distilbench.data.columns import column_names, format_of, read_columns, usable
from distilbench.data.sentences import FILE, TEXT, SentenceFile, in_batches, write_arrow
from distilbench.errors import InputError
from distilbench.storage.files import atomic_path, file_sha256, fingerprint
from distilbench.storage.store import ArtifactStore

ID_COLUMNS = ("doc_id", "_id", "id")
"""Where no column of ids is named, the first of these that a file has: those of retrieval sets, and the usual one."""
MARK = "is_beir_query"
"""In a `corpus.tsv` the rows that are marked in this column are queries, and no documents."""
TITLE = "title"
"""In BEIR's JSON lines (with `_id`) it comes before the text."""
IDS = "ids.txt"
STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it writes."""


@dataclass(frozen=True)
class Columns:
    """Where a file of documents has ids and texts; `id` is "" where the ids are line numbers."""

    id: str
    text: str
    title: str = ""
    mark: str = ""

    @property
    def read(self) -> tuple[str, ...]:
        """The columns to read, the id first."""
        return tuple(c for c in (self.id, self.text, self.title, self.mark) if c)


@dataclass(frozen=True)
class DocumentFiles:
    """Documents as files: the texts, the ids (a line each, in their order), and the fingerprint of both."""

    texts: SentenceFile
    ids: Path
    fingerprint: str


def documents_artifact(path: Path, id_column: str | None, text_column: str, store: ArtifactStore) -> DocumentFiles:
    """The documents of a file, written into the store if they are not there. In memory: 8 bytes for each document.

    Raises:
        InputError: the file cannot be read, has no such column, no document, a row without an id or a text, or an id twice.
            File, row and value are named.
    """
    if not path.is_file():
        raise InputError(f"--documents {path}: no such file")
    columns = columns_of_documents(path, id_column, text_column)
    parts: dict[str, Any] = {"file": file_sha256(path), "columns": columns.read, "name": format_of(path)}
    parts["step_version"] = STEP_VERSION
    schema = pa.schema([(TEXT, pa.string())])

    def make(folder: Path, missing: list[str]) -> None:
        with atomic_path(folder / IDS) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as ids:
            digests = array("q")

            def texts() -> Iterator[str]:
                for _, name, text in read_documents(path, columns):
                    ids.write(f"{name}\n")
                    digests.append(_digest(name))
                    yield text

            batches = (pa.record_batch([pa.array(batch, pa.string())], schema=schema) for batch in in_batches(texts()))
            if not write_arrow(folder / FILE, batches, schema):
                raise InputError(f"{path}: no document in it; expected at least one")
            if columns.id:
                _check_once(path, columns, digests)

    folder = store.build("indexed-documents", parts, [FILE, IDS], make)
    return DocumentFiles(SentenceFile(folder / FILE), folder / IDS, fingerprint(parts))


def columns_of_documents(path: Path, id_column: str | None, text_column: str) -> Columns:
    """The columns that are read of a file; its first of `ID_COLUMNS` where no `id_column` is named.

    Raises:
        InputError: the file has no such column, or its format is not known.
    """
    names = column_names(path)
    if format_of(path) == ".txt":
        if id_column:
            raise InputError(f"--id-column {id_column}: {path} is plain text, whose ids are its line numbers")
        return Columns("", text_column)
    if id_column is None:
        id_column = next((name for name in ID_COLUMNS if name in names), None)
        if id_column is None:
            raise InputError(
                f"{path}: no column of ids; expected {', '.join(ID_COLUMNS)} or another by --id-column, found {names}"
            )
    for option, name in (("--id-column", id_column), ("--text-column", text_column)):
        if name not in names:
            raise InputError(f"{path}: no column {name!r}; the columns are {names} ({option} names another)")
    if id_column == text_column:
        raise InputError(f"--id-column {id_column}: that is the column of the texts; expected another")
    beir = format_of(path) in (".jsonl", ".ndjson") and id_column == "_id" and TITLE in names
    mark = MARK if MARK in names and format_of(path) == ".tsv" else ""
    return Columns(id_column, text_column, TITLE if beir else "", mark)


def read_documents(path: Path, columns: Columns) -> Iterator[tuple[int, str, str]]:
    """Row, id and text of each document.

    Raises:
        InputError: a row is malformed, or lacks an id or a text; file, row and value are named.
    """
    if not columns.id:
        for row, values in read_columns(path, ()):
            yield row, str(row), _good(usable(path, row, "the line", _good(values)[0]))
        return
    for row, values in read_columns(path, columns.read, numbers=columns.id):
        found = dict(zip(columns.read, _good(values), strict=True))
        if columns.mark and found[columns.mark] not in ("0", "1"):
            raise InputError(f"{path}, row {row}: column {MARK!r} is {found[MARK]!r}; expected 0 or 1")
        if columns.mark and found[columns.mark] == "1":
            continue
        text = _good(usable(path, row, f"column {columns.text!r}", found[columns.text]))
        if columns.title and found[TITLE]:
            text = f"{_good(usable(path, row, f'column {TITLE!r}', found[TITLE]))} {text}"
        yield row, _id(path, row, columns.id, found[columns.id]), text


def _good(value: Any) -> Any:
    if isinstance(value, InputError):
        raise value
    return value


def _id(path: Path, row: int, column: str, value: object) -> str:
    """An id as text: a string, or a whole number. It is a line of a file, so it has no line ends in it."""
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not name.strip() or "\n" in name or "\r" in name:
        raise InputError(
            f"{path}, row {row}: column {column!r} is {value!r:.80}; expected an id: a number, or a text of one line"
        )
    _good(usable(path, row, f"column {column!r}", name))
    return name


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def _check_once(path: Path, columns: Columns, digests: array[int]) -> None:
    """Check that no id is there twice: equal digests first, then the ids themselves."""
    sorted_N = np.sort(np.frombuffer(digests, dtype=np.int64))
    suspects = set(sorted_N[1:][sorted_N[1:] == sorted_N[:-1]].tolist())
    if not suspects:
        return
    first_row: dict[str, int] = {}
    for row, name, _ in read_documents(path, columns):
        if _digest(name) in suspects:
            if name in first_row:
                raise InputError(
                    f"{path}, row {row}: id {name!r} is there already, in row {first_row[name]}; expected each id once"
                )
            first_row[name] = row
