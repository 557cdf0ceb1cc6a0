"""Sources of unlabelled sentences (`--text`): a file, a folder, a glob, or a dataset of the Hugging Face hub.

A source is read as a stream, whatever its size. What is left out is counted by reason.
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
class TextSettings:
    """Read sentences from `column`, if the format has columns. With `skip_bad_rows` bad rows are counted instead of raised;
    a file that cannot be read to its end raises either way."""

    column: str = "text"
    skip_bad_rows: bool = False


@dataclass
class TextCounts:
    """Counts of a source's rows: `rows` = `kept` + `bad`; `first_error` belongs to the first bad one."""

    rows: int = 0
    kept: int = 0
    bad: int = 0
    first_error: str = ""


@dataclass(frozen=True)
class Texts:
    """Sources of training sentences, and how to read them."""

    sources: tuple[str, ...] = ()
    settings: TextSettings = TextSettings()

    def open(self) -> list[TextStream]:
        """A stream for each source."""
        return [open_text(source, self.settings) for source in self.sources]


NO_TEXTS = Texts()


class TextStream:
    """The sentences of one source, in the order of its files and rows, with running numbers.

    `counts` tell of the rows read so far, so of the whole source after the last one. `source_column` names the source of
    each sentence, in local files that have it.
    """

    def __init__(
        self, source: str, opened: Sequence[Path] | HubDataset, settings: TextSettings, source_column: str | None = None
    ) -> None:
        self.source = source
        self.settings = settings
        self.counts = TextCounts()
        self._opened = opened
        self._source_column = source_column

    def identity(self) -> list[str]:
        """Identify the sentences before they are read: by the hub's name and commit, else by the files' SHA-256."""
        if not isinstance(self._opened, HubDataset):
            return [file_sha256(path) for path in self._opened]
        return [self.source, self._opened.commit] if self._opened.commit else [self.source, *self._opened.checksums()]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """The number of a row in the whole source (the first is 1; left-out rows count) and its sentence; may be repeated."""
        return ((row, text) for row, text, _ in self._usable())

    def labelled(self, name: str) -> Iterator[tuple[str, str]]:
        """The sentences, each with its source: `name` where the file names none. It may be repeated, and raises the same."""
        return ((text, source or name) for _, text, source in self._usable())

    def _usable(self) -> Iterator[tuple[int, str, str]]:
        counts = self.counts = TextCounts()
        for value, source in self._values():
            counts.rows += 1
            if not isinstance(value, InputError):
                counts.kept += 1
                yield counts.rows, value, source
            elif self.settings.skip_bad_rows:
                counts.bad += 1
                counts.first_error = counts.first_error or str(value)
            else:
                raise value
        if counts.bad and counts.bad == counts.rows:
            raise InputError(
                f"{self.source}: none of its {counts.rows} rows can be used; the first: {counts.first_error}"
            )

    def summary(self) -> str:
        """Describe what was read: "80 sentences (train)", and the bad rows."""
        counts, parts = self.counts, [f"{self.counts.kept} sentences (train)"]
        if isinstance(self._opened, HubDataset) and self._opened.commit:
            parts[0] += f" of commit {self._opened.commit}"
        if counts.bad:
            parts.append(f"{counts.bad} bad rows skipped, the first: {counts.first_error}")
        return "; ".join(parts)

    def _values(self) -> Iterator[tuple[str | InputError, str]]:
        if isinstance(self._opened, HubDataset):
            yield from ((value, "") for _, value in self._opened.read())
            return
        for path in self._opened:
            if self._names_sources(path):
                columns = (self.settings.column, str(self._source_column))
                for row, values in read_columns(path, columns):
                    if isinstance(values, InputError):
                        yield values, ""
                    else:
                        yield usable(path, row, f"column {columns[0]!r}", values[0]), str(values[1])
            else:
                yield from ((value, "") for _, value in read_column(path, self.settings.column))

    def _names_sources(self, path: Path) -> bool:
        wanted = self._source_column
        return wanted is not None and wanted in column_names(path)


def open_text(source: str, settings: TextSettings, source_column: str | None = None) -> TextStream:
    """The stream of a source: a file, a folder (its files of known formats, not those of folders in it), a glob (`**` goes
    through folders), or `hf:NAME`. Files come in the order of their paths; those that have `source_column` name the source of
    each sentence.
    """
    if source.startswith(PREFIX):
        return TextStream(source, open_hub(source, settings.column), settings)
    return TextStream(source, text_files(source), settings, source_column)


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
    plain = source.removeprefix("hf:").partition("?")[0].rstrip("/")
    name = PurePosixPath(plain.replace("*", "")).name or "text"
    for ending in (".gz", *(f".{form}" for form in ("tsv", "csv", "jsonl", "ndjson", "txt", "parquet"))):
        name = name.removesuffix(ending)
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "text"
