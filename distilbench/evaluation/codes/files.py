"""Where a code is kept: `quantisation-KIND.json` describes it, a file beside it has its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from distilbench.errors import InputError
from distilbench.storage.files import atomic_path, file_sha256, write_json

T = TypeVar("T")
FORMAT = 1


def card_path(folder: Path, kind: str) -> Path:
    """Where the card of a code is."""
    return folder / f"quantisation-{kind}.json"


def write_card(path: Path, kind: str, width: int) -> None:
    """Describe the file `path` of a code in the card beside it."""
    described = {"format": FORMAT, "kind": kind, "width": width, "sha256": file_sha256(path)}
    write_json(card_path(path.parent, kind), described)


def read_card(card: Path) -> dict[str, Any]:
    """What the card of a saved code says.

    Raises:
        InputError: it is not JSON.
    """
    try:
        described = json.loads(card.read_text())
    except ValueError as error:
        raise InputError(f"{card}: not JSON ({error}), expected what save() writes") from None
    if not isinstance(described, dict):
        raise InputError(f"{card}: {described!r:.80}, expected a JSON object")
    return described


def checked_file(folder: Path, kind: str, width: int | None, suffix: str) -> tuple[Path, dict[str, Any]]:
    """The file of a saved code, which is what its card says, and the card.

    Raises:
        InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
    """
    card = card_path(folder, kind)
    path = card.with_suffix(suffix)
    for file in (card, path):
        if not file.is_file():
            raise InputError(f"{file}: no such file; expected a quantiser saved as {card.name} and {path.name}")
    described = read_card(card)
    wanted: list[tuple[str, object, str]] = [("format", FORMAT, ""), ("kind", kind, "")]
    wanted += [("width", width, ", the width of the encoder")] if width is not None else []
    wanted += [("sha256", file_sha256(path), f", that of {path.name}: one of the two files is damaged")]
    for key, value, why in wanted:
        if described.get(key) != value:
            raise InputError(f"{card}: {key} is {described.get(key)!r}, expected {value!r}{why}")
    return path, described


def save_tensors(folder: Path, kind: str, tensors: dict[str, NDArray[np.float32]]) -> None:
    """Write a code that is a number for each dimension, or several."""
    path = card_path(folder, kind).with_suffix(".safetensors")
    with atomic_path(path) as temporary:
        save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, temporary)
    write_card(path, kind, len(next(iter(tensors.values()))))


def load_tensors(folder: Path, kind: str, width: int | None, names: tuple[str, ...], make: Callable[..., T]) -> T:
    """What `save_tensors` wrote, made into a code.

    Raises:
        InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
    """
    path, described = checked_file(folder, kind, width, ".safetensors")
    try:
        tensors = load(path.read_bytes())
        if sorted(tensors) != sorted(names):
            raise ValueError(f"tensors {sorted(tensors)}, expected {sorted(names)}")
        code = make(*(tensors[name] for name in names))
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if len(tensors[names[0]]) != described.get("width"):
        told = card_path(folder, kind).name
        raise InputError(
            f"{path}: {len(tensors[names[0]])} dimensions, expected {described.get('width')!r}, as in {told}"
        )
    return code
