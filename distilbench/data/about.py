"""`about.json`, what a data folder says of itself: the packaged demonstration's, or a user's.

{"demonstration": true, "pair_tasks": {"NAME": {"kind": "binary", "columns": [...], "files": "glue/NAME.{}.tsv", ...}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from distilbench.data.readers import either
from distilbench.data.splits import split_files
from distilbench.errors import InputError, invalid, naming
from distilbench.selection import Selection

FILE = "about.json"
DEMONSTRATION = Path(__file__).with_name("demonstration")
"""The data folder that is read where the user brings none."""


class PairTaskFormat(BaseModel):
    """Where a labelled pair task is found and what its labels say.

    `files` has the split (train, dev or test) in place of {}, or names the files of each split, the best first; where
    `split_column` is set, all splits are in one file that has a column of that name. `labels` are the labels as written, in
    the order of `classes` (default: the classes); a regression has neither, but a scale from `low` to `high`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["regression", "binary", "three-class"]
    columns: tuple[str, str, str]
    files: str | Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    split_column: str = ""

    def files_of(self, split: str) -> tuple[str, ...]:
        """The files that may hold a split, relative to the data folder."""
        return (self.files.format(split),) if isinstance(self.files, str) else self.files[split]

    def path(self, root: Path, split: str) -> Path | None:
        """The first of these that is there."""
        if isinstance(self.files, str) and "{}" in self.files:
            return split_files(root, self.files).get(split)
        return next((path for file in self.files_of(split) if (path := either(root, file))), None)

    def expected(self, split: str) -> str:
        """What a folder without this split should have, for a message."""
        rows = f" with rows of {self.split_column} {split}" if self.split_column else ""
        return " or ".join(self.files_of(split)) + rows


class About(BaseModel):
    """`demonstration`: its scores are no benchmark; `text`: where its text is from; `show`: whether pages may show it;
    `pair_tasks`: its own labelled ones.

    `select` is what students are selected by where `--select` does not say, as it is written there; "": what the folder has.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    demonstration: bool = False
    text: str = ""
    show: bool = True
    select: str = ""
    pair_tasks: Mapping[str, PairTaskFormat] = {}

    @property
    def selection(self) -> Selection | None:
        """The measure of `select`; None if it is empty."""
        return replace(Selection.parse(self.select), asked=False) if self.select else None


def about(root: Path) -> About:
    """Read the folder's `about.json`; the defaults if it has none."""
    path = root / FILE
    with naming(path):
        try:
            read = About.model_validate_json(path.read_bytes()) if path.is_file() else About()
        except (OSError, ValidationError) as error:
            raise InputError(invalid(error, "") if isinstance(error, ValidationError) else str(error)) from None
        read.selection  # noqa: B018 - a measure that is not known is refused here
    return read
