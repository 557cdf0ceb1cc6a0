"""Which figures stand on which page, and what is said below them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import plotly.graph_objects as go
from markupsafe import Markup

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting import colours, figures, front
from distilbench.reporting.colours import Palette
from distilbench.reporting.coordinates import compute_coordinates, coordinates_caption, draw_coordinates
from distilbench.reporting.covariance import compute_covariances, draw_covariances
from distilbench.reporting.curves import compute_curves, curves_caption, draw_curves
from distilbench.reporting.importance import LEAST_TRIALS, compute_importance, draw_importance, importance_caption
from distilbench.reporting.index_time import compute_index_time, draw_index_time, index_time_caption
from distilbench.reporting.kept import compute_kept, draw_kept, kept_caption
from distilbench.reporting.latency import compute_quality_latency, draw_quality_latency, latency_caption
from distilbench.reporting.lines import Lines, encoder_lines
from distilbench.reporting.sensitivity import compute_sensitivity, draw_sensitivity, sensitivity_caption
from distilbench.reporting.space_map import compute_space_map, draw_space_map, space_caption
from distilbench.reporting.table import Leaderboard, Row, index_rows

Data = TypeVar("Data")
Records = Sequence[TrialRecord | ScoreRecord]


class Plot(NamedTuple):
    """A figure's place in a page.

    `themes` is JSON: the Plotly figure in light colours, and what is another in the dark ones, as pairs of path and value.
    """

    name: str
    title: str
    caption: str
    themes: Markup
    tall: bool = False
    wide: bool = False
    """Whether it takes the whole width of the page."""


def board_plots(
    board: Leaderboard, lines: Lines | None = None, *, front: bool = False, taken: Sequence[Row] = ()
) -> dict[str, Plot]:
    """The figures of the leaderboard that have something to show, by name; `lines` are those of its table.

    `taken` are the rows that the page recommends.
    `front`: of a search over several objectives, whose first two figures stand beside each other.
    """
    plots = []
    share, speed = compute_kept(board, lines or encoder_lines(board), taken), compute_quality_latency(board)
    if share.methods:
        title = "Quality kept against bytes per vector" if share.share else "Quality against bytes per vector"
        plots.append(_plot("kept", title, kept_caption(share), draw_kept, share, wide=not (front and speed.points)))
    by_dim = figures.compute_quality_dim(board)
    if board.quantised and len({point.dim for method in by_dim.methods for point in method.points}) > 1:
        caption = (
            "The same average of float32 vectors alone: what fewer dimensions cost before any code. A line passes through "
            "the encoder with the best dev score of each dimension; bars are 95 % intervals over seeds, where there are "
            "several."
        )
        plots.append(_plot("dim", "Quality against dimension", caption, figures.draw_quality_dim, by_dim))
    if speed.points:
        title = "Quality against sentences per second"
        plots.append(_plot("latency", title, latency_caption(speed), draw_quality_latency, speed))
    space = compute_space_map(board)
    if space.points:
        plots.append(_plot("space", "Alignment and uniformity", space_caption(space), draw_space_map, space))
    indexes = compute_index_time(index_rows(board))
    if indexes.points:
        title = "What an index finds, and how fast"
        plots.append(_plot("index-time", title, index_time_caption(indexes), draw_index_time, indexes))
    covariances = compute_covariances(board)
    if covariances.names:
        more = f" {covariances.omitted} more are not drawn." if covariances.omitted else ""
        caption = f"Each dimension scaled to variance 1: what is off the diagonal is said twice.{more}"
        title = "Covariance of the first 16 dimensions"
        plots.append(_plot("covariance", title, caption, draw_covariances, covariances))
    return {plot.name: plot for plot in plots}


def search_plots(records: Records, *, importance: bool = True) -> tuple[dict[str, Plot], list[str]]:
    """The figures of one run's search by name, and why those that one may expect are not there."""
    plots, absent = [], []
    learning = figures.compute_learning(records)
    if any(point.objective is not None for run in learning.runs for point in run.points):
        drawn, total = sum(run.drawn for run in learning.runs), sum(run.total for run in learning.runs)
        part = f" {drawn:,} of {total:,} trials are drawn." if drawn < total else ""
        caption = (
            "Best dev objective so far against the optimiser steps of all trials up to it, pruned and failed ones "
            f"included.{part}"
        )
        plots.append(_plot("learning", "What the search spent", caption, figures.draw_learning, learning))
    computed = front.compute_front(records)
    if computed.runs:
        plots.append(
            _plot("front", "The front of the search", front.front_caption(computed), front.draw_front, computed)
        )
    volume = front.compute_volume(records)
    if volume.runs:
        title = "Hypervolume of the search"
        plots.append(_plot("volume", title, front.volume_caption(volume), front.draw_volume, volume))
    curves = compute_curves(records)
    if curves.curves:
        plots.append(_plot("curves", "Learning curves", curves_caption(curves), draw_curves, curves))
    coordinates = compute_coordinates(records)
    few = coordinates.complete < LEAST_TRIALS
    if few and learning.runs:
        absent.append(
            f"The sensitivity, importance and parallel coordinates of hyper-parameters need {LEAST_TRIALS} completed trials; "
            f"here {'is 1' if coordinates.complete == 1 else f'are {coordinates.complete}'}."
        )
    sensitivity = compute_sensitivity(records)
    if sensitivity.panels and not few:
        title, caption = "What each hyper-parameter does", sensitivity_caption(sensitivity)
        plots.append(_plot("sensitivity", title, caption, draw_sensitivity, sensitivity, tall=True))
    if coordinates.axes and not few:
        title, caption = "Hyper-parameters together", coordinates_caption(coordinates)
        plots.append(_plot("coordinates", title, caption, draw_coordinates, coordinates, tall=True))
    if importance and learning.runs and not few:
        weights = compute_importance(records)
        title, caption = "Which hyper-parameters matter", importance_caption(weights)
        if weights.reason:
            absent.append(caption)
        else:
            plots.append(_plot("importance", title, caption, draw_importance, weights))
    return {plot.name: plot for plot in plots}, absent


def _plot(
    name: str,
    title: str,
    caption: str,
    draw: Callable[[Data, Palette], go.Figure],
    data: Data,
    *,
    tall: bool = False,
    wide: bool = False,
) -> Plot:
    """Drawn in both themes."""
    light, dark = (_rounded(json.loads(draw(data, palette).to_json())) for palette in (colours.LIGHT, colours.DARK))
    themes = {"light": light, "dark": list(_changes(light, dark, ()))}
    return Plot(name, title, caption, Markup(script_json(themes)), tall, wide)


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


def _changes(one: Any, other: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """What makes `one` the `other`: the path of each value that differs, and the other's value there."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _changes(one[key], other[key], (*path, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _changes(left, right, (*path, place))
    elif one != other:
        yield path, other
