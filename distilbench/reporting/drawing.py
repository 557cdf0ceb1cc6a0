"""What all figures have in common: their frame and their axes."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from distilbench.reporting.colours import LIGHT

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MOST_DOUBLINGS = 12
"""Powers of two that have room below an axis."""


def plain(text: str, longest: int = 60) -> str:
    """`text` as Plotly shows it letter for letter: its labels are a small HTML of their own."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return html.escape(cut, quote=False)


def frame(figure: go.Figure, x_title: str | None = None, y_title: str | None = None) -> None:
    """Give a figure a see-through ground, colours, its legend above; None keeps the axes' own titles."""
    axis = {
        "gridcolor": LIGHT.grid,
        "linecolor": LIGHT.grid,
        "zeroline": False,
        "tickfont": {"color": LIGHT.muted},
        "automargin": True,
    }
    figure.update_layout(
        template=None,
        title=None,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 13, "color": LIGHT.ink},
        margin={"l": 12, "r": 12, "t": 8, "b": 8},
        hovermode="closest",
        hoverlabel={
            "bgcolor": LIGHT.surface,
            "bordercolor": LIGHT.grid,
            "font": {"family": _FONT, "color": LIGHT.ink},
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
