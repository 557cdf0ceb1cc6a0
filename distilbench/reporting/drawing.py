"""What all figures have in common: colours that every reader can tell apart, frame, axes, and their form in a page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from markupsafe import Markup

from distilbench.codes import FAISS_PEER

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MOST_DOUBLINGS = 12
"""Powers of two that have room below an axis."""


class Palette(NamedTuple):
    """Colours of one theme. `hues` are Okabe and Ito's (2008), made darker on white and lighter on black."""

    ink: str
    muted: str
    grid: str
    surface: str
    hues: tuple[str, str, str, str, str, str]


_LIGHT_HUES = ("#0060a8", "#c84b00", "#008f68", "#b5538c", "#d99400", "#4da9e0")
_DARK_HUES = ("#5b9df0", "#f07b3c", "#2fbf92", "#d97fb8", "#f0cb5a", "#a9ddf7")
LIGHT = Palette("#1d2126", "#5b626c", "#e7e5df", "#ffffff", _LIGHT_HUES)
DARK = Palette("#e9e7e2", "#a7adb6", "#2d3239", "#1b1f24", _DARK_HUES)
DARK_OF = {**dict(zip(LIGHT[:4], DARK[:4], strict=True)), **dict(zip(LIGHT.hues, DARK.hues, strict=True))}
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
_NAMES = {FAISS_PEER: "FAISS's codes", "pca": "PCA", "random_projection": "random projection"}


class Look(NamedTuple):
    """How a method is drawn; baselines have open markers."""

    name: str
    colour: str
    symbol: str


class Plot(NamedTuple):
    """A figure of a page: `figure` is the JSON of a Plotly figure in light colours. `wide`: it has the page's width."""

    name: str
    title: str
    caption: str
    figure: Markup
    wide: bool = False


def method_look(method: str, role: str) -> Look:
    """The same on every page, whatever else is drawn. A method that is not known here has one of the first four hues."""
    if role == "teacher":
        return Look("teacher and its codes", LIGHT.ink, "diamond-open")
    hue, symbol = _LOOKS.get(method, (sum(method.encode()) % 4, SYMBOLS[4 + sum(method.encode()) % 3]))
    return Look(_NAMES.get(method, method), LIGHT.hues[hue], symbol + ("-open" if role == "baseline" else ""))


def plot_of(name: str, title: str, caption: str, figure: go.Figure, *, wide: bool = False) -> Plot:
    """The figure as a page has it, every float to eight significant digits, half of what it has: no screen shows more."""
    rounded = json.loads(figure.to_json(), parse_float=lambda number: float(f"{float(number):.8g}"))
    return Plot(name, title, caption, Markup(script_json(rounded)), wide)


def script_json(value: Any) -> str:
    """JSON with < and > as escapes, so no text can close the script element that it is in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def plain(text: str, longest: int = 60) -> str:
    """`text` as Plotly shows it letter for letter: its labels are a small HTML of their own."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return html.escape(cut, quote=False)


def frame(figure: go.Figure, x_title: str | None = None, y_title: str | None = None) -> None:
    """Give a figure a see-through ground, colours, its legend above; None keeps the axes' own titles."""
    axis = {"gridcolor": LIGHT.grid, "linecolor": LIGHT.grid, "zeroline": False, "automargin": True}
    axis["tickfont"] = {"color": LIGHT.muted}
    see_through, label_font = "rgba(0,0,0,0)", {"family": _FONT, "color": LIGHT.ink}
    figure.update_layout(
        template=None,
        title=None,
        paper_bgcolor=see_through,
        plot_bgcolor=see_through,
        font={"family": _FONT, "size": 13, "color": LIGHT.ink},
        margin={"l": 12, "r": 12, "t": 8, "b": 8},
        hovermode="closest",
        hoverlabel={"bgcolor": LIGHT.surface, "bordercolor": LIGHT.grid, "font": label_font, "align": "left"},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "bgcolor": see_through},
    )
    small = {"size": 12, "color": LIGHT.muted}
    figure.update_xaxes(**axis, showgrid=False, title={"font": small, "standoff": 12})
    figure.update_yaxes(**axis, title={"font": small, "standoff": 10})
    if x_title is not None:
        figure.update_xaxes(title_text=x_title)
    if y_title is not None:
        figure.update_yaxes(title_text=y_title)


def span(heights: Sequence[float], lined: Sequence[float]) -> tuple[float, float]:
    """The ends of the y axis: all lines and nine of ten marks, whose `heights` rise, with room around them."""
    if not heights:
        return 0.0, 1.0
    low = min([heights[len(heights) // 10], *lined])
    room = 0.06 * ((heights[-1] - low) or 1.0)
    return low - room, heights[-1] + room


def doubling_ticks(figure: go.Figure, values: Sequence[int]) -> None:
    """A logarithmic x axis whose ticks are the powers of two around the values; every second one where there are many."""
    present = [value for value in values if value > 0]
    if not present:
        return
    powers = range(min(present).bit_length() - 1, (max(present) - 1).bit_length() + 1)
    ticks = [2**power for power in powers[:: -(-len(powers) // MOST_DOUBLINGS)]]
    figure.update_xaxes(type="log", tickmode="array", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])
