"""Which figures stand on which page, and what is said below them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from markupsafe import Markup

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting import figures, front
from distilbench.reporting.coordinates import compute_coordinates, coordinates_caption, draw_coordinates
from distilbench.reporting.covariance import compute_covariances, draw_covariances
from distilbench.reporting.curves import compute_curves, curves_caption, draw_curves
from distilbench.reporting.importance import compute_importance, draw_importance, importance_caption
from distilbench.reporting.index_time import compute_index_time, draw_index_time, index_time_caption
from distilbench.reporting.latency import compute_quality_latency, draw_quality_latency, latency_caption
from distilbench.reporting.sensitivity import compute_sensitivity, draw_sensitivity, sensitivity_caption
from distilbench.reporting.space_map import compute_space_map, draw_space_map, space_caption
from distilbench.reporting.table import Leaderboard, index_rows

Records = Sequence[TrialRecord | ScoreRecord]


class Plot(NamedTuple):
    """A figure's place in a page: `themes` holds the Plotly JSON of each theme."""

    name: str
    title: str
    caption: str
    themes: Markup
    tall: bool = False


def board_plots(board: Leaderboard) -> dict[str, Plot]:
    """The figures of the leaderboard that have something to show, by name."""
    plots = {}
    quality = figures.compute_quality_bytes(board)
    names = ", ".join(quality.sets)
    if quality.points:
        omitted = f" Rows without that average, not drawn: {quality.omitted}." if quality.omitted else ""
        bars = any(point.interval is not None for point in quality.points)
        spread = " Bars are 95 % intervals over seeds." if bars else ""
        plots["bytes"] = Plot(
            "bytes",
            "Quality against size",
            f"Mean Spearman x 100 on the test sets {names}, against bytes per vector. The dotted line joins the "
            f"encoders that no other one beats in both.{spread}{omitted}",
            _themes(lambda palette: figures.draw_quality_bytes(quality, palette)),
        )
    by_dim = figures.compute_quality_dim(board)
    if by_dim.methods:
        plots["dim"] = Plot(
            "dim",
            "Quality against dimension",
            f"The same average, by method{' and quantisation' if board.quantised else ''}. A line passes "
            "through the encoder with the best dev score of each dimension; bars are 95 % intervals over seeds, where there "
            "are several.",
            _themes(lambda palette: figures.draw_quality_dim(by_dim, palette)),
        )
    speed = compute_quality_latency(board)
    if speed.points:
        drawing = _themes(lambda palette: draw_quality_latency(speed, palette))
        plots["latency"] = Plot("latency", "Quality against latency", latency_caption(speed), drawing)
    space = compute_space_map(board)
    if space.points:
        drawing = _themes(lambda palette: draw_space_map(space, palette))
        plots["space"] = Plot("space", "Alignment and uniformity", space_caption(space), drawing)
    indexes = compute_index_time(index_rows(board))
    if indexes.points:
        drawing = _themes(lambda palette: draw_index_time(indexes, palette))
        plots["index-time"] = Plot(
            "index-time", "What an index finds, and how fast", index_time_caption(indexes), drawing
        )
    covariances = compute_covariances(board)
    if covariances.names:
        more = f" {covariances.omitted} more are not drawn." if covariances.omitted else ""
        plots["covariance"] = Plot(
            "covariance",
            "Covariance of the first 16 dimensions",
            f"Each dimension scaled to variance 1: what is off the diagonal is said twice.{more}",
            _themes(lambda palette: draw_covariances(covariances, palette)),
        )
    return plots


def search_plots(records: Records, *, importance: bool = True) -> tuple[dict[str, Plot], list[str]]:
    """The figures of one run's search by name, and why those that one may expect are not there."""
    plots: dict[str, Plot] = {}
    absent: list[str] = []
    learning = figures.compute_learning(records)
    if any(point.objective is not None for run in learning.runs for point in run.points):
        drawn, total = sum(run.drawn for run in learning.runs), sum(run.total for run in learning.runs)
        part = f" {drawn:,} of {total:,} trials are drawn." if drawn < total else ""
        plots["learning"] = Plot(
            "learning",
            "What the search spent",
            "Best dev objective so far against the optimiser steps of all trials up to it, pruned and failed ones "
            f"included.{part}",
            _themes(lambda palette: figures.draw_learning(learning, palette)),
        )
    found = front.compute_front(records)
    if found.runs:
        caption = front.front_caption(found)
        drawing = _themes(lambda palette: front.draw_front(found, palette))
        plots["front"] = Plot("front", "The front of the search", caption, drawing)
    volume = front.compute_volume(records)
    if volume.runs:
        caption = front.volume_caption(volume)
        drawing = _themes(lambda palette: front.draw_volume(volume, palette))
        plots["volume"] = Plot("volume", "Hypervolume of the search", caption, drawing)
    curves = compute_curves(records)
    if curves.curves:
        drawing = _themes(lambda palette: draw_curves(curves, palette))
        plots["curves"] = Plot("curves", "Learning curves", curves_caption(curves), drawing)
    sensitivity = compute_sensitivity(records)
    if sensitivity.panels:
        drawing = _themes(lambda palette: draw_sensitivity(sensitivity, palette))
        plots["sensitivity"] = Plot(
            "sensitivity", "What each hyper-parameter does", sensitivity_caption(sensitivity), drawing, tall=True
        )
    coordinates = compute_coordinates(records)
    if coordinates.axes:
        drawing = _themes(lambda palette: draw_coordinates(coordinates, palette))
        plots["coordinates"] = Plot(
            "coordinates", "Hyper-parameters together", coordinates_caption(coordinates), drawing, tall=True
        )
    if importance and learning.runs:
        weights = compute_importance(records)
        if weights.reason:
            absent.append(importance_caption(weights))
        else:
            drawing = _themes(lambda palette: draw_importance(weights, palette))
            plots["importance"] = Plot(
                "importance", "Which hyper-parameters matter", importance_caption(weights), drawing
            )
    return plots, absent


def _themes(draw: Callable[[figures.Palette], go.Figure]) -> Markup:
    """JSON of both themes for a script element: to_json writes <, > and / as escapes, so no text can close it."""
    light, dark = (str(draw(palette).to_json()) for palette in (figures.LIGHT, figures.DARK))
    return Markup(f'{{"light":{light},"dark":{dark}}}')
