"""The codes by their names: calibrated, loaded, found beside a student."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from distilbench.codes import family_of, told_codes
from distilbench.errors import InputError
from distilbench.evaluation.codes.binary import RESCORE, Binary
from distilbench.evaluation.codes.code import Code as Quantiser
from distilbench.evaluation.codes.faiss_code import FaissCode, can_make
from distilbench.evaluation.codes.files import card_path, read_card
from distilbench.evaluation.codes.steps import Int4, Int8

__all__ = ["QUANTISERS", "RESCORE", "Binary", "FaissCode", "Int4", "Int8", "Quantiser"]

QUANTISERS: dict[str, type[Int8] | type[Int4] | type[Binary]] = {"int8": Int8, "int4": Int4, "binary": Binary}
"""Codes of a fixed number of bits a dimension."""


def check_kind(kind: str) -> str:
    """The name of a code, as it is.

    Raises:
        InputError: there is no such code.
    """
    if kind not in QUANTISERS and family_of(kind) is None:
        raise InputError(f"code {kind!r}: expected {told_codes()}")
    return kind


def not_possible(kind: str, width: int) -> str:
    """Why vectors of `width` dimensions have no such code; "" where they have."""
    return "" if kind in QUANTISERS else can_make(kind, width)


def calibrated(kind: str, vectors_Nd: NDArray[Any]) -> Quantiser:
    """The code of that name, fitted to training embeddings.

    Raises:
        InputError: there is no such code.
        ValueError: it cannot be fitted to these.
    """
    if kind in QUANTISERS:
        return QUANTISERS[kind].calibrate(vectors_Nd)
    return FaissCode.calibrate(check_kind(kind), vectors_Nd)


def load_quantiser(kind: str, folder: Path, width: int | None = None) -> Quantiser:
    """The code of that name, as it was saved in a folder.

    Raises:
        InputError: it is not there, damaged, or of another width.
    """
    if kind in QUANTISERS:
        return QUANTISERS[kind].load(folder, width)
    return FaissCode.load(check_kind(kind), folder, width)


def saved_quantiser(folder: Path | None, kind: str, width: int) -> Path | None:
    """The folder with the quantiser that was saved with a student for the first `width` of its dimensions.

    Where a student was scored at several widths, each has a folder of its own, such as d64.

    Raises:
        InputError: its card is not JSON.
    """
    for place in (folder, folder / f"d{width}") if folder is not None else ():
        card = card_path(place, kind)
        if card.is_file() and read_card(card).get("width") == width:
            return place
    return None
