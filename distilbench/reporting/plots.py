"""Which figures stand on which page, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from markupsafe import Markup

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.board import Leaderboard, Row, index_rows
from distilbench.reporting.index_figures import compute_index_times, draw_index_times, index_times_caption
from distilbench.reporting.quality_figures import (
    compute_quality,
    compute_speed,
    draw_trade_off,
    trade_off_caption,
)
from distilbench.reporting.search_figures import search_figures


class Plot(NamedTuple):
    """A figure's place in a page.

    `figure` is JSON: the Plotly figure in light colours.
    `wide`: it takes the whole width of the page.
    """

    name: str
    title: str
    caption: str
    figure: Markup
    wide: bool = False


def board_plots(board: Leaderboard, taken: Sequence[Row] = ()) -> dict[str, Plot]:
    """The figures of the leaderboard that have something to show, by name; `taken` are the rows that the page recommends."""
    quality, speed = compute_quality(board, taken), compute_speed(board)
    indexes = compute_index_times(index_rows(board))
    plots = []
    if quality.marks:
        title, caption = "Quality against bytes per vector", trade_off_caption(quality)
        plots.append(plot_of("quality-bytes", title, caption, draw_trade_off(quality), wide=True))
    if len(speed.marks) > 1:
        title, caption = "Quality against sentences per second", trade_off_caption(speed)
        plots.append(plot_of("quality-speed", title, caption, draw_trade_off(speed)))
    if indexes.points:
        title, caption = "What an index finds, and how fast", index_times_caption(indexes)
        plots.append(plot_of("index-time", title, caption, draw_index_times(indexes)))
    return {plot.name: plot for plot in plots}


def search_plots(records: Sequence[TrialRecord | ScoreRecord]) -> tuple[dict[str, Plot], list[str]]:
    """The figures of one run's search by name, and why those that one may expect are not there."""
    figures, absent = search_figures(records)
    return {f.name: plot_of(*f) for f in figures}, absent


def plot_of(name: str, title: str, caption: str, figure: go.Figure, *, wide: bool = False) -> Plot:
    """The figure as a page has it."""
    return Plot(name, title, caption, Markup(script_json(_rounded(json.loads(figure.to_json())))), wide)


def script_json(value: Any) -> str:
    """JSON with < and > as escapes, so no text can close the script element that it is in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _rounded(value: Any) -> Any:
    """The figure with every float to eight significant digits, half of what it has: no screen shows more."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
