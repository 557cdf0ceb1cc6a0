"""Datasets of the Hugging Face hub as a stream of sentences: `hf:NAME[?config=..&split=..&column=..&revision=..]`.

NAME is a hub's dataset, or a folder: a copy of a dataset repository, or what `save_to_disk` wrote. Code that comes with a
dataset is never run (`datasets` 4 and later cannot).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from distilbench.data.readers import usable
from distilbench.errors import InputError
from distilbench.storage.files import file_sha256
from distilbench.storage.hub import hub_silence

PREFIX = "hf:"
_OPTIONS = ("config", "split", "column", "revision")
_SAVED = ("state.json", "dataset_dict.json")  # what `save_to_disk` leaves for one split, and for several


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

    def read(self) -> Iterator[str | InputError]:
        """The sentences; a bad row as its InputError."""
        row, records = 0, iter(self.split)
        while True:
            try:
                record = next(records, None)
            except Exception as error:  # whatever the library, the network or a file's format raise
                raise InputError(f"{self.source}: cannot be read after row {row}: {_reason(error)}") from None
            if record is None:
                return
            row += 1
            if row == 1:
                _check_column(self.source, self.column, list(record))
            yield usable(self.source, row, f"column {self.column!r}", record.get(self.column))


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
