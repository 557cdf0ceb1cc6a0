"""Sources of unlabelled sentences (`--text`): a file, a folder, a glob, or a dataset of the Hugging Face hub.

A source is read as a stream, whatever its size.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from distilbench.data.hub_datasets import PREFIX, HubDataset, open_hub
from distilbench.data.readers import FORMATS_TOLD, column_names, format_of, read_column, read_columns, usable
from distilbench.errors import InputError
from distilbench.storage.files import file_sha256


@dataclass(frozen=True)
class Texts:
    """Sources of training sentences, read from `column` if the format has columns.

    With `skip_bad_rows` bad rows are counted instead of raised; a file that cannot be read to its end raises either way.
    """

    sources: tuple[str, ...] = ()
    column: str = "text"
    skip_bad_rows: bool = False

    def open(self) -> list[TextStream]:
        """A stream for each source."""
        return [open_text(source, self.column, skip_bad_rows=self.skip_bad_rows) for source in self.sources]


NO_TEXTS = Texts()


@dataclass
class TextStream:
    """The sentences of one source, in the order of its files and rows.

    The rows `kept` and `bad` ones are counted as it is read. `source_column` names the source of each sentence, in local
    files that have it.
    """

    source: str
    opened: Sequence[Path] | HubDataset
    column: str
    skip_bad_rows: bool = False
    source_column: str = ""
    kept: int = 0
    bad: int = 0
    first_error: str = ""

    def identity(self) -> list[str]:
        """Identify the sentences before they are read: by the hub's name and commit, else by the files' SHA-256."""
        if isinstance(self.opened, HubDataset):
            return self.opened.identity()
        return [file_sha256(path) for path in self.opened]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The sentences, each with its source ("" where none is named); they may be read again."""
        self.kept, self.bad, self.first_error = 0, 0, ""
        for text, source in self._rows():
            if not isinstance(text, InputError):
                self.kept += 1
                yield text, source
            elif self.skip_bad_rows:
                self.bad += 1
                self.first_error = self.first_error or str(text)
            else:
                raise text
        if self.bad and not self.kept:
            raise InputError(f"{self.source}: none of its {self.bad} rows can be used; the first: {self.first_error}")

    def _rows(self) -> Iterator[tuple[str | InputError, str]]:
        if isinstance(self.opened, HubDataset):
            yield from ((text, "") for text in self.opened.read())
            return
        for path in self.opened:
            if not self.source_column or self.source_column not in column_names(path):
                yield from ((text, "") for _, text in read_column(path, self.column))
                continue
            for row, values in read_columns(path, (self.column, self.source_column)):
                if isinstance(values, InputError):
                    yield values, ""
                else:
                    yield usable(path, row, f"column {self.column!r}", values[0]), str(values[1])

    def summary(self) -> str:
        """Describe what was read: "80 sentences (train)", and the bad rows."""
        commit = self.opened.commit if isinstance(self.opened, HubDataset) else None
        bad = f"; {self.bad} bad rows skipped, the first: {self.first_error}" if self.bad else ""
        return f"{self.kept} sentences (train){f' of commit {commit}' if commit else ''}{bad}"


def open_text(source: str, column: str = "text", *, skip_bad_rows: bool = False, source_column: str = "") -> TextStream:
    """The stream of a source: a file, a folder (its files of known formats, not those of folders in it), a glob (`**` goes
    through folders), or `hf:NAME`. Files come in the order of their paths.
    """
    opened = open_hub(source, column) if source.startswith(PREFIX) else text_files(source)
    return TextStream(source, opened, column, skip_bad_rows, source_column)


def text_files(source: str) -> list[Path]:
    """The files of a local source, sorted by path; hidden ones, and those that begin with "_", only where they are named."""
    path = Path(source)
    if path.is_file():
        if format_of(path) is None:
            raise InputError(f"{path}: the format is not known by the file's name; expected {FORMATS_TOLD}")
        return [path]
    if path.is_dir():
        paths = list(path.iterdir())
    elif any(c in source for c in "*?["):
        paths = [Path(name) for name in glob.glob(source, recursive=True)]
    else:
        raise InputError(f"{source}: no such file or folder; expected one, a glob, or {PREFIX}NAME (a hub's dataset)")
    files = [p for p in paths if p.is_file() and not p.name.startswith((".", "_")) and format_of(p)]
    if not files:
        saved = any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))
        hint = f"; it is a saved dataset, which {PREFIX}{source} reads" if saved else ""
        raise InputError(f"{source}: no file of a known format; expected {FORMATS_TOLD}{hint}")
    return sorted(files, key=lambda p: p.as_posix())


def text_name(source: str) -> str:
    """Name a corpus after its source: the file's, folder's or data set's name without the format."""
    plain = source.removeprefix(PREFIX).partition("?")[0].rstrip("/")
    name = PurePosixPath(plain.replace("*", "")).name or "text"
    name = re.sub(r"(\.(tsv|csv|jsonl|ndjson|txt|parquet))?(\.gz)?$", "", name)
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "text"
