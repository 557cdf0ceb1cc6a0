"""The tables of a data folder: where one is, which columns it has, and a fixed sample of its rows."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def either(folder: Path, name: str) -> Path | None:
    """The file `name` of a folder, plain or else as `name.gz`; None where it has neither.

    `name` may hold a `*`; of several files it is then the alphabetically first.
    """
    for pattern in (name, f"{name}.gz"):
        if files := sorted(path for path in folder.glob(pattern) if path.is_file()):
            return files[0]
    return None


def columns_of(path: Path) -> list[str]:
    """The columns that a table's header names; none where it cannot be read (`read_tsv` then says why)."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return file.readline().decode("utf-8-sig").rstrip("\r\n").split("\t")
    except (EOFError, OSError, UnicodeDecodeError, zlib.error):
        return []


def fixed_sample(items: Iterable[T], limit: int | None) -> list[T]:
    """`limit` of the items, drawn with a fixed seed; all of them, in their order, where there are no more or it is None."""
    everything = list(items)
    if limit is None or len(everything) <= limit:
        return everything
    return random.Random(0).sample(everything, limit)
