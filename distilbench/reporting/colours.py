"""The colours of figures: six that colour-blind readers can tell apart, one for each method on every page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from distilbench.codes import FAISS_PEER


class Palette(NamedTuple):
    """Colours of one theme. `hues` are Okabe and Ito's (2008), made darker on white and lighter on black."""

    ink: str
    muted: str
    faint: str
    """Of marks that stand back until they are asked for."""
    grid: str
    surface: str
    hues: tuple[str, str, str, str, str, str]


LIGHT = Palette(
    ink="#1d2126",
    muted="#5b626c",
    faint="#a9adb3",
    grid="#e7e5df",
    surface="#ffffff",
    hues=("#0060a8", "#c84b00", "#008f68", "#b5538c", "#d99400", "#4da9e0"),
)
DARK = Palette(
    ink="#e9e7e2",
    muted="#a7adb6",
    faint="#656c75",
    grid="#2d3239",
    surface="#1b1f24",
    hues=("#5b9df0", "#f07b3c", "#2fbf92", "#d97fb8", "#f0cb5a", "#a9ddf7"),
)
DARK_OF = {**dict(zip(LIGHT[:5], DARK[:5], strict=True)), **dict(zip(LIGHT.hues, DARK.hues, strict=True))}
"""By each light colour the dark one: figures are drawn in light colours, and a page's script replaces them."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "pentagon", "star")

_LOOKS: Mapping[str, tuple[int, str]] = {
    "hpd": (0, "circle"),
    "mse": (0, "square"),
    "dse": (0, "diamond"),
    "encoder": (0, "pentagon"),
    "mcr2": (1, "circle"),
    "mcr2_distil": (1, "square"),
    "neighbours": (2, "circle"),
    "ibkd": (2, "square"),
    "crd": (2, "diamond"),
    "contrastive": (3, "circle"),
    "matryoshka": (3, "square"),
    "pca": (4, "circle"),
    "whitening": (4, "diamond"),
    FAISS_PEER: (5, "star"),
    "random_projection": (5, "triangle-up"),
}
"""Hue and marker of each method: methods of one kind share a hue, and no two share both."""
_NAMES = {
    FAISS_PEER: "FAISS's codes",
    "pca": "PCA",
    "teacher": "teacher and its codes",
    "random_projection": "random projection",
}


class Look(NamedTuple):
    """How a method is drawn; baselines have open markers and dashed lines."""

    name: str
    colour: str
    symbol: str
    dash: str


def method_look(method: str, role: str) -> Look:
    """The same on every page, whatever else is drawn. A method that is not known here has one of the first four hues."""
    if role == "teacher":
        return Look(_NAMES["teacher"], LIGHT.ink, "diamond-open", "dot")
    hue, symbol = _LOOKS.get(method, (sum(method.encode()) % 4, SYMBOLS[4 + sum(method.encode()) % 3]))
    baseline = role == "baseline"
    name = _NAMES.get(method, method)
    return Look(name, LIGHT.hues[hue], f"{symbol}-open" if baseline else symbol, "dash" if baseline else "solid")


def kind_colour(place: int) -> str:
    """The colour of the `place`-th thing that is no method, such as a group of trials; grey after the six."""
    return LIGHT.hues[place] if place < len(LIGHT.hues) else LIGHT.faint
