"""Sources of unlabelled sentences (`--text`): a file, a folder, a glob, or a dataset of the Hugging Face hub.

A source is read as a stream, whatever its size. hf:NAME[?config=..&split=..&column=..&revision=..] is a hub's dataset, or a
folder: a copy of a dataset repository, or what `save_to_disk` wrote. Code that comes with a dataset is never run (`datasets`
4 and later cannot).
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl

from distilbench.data.readers import FORMATS_TOLD, column_names, format_of, known_format, read_columns, sentence
from distilbench.data.roles import DOCUMENT, PLAIN, QUERY
from distilbench.errors import InputError
from distilbench.storage.files import file_sha256
from distilbench.storage.hub import hub_silence

PREFIX = "hf:"
ROLE_OF = {"questions": QUERY, "queries": QUERY, "passages": DOCUMENT, "documents": DOCUMENT}
"""What the sentences of a file are, by what its name begins with; all else is plain text."""
_OPTIONS = ("config", "split", "column", "revision")
_SAVED = ("state.json", "dataset_dict.json")  # what `save_to_disk` leaves for one split, and for several


@dataclass(frozen=True)
class Texts:
    """Sources of training sentences, read from `column` if the format has columns."""

    sources: tuple[str, ...] = ()
    column: str = "text"


@dataclass
class TextStream:
    """The sentences of one source, in the order of its files and rows.

    Rows without a text are left out: these and the rows `kept` are counted as it is read. `source_column` names the source
    of each sentence, in local files that have it.
    """

    source: str
    column: str
    files: Sequence[Path] = ()
    dataset: HubDataset | None = None
    source_column: str = ""
    kept: int = 0
    empty: int = 0

    @property
    def role(self) -> int:
        """What its sentences are, where the names of all its files say the same; a hub's dataset is plain text."""
        roles = set(map(role_of, self.files))
        return roles.pop() if len(roles) == 1 else PLAIN

    def by_role(self) -> list[TextStream]:
        """The stream as one stream for each role that its files have."""
        roles = dict.fromkeys(map(role_of, self.files))
        return [replace(self, files=[path for path in self.files if role_of(path) == role]) for role in roles] or [self]

    def identity(self) -> list[str]:
        """Identify the sentences before they are read: by the hub's name and commit, else by the files' SHA-256."""
        return self.dataset.identity() if self.dataset else [file_sha256(path) for path in self.files]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The sentences, each with its source ("" where none is named); they may be read again."""
        self.kept = self.empty = 0
        for where, row, (text, *named) in self._rows():
            if text is None or (isinstance(text, str) and not text.strip()):
                self.empty += 1
            else:
                self.kept += 1
                yield sentence(where, row, self.column, text), str(named[0]) if named else ""
        if self.empty and not self.kept:
            raise InputError(f"{self.source}: none of its {self.empty} rows has a text in column {self.column!r}")

    def _rows(self) -> Iterator[tuple[object, int, Sequence[Any]]]:
        if self.dataset:
            yield from ((self.source, row, (text,)) for row, text in self.dataset.read())
        for path in self.files:
            named = self.source_column and self.source_column in column_names(path)
            columns = (self.column, self.source_column) if named else (self.column,)
            yield from ((path, row, values) for row, values in read_columns(path, columns))

    def summary(self) -> str:
        """Describe what was read: "80 sentences (train)", and the rows without one."""
        commit = self.dataset.commit if self.dataset else None
        empty = f"; {self.empty} rows without a text left out" if self.empty else ""
        what = {QUERY: "queries", DOCUMENT: "passages"}.get(self.role, "sentences")
        return f"{self.kept} {what} (train){f' of commit {commit}' if commit else ''}{empty}"


def open_text(source: str, column: str = "text", source_column: str = "") -> TextStream:
    """The stream of a source: a file, a folder (its files of known formats, not those of folders in it), a glob (`**` goes
    through folders), or `hf:NAME`. Files come in the order of their paths.
    """
    if source.startswith(PREFIX):
        dataset = open_hub(source, column)
        return TextStream(source, dataset.column, dataset=dataset)
    return TextStream(source, column, text_files(source), source_column=source_column)


def role_of(path: Path) -> int:
    """Whether the sentences of a file are queries, passages or plain text, by its name (`ROLE_OF`)."""
    return next((role for name, role in ROLE_OF.items() if path.name.lower().startswith(name)), PLAIN)


def text_files(source: str) -> list[Path]:
    """The files of a local source, sorted by path; hidden ones, and those that begin with "_", only where they are named."""
    path = Path(source)
    if path.is_file():
        known_format(path)
        return [path]
    if path.is_dir():
        paths = list(path.iterdir())
    elif any(c in source for c in "*?["):
        paths = [Path(name) for name in glob.glob(source, recursive=True)]
    else:
        raise InputError(f"{source}: no such file or folder; expected one, a glob, or {PREFIX}NAME (a hub's dataset)")
    files = [p for p in paths if p.is_file() and not p.name.startswith((".", "_")) and format_of(p)]
    if not files:
        saved = any((path / name).is_file() for name in _SAVED)
        hint = f"; it is a saved dataset, which {PREFIX}{source} reads" if saved else ""
        raise InputError(f"{source}: no file of a known format; expected {FORMATS_TOLD}{hint}")
    return sorted(files, key=lambda p: p.as_posix())


def text_name(source: str) -> str:
    """Name a corpus after its source: the file's, folder's or data set's name without the format."""
    plain = source.removeprefix(PREFIX).partition("?")[0].rstrip("/")
    name = PurePosixPath(plain.replace("*", "")).name or "text"
    name = re.sub(r"(\.(tsv|csv|jsonl|ndjson|txt|parquet))?(\.gz)?$", "", name)
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "text"


