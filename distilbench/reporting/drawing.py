"""What all figures have in common: their frame, their axes, names at the ends of lines."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.reporting.colours import Palette

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MOST_DOUBLINGS = 12
"""Powers of two that have room below an axis."""
GAP = 0.065
"""The least distance of two names, as a share of the axis."""
WIDE = 3.5
"""Times the x of a name's point, as far as a name may reach."""
LETTER = 7.0
"""Pixels of a letter, about."""


class EndLabel(NamedTuple):
    """A name beside the point (x, y) of a line."""

    x: float
    y: float
    text: str
    colour: str


def plain(text: str, longest: int = 60) -> str:
    """`text` as Plotly shows it letter for letter: its labels are a small HTML of their own."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return html.escape(cut, quote=False)


def frame(figure: go.Figure, palette: Palette, x_title: str | None = None, y_title: str | None = None) -> None:
    """Give a figure a see-through ground, the theme's colours, its legend above; None keeps the axes' own titles."""
    axis = {
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "zeroline": False,
        "tickfont": {"color": palette.muted},
        "automargin": True,
    }
    figure.update_layout(
        template=None,
        title=None,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 13, "color": palette.ink},
        margin={"l": 12, "r": 12, "t": 8, "b": 8},
        hovermode="closest",
        hoverlabel={
            "bgcolor": palette.surface,
            "bordercolor": palette.grid,
            "font": {"family": _FONT, "color": palette.ink},
            "align": "left",
        },
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
        },
    )
    small = {"size": 12, "color": palette.muted}
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


def log_axis(figure: go.Figure) -> None:
    """A logarithmic x axis whose numbers are written out."""
    figure.update_xaxes(type="log", tickformat=",.3~r")


def doubling_ticks(figure: go.Figure, values: Sequence[int]) -> None:
    """A logarithmic x axis whose ticks are the powers of two around the values; every second one where there are many."""
    present = [value for value in values if value > 0]
    if not present:
        return
    powers = range(min(present).bit_length() - 1, (max(present) - 1).bit_length() + 1)
    ticks = [2**power for power in powers[:: -(-len(powers) // MOST_DOUBLINGS)]]
    figure.update_xaxes(type="log", tickmode="array", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])


def add_labels(
    figure: go.Figure,
    labels: Sequence[EndLabel],
    drawn: tuple[float, float],
    ends: tuple[float, float],
    palette: Palette,
) -> None:
    """Write each name to the right of its point, and make room there; names that would touch are moved apart.

    `drawn` is the least and the greatest x of the marks, on a logarithmic axis; `ends` are those of the y axis.
    """
    first, last = map(math.log10, drawn)
    room = 0.04 * ((last - first) or 1.0)
    figure.update_xaxes(range=[first - room, last + room])  # else the axis would make room for the names too
    low, high = ends
    gap = GAP * (high - low)
    heights = [label.y for label in labels]
    for group in _neighbours(labels):
        moved = spread([heights[i] for i in group], gap)
        outside = max(0.0, max(moved) - (high - gap / 2)) or min(0.0, min(moved) - (low + gap / 2))
        for i, height in zip(group, moved, strict=True):
            heights[i] = height - outside
    longest = max((len(label.text) for label in labels), default=0)
    figure.update_layout(
        margin={"r": 12 + min(190, round(LETTER * longest + 14))},
        annotations=[
            {
                "x": math.log10(label.x),
                "y": height,
                "text": f"<b>{label.text}</b>",
                "font": {"color": palette.ink, "size": 12},
                "bgcolor": palette.surface,
                "bordercolor": label.colour,
                "borderwidth": 1.5,
                "borderpad": 2,
                "opacity": 0.92,
                "showarrow": False,
                "xanchor": "left",
                "xshift": 10,
            }
            for label, height in zip(labels, heights, strict=True)
        ],
    )


def _neighbours(labels: Sequence[EndLabel]) -> list[list[int]]:
    """The places of labels that may touch: each is less than `WIDE` times right of the one before."""
    groups: list[list[int]] = []
    for i in sorted(range(len(labels)), key=lambda i: labels[i].x):
        if groups and labels[i].x < WIDE * labels[groups[-1][-1]].x:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights in their order, moved up where they are nearer to the one below than `gap`, then back by half of it."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for before, i in pairwise(order):
        moved[i] = max(moved[i], moved[before] + gap)
    # Groups of moved names stand around where they belong.
    runs: list[list[int]] = []
    for place, i in enumerate(order):
        if place and moved[i] - moved[order[place - 1]] <= gap * 1.0001:
            runs[-1].append(i)
        else:
            runs.append([i])
    for run in runs:
        shift = sum(moved[i] - heights[i] for i in run) / len(run)
        for i in run:
            moved[i] -= shift
    return moved
