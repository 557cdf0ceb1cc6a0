"""Names at the ends of lines, in place of a legend: none hides another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.reporting.colours import Palette

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


def add_labels(
    figure: go.Figure,
    labels: Sequence[EndLabel],
    drawn: tuple[float, float],
    span: tuple[float, float],
    palette: Palette,
) -> None:
    """Write each name to the right of its point, and make room there; names that would touch are moved apart.

    `drawn` is the least and the greatest x of the marks, on a logarithmic axis; `span` are the ends of the y axis.
    """
    first, last = map(math.log10, drawn)
    room = 0.04 * ((last - first) or 1.0)
    figure.update_xaxes(range=[first - room, last + room])  # else the axis would make room for the names too
    low, high = span
    gap = GAP * (high - low)
    heights = [label.y for label in labels]
    for group in _neighbours(labels):
        moved = spread([heights[i] for i in group], gap)
        outside = max(0.0, max(moved) - (high - gap / 2)) or min(0.0, min(moved) - (low + gap / 2))
        for i, height in zip(group, moved, strict=True):
            heights[i] = height - outside
    figure.update_layout(
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
        ]
    )
    longest = max((len(label.text) for label in labels), default=0)
    figure.update_layout(margin={"r": 12 + min(190, round(LETTER * longest + 14))})


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