# Datasets of the hub


@dataclass(frozen=True)
class HubDataset:
    """One split, opened. `commit` is the hub's (40 hexadecimal digits); None for a folder."""

    source: str
    column: str
    commit: str | None
    split: Any
    folder: Path

    def identity(self) -> list[str]:
        """The source with its commit, or with the SHA-256 of every file of a folder."""
        if self.commit:
            return [self.source, self.commit]
        return [self.source, *(file_sha256(path) for path in sorted(self.folder.rglob("*")) if path.is_file())]

    def read(self) -> Iterator[tuple[int, object]]:
        """The number of each row, and what its column has."""
        row = 0
        try:
            for row, record in enumerate(self.split, 1):
                if row == 1:
                    _check_column(self.source, self.column, list(record))
                yield row, record.get(self.column)
        except InputError:
            raise
        except Exception as error:  # whatever the library, the network or a file's format raise
            raise InputError(f"{self.source}: cannot be read after row {row}: {_reason(error)}") from None


def open_hub(source: str, column: str) -> HubDataset:
    """Find a dataset and its split; `column` is read unless the source names another.

    On the hub the revision is resolved to its commit first, so that what is read is what it is known by.
    """
    import datasets

    name, options = parse_source(source)
    column, split_name = options.get("column", column), options.get("split", "train")
    folder = Path(name)
    commit = None if folder.is_dir() else _commit(source, name, options.get("revision"))
    try:
        if any((folder / file).is_file() for file in _SAVED):
            saved = datasets.load_from_disk(name)
            splits = saved if isinstance(saved, dict) else {str(saved.split or "train"): saved}
        else:
            splits = datasets.load_dataset(name, options.get("config"), revision=commit, streaming=True)
    except Exception as error:  # the library raises what its many formats and the network raise
        raise InputError(f"{source}: cannot be opened: {_reason(error)}") from None
    if split_name not in splits:
        raise InputError(f"{source}: no split {split_name!r}; expected one of {', '.join(map(str, splits))}")
    split = splits[split_name]
    if split.column_names is not None:
        _check_column(source, column, split.column_names)
        split = split.select_columns([column])
    return HubDataset(source, column, commit, split, folder)


def parse_source(source: str) -> tuple[str, dict[str, str]]:
    """The name in `hf:NAME?...`, and what is said behind it."""
    name, mark, query = source.removeprefix(PREFIX).partition("?")
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if mark else []
    except ValueError:
        options = [("", "")]
    values = dict(options)
    if not name or len(values) < len(options) or not all(key in _OPTIONS and value for key, value in options):
        raise InputError(f"{source}: expected {PREFIX}NAME, then perhaps ? and {'=.. & '.join(_OPTIONS)}=..")
    return name, values


def _commit(source: str, name: str, revision: str | None) -> str:
    import huggingface_hub

    silence = hub_silence()
    try:
        if not silence:
            return str(huggingface_hub.HfApi().dataset_info(name, revision=revision).sha)
    except Exception as error:  # of the network, in many classes
        raise InputError(f"{source}: no such folder, and not to be had from the hub: {_reason(error)}") from None
    raise InputError(f"{source}: the hub cannot be reached: {silence}; expected a folder's name offline")


def _check_column(source: str, column: str, columns: list[str]) -> None:
    if column not in columns:
        raise InputError(f"{source}: no column {column!r}; the columns are {columns}")


def _reason(error: Exception) -> str:
    """The error's text on one line, its class where it has none."""
    return f"{' '.join(str(error).split()) or type(error).__name__:.300}"
