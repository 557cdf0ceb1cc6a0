"""The splits of a set, and the files that hold them, whatever the usual name they were given."""

from __future__ import annotations

import re
from pathlib import Path

from distilbench.data.readers import files_of
from distilbench.errors import InputError

SPLITS = ("train", "dev", "test")
_MEANS = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("dev", "devel", "development", "val", "valid", "validation", "eval", "trial"), "dev"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
EXPECTED = f"expected one of {', '.join(_MEANS)}"
_SHARD = re.compile(r"-\d{5}(-of-\d{5})?$")
"""What the Hugging Face hub writes behind a split: test-00000-of-00001."""


def split_of(word: str) -> str | None:
    """The split that a word means, in any case: "Validation" is dev; None if it means none."""
    return _MEANS.get(_SHARD.sub("", word.strip()).casefold())


def split_in(path: Path, row: int, column: str, value: str) -> str:
    """The split that the column of a row names."""
    if split := split_of(value):
        return split
    raise InputError(f"{path}, row {row}: column {column!r} is {value!r:.80}; {EXPECTED}")


def split_at_end(name: str) -> tuple[str, str | None]:
    """A file's name without the split at its end, and that split: "STSB" and "dev" of "STSB.validation"."""
    ending = re.fullmatch(r"(.+)[._-]([^._-]+)", _SHARD.sub("", name))
    split = split_of(ending[2]) if ending else None
    return (ending[1], split) if ending and split else (name, None)


def is_about_a_split(name: str) -> bool:
    """Whether a name without a split at its end speaks of one all the same: "STSB.test.v2", "STSB.dev1"."""
    words = (word.rstrip("0123456789") for word in re.split(r"[._-]", name)[1:])
    return any(split_of(word) or word.casefold() in ("evaluation", "holdout", "heldout") for word in words)


def split_files(root: Path, pattern: str) -> dict[str, Path]:
    """The files, plain or gzipped, whose names have a split in place of the {} of `pattern`; in the order of `SPLITS`.

    A file whose word means no split is found under that word, after the others.
    """
    folder, (before, after) = (root / pattern).parent, Path(pattern).name.split("{}")
    found: dict[str, Path] = {}
    for path in files_of(folder, f"{before}*{after}"):
        word = path.name.removesuffix(".gz").removeprefix(before).removesuffix(after)
        split = split_of(word) or word
        if split in found:
            raise InputError(
                f"{path}: {found[split].name} beside it is of the split {split!r} too; expected one of them"
            )
        found[split] = path
    return {split: found[split] for split in (*SPLITS, *found) if split in found}
