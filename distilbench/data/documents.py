"""Documents and queries: their ids and texts out of one file of any format; to index, streamed onto disk, each id once."""

from __future__ import annotations

import collections
import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distilbench.data.readers import column_names, flag, format_of, read_columns, sentence
from distilbench.data.sentences import FILE, SentenceFile, text_digest, write_sentences
from distilbench.errors import InputError
from distilbench.storage.files import atomic_path, file_sha256, fingerprint, write_json
from distilbench.storage.store import ArtifactStore

ID_COLUMNS = ("doc_id", "_id", "id")
"""Where no column of ids is named, the first of these that a file has: those of retrieval sets, and the usual one."""
MARK = "is_beir_query"
"""In a `corpus.tsv` the rows that are marked in this column are queries, and no documents."""
TITLE = "title"
"""In BEIR's JSON lines (with `_id`) it comes before the text."""
IDS, FOUND = "ids.txt", "found.json"
STEP_VERSION = 2


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
    """The texts, the ids (a line each, in their order), the fingerprint of both, and how many `empty` ones are left out."""

    texts: SentenceFile
    ids: Path
    fingerprint: str
    empty: int


def documents_artifact(path: Path, id_column: str | None, text_column: str, store: ArtifactStore) -> DocumentFiles:
    """The documents of a file, written into the store if they are not there."""
    if not path.is_file():
        raise InputError(f"--documents {path}: no such file")
    columns = columns_of_documents(path, id_column, text_column)
    parts: dict[str, Any] = {"file": file_sha256(path), "columns": columns.read, "name": format_of(path)}
    parts["step_version"] = STEP_VERSION

    def make(folder: Path, missing: list[str]) -> None:
        with atomic_path(folder / IDS) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            digests, empty = array("q"), 0

            def texts() -> Iterator[str]:
                nonlocal empty
                for _, name, text in read_documents(path, columns):
                    if text:
                        file.write(f"{name}\n")
                        digests.append(int.from_bytes(text_digest(name, 8), "little", signed=True))
                        yield text
                    else:
                        empty += 1

            if not write_sentences(folder / FILE, texts()):
                raise InputError(f"{path}: no document with a text in it; expected at least one")
            if len(np.unique(np.frombuffer(digests, dtype=np.int64))) < len(digests):
                collections.deque(documents_once(path, columns), maxlen=0)  # which names the row
            write_json(folder / FOUND, {"empty": empty})

    folder = store.build("indexed-documents", parts, [FILE, IDS, FOUND], make)
    empty = json.loads((folder / FOUND).read_text())["empty"]
    return DocumentFiles(SentenceFile(folder / FILE), folder / IDS, fingerprint(parts), empty)


def columns_of_documents(path: Path, id_column: str | None, text_column: str) -> Columns:
    """The columns that are read of a file; its first of `ID_COLUMNS` where no `id_column` is named."""
    names = column_names(path)
    if format_of(path) == ".txt":
        if id_column:
            raise InputError(f"--id-column {id_column}: {path} is plain text, whose ids are its line numbers")
        return Columns("", text_column)
    if id_column is None:
        id_column = next((name for name in ID_COLUMNS if name in names), None)
        if id_column is None:
            raise InputError(
                f"{path}: no column of ids; expected {', '.join(ID_COLUMNS)} or another by --id-column, found {names!s:.200}"
            )
    for option, name in (("--id-column", id_column), ("--text-column", text_column)):
        if name not in names:
            raise InputError(f"{path}: no column {name!r}; the columns are {names!s:.200} ({option} names another)")
    if id_column == text_column:
        raise InputError(f"--id-column {id_column}: that is the column of the texts; expected another")
    beir = format_of(path) in (".jsonl", ".ndjson") and id_column == "_id"
    mark = MARK if MARK in names and format_of(path) == ".tsv" else ""
    return Columns(id_column, text_column, TITLE if beir else "", mark)


def documents_once(path: Path, columns: Columns) -> Iterator[tuple[int, str, str]]:
    """Row, id and text of each document as `read_documents` has them; an id comes with a text once."""
    first_row: dict[str, int] = {}
    for row, name, text in read_documents(path, columns):
        if text and first_row.setdefault(name, row) != row:
            raise InputError(
                f"{path}, row {row}: id {name!r} is there already, in row {first_row[name]}; expected each id once"
            )
        yield row, name, text


def read_documents(path: Path, columns: Columns) -> Iterator[tuple[int, str, str]]:
    """Row, id and text of each document; "" where it is empty. Those that are marked as BEIR's queries are left out."""
    if not columns.id:
        yield from ((row, str(row), line.strip()) for row, (line,) in read_columns(path, ()))
        return
    for row, (name, text, *more) in read_columns(path, columns.read, numbers=columns.id, optional=(TITLE,)):
        if columns.mark and flag(path, row, MARK, more[-1]):
            continue
        text = "" if text is None else text
        if isinstance(text, str) and columns.title and isinstance(more[0], str):
            text = f"{more[0].strip()} {text.strip()}"
        empty = isinstance(text, str) and not text.strip()
        yield row, _id(path, row, columns.id, name), "" if empty else sentence(path, row, columns.text, text)


def _id(path: Path, row: int, column: str, value: object) -> str:
    """An id as text: a string, or a whole number. It is a line of a file, so it has no line ends in it."""
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not name.strip() or "\n" in name or "\r" in name:
        raise InputError(
            f"{path}, row {row}: column {column!r} is {value!r:.80}; expected an id: a number, or a text of one line"
        )
    sentence(path, row, column, name)
    return name
