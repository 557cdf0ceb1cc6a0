"""The figure of covariances: what the first dimensions of each encoder share (IBKD, figure 4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from distilbench.reporting.colours import LIGHT, Palette
from distilbench.reporting.figures import frame, plain
from distilbench.reporting.table import Leaderboard

MOST = 6
"""Encoders drawn: the first of the board."""


class Covariances(NamedTuple):
    """Names, and matrices of the correlations of their first dimensions, -1 to 1; `omitted` more have one."""

    names: tuple[str, ...]
    matrices: tuple[tuple[tuple[float, ...], ...], ...]
    omitted: int


def compute_covariances(board: Leaderboard) -> Covariances:
    """Take the covariances of the first rows that have a geometry, scaled to variance 1: encoders differ in scale."""
    row_of_weights = {row.record.weights or row.anchor: row for row in reversed(board.rows) if row.record.space}
    # Of a model's widths the best alone: their first dimensions are the same.
    rows = list(reversed(row_of_weights.values()))
    names, matrices = [], []
    for row in rows[:MOST]:
        assert row.record.space is not None
        covariance = np.array(row.record.space.covariance)
        deviation = np.sqrt(np.diag(covariance))
        scale = np.outer(deviation, deviation)
        scaled = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
        names.append(row.name)
        matrices.append(tuple(tuple(float(v) for v in line) for line in scaled))
    return Covariances(tuple(names), tuple(matrices), max(0, len(rows) - MOST))


def draw_covariances(data: Covariances, palette: Palette = LIGHT) -> go.Figure:
    """A square for each encoder, one scale for all."""
    count = len(data.names)
    across = min(3, count)
    down = -(-count // across)
    figure = make_subplots(rows=down, cols=across, subplot_titles=[plain(name, 30) for name in data.names])
    for i, matrix in enumerate(data.matrices):
        figure.add_heatmap(
            z=matrix,
            zmin=-1,
            zmax=1,
            colorscale=[[0, palette.hues[1]], [0.5, palette.surface], [1, palette.hues[0]]],
            showscale=i == 0,
            hovertemplate="%{y}, %{x}: %{z:.2f}<extra></extra>",
            row=i // across + 1,
            col=i % across + 1,
        )
    frame(figure, palette, "", "")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(margin={"t": 40})
    return figure
