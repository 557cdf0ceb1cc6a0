"""Where a method's search space is found: the user's own, or one of those that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from distilbench.choices import BUDGETS, SpaceBudget
from distilbench.errors import InputError

FOLDER = Path("search_spaces")
STATIC = "static"
"""The folder of spaces for static students, whose learning rates and steps are ten times those of transformers."""
_PACKAGE = Path(__file__).resolve().parents[1]


class SpaceFile(NamedTuple):
    """A search space's file; `shipped`: it is in one of the folders that come with the package."""

    path: Path
    shipped: bool


def shipped_folder() -> Path:
    """`search_spaces` of this checkout, or what an installed package has of it."""
    top = _PACKAGE.parent / FOLDER
    return top if (top / BUDGETS[0]).is_dir() else _PACKAGE / FOLDER


def space_file(
    method: str, path: Path | None, budget: SpaceBudget | None, *, data: bool, static: bool = False
) -> SpaceFile:
    """The search space of a method.

    `path` (`--space`) is a file, or a folder with METHOD.yaml in it, and wins; it may be one of the package's folders.
    Without it `search_spaces/METHOD.yaml` of the working folder is the user's own; it comes after the package's where
    `budget` (`--budget`) asks for one of those. The package's is that of `budget`; None is small for the built-in corpus and
    real where there are `data`. For a static student it is the one in `static`, whatever the budget, if the method has one
    there.

    Raises:
        InputError: there is none.
    """
    if path is not None and path.is_dir():
        if not (path / f"{method}.yaml").exists():
            raise InputError(f"--space {path}: expected {method}.yaml in this folder")
        return SpaceFile(path / f"{method}.yaml", shipped=path.resolve().parent == shipped_folder().resolve())
    if path is not None:
        return SpaceFile(path, shipped=False)
    local_file = SpaceFile(FOLDER / f"{method}.yaml", shipped=False)
    came = SpaceFile(shipped_folder() / (budget or ("real" if data else "small")) / f"{method}.yaml", shipped=True)
    own_kind = SpaceFile(shipped_folder() / STATIC / f"{method}.yaml", shipped=True)
    came = own_kind if static and own_kind.path.exists() else came
    places = [local_file, came] if budget is None else [came, local_file]
    for place in places:
        if place.path.exists():
            return place
    raise InputError(
        f"no search space: looked for {' and '.join(str(place.path) for place in places)}; expected one there or "
        "--space FILE"
    )
