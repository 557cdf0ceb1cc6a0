"""Alignment against uniformity (Wang and Isola, 2020): where the encoders' embeddings lie on the sphere."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord
from distilbench.reporting.colours import LIGHT, Palette
from distilbench.reporting.figures import frame, looks_of, plain
from distilbench.reporting.table import Leaderboard, mean_cell


class SpacePoint(NamedTuple):
    """An encoder, the means over its `seeds` seeds; both the lower the better."""

    name: str
    role: str
    method: str
    dim: int
    alignment: float
    uniformity: float
    seeds: int


class SpaceMap(NamedTuple):
    """`positives` pairs and `rows` sentences were read; `omitted` encoders were measured on others, or not finite."""

    points: tuple[SpacePoint, ...]
    positives: int
    rows: int
    omitted: int


def compute_space_map(board: Leaderboard) -> SpaceMap:
    """The rows whose geometry was measured on the same text: the most common choice of sets, pairs and sentences."""
    measured = {row.anchor: [s.record for s in row.seeds if s.record.space] for row in board.rows}
    texts = Counter(_text(records[0]) for records in measured.values() if records)
    if not texts:
        return SpaceMap((), 0, 0, 0)
    common = max(texts, key=lambda text: texts[text])
    points = []
    for row in board.rows:
        spaces = [r.space for r in measured[row.anchor] if r.space is not None and _text(r) == common]
        alignment = mean_cell(finite(space.alignment) for space in spaces)
        uniformity = mean_cell(finite(space.uniformity) for space in spaces)
        if alignment.value is not None and uniformity.value is not None:
            point = SpacePoint(
                row.name,
                row.record.role,
                row.record.method,
                row.record.dim,
                alignment.value,
                uniformity.value,
                alignment.seeds,
            )
            points.append(point)
    return SpaceMap(tuple(points), common[1], common[2], texts.total() - len(points))


def space_caption(data: SpaceMap) -> str:
    """What the figure of `compute_space_map` shows."""
    omitted = f" Measured on other text, not drawn: {data.omitted}." if data.omitted else ""
    return (
        f"Alignment: mean squared distance of {data.positives:,} similar pairs. Uniformity: log of the mean of "
        f"exp(−2 distance²) over pairs of {data.rows:,} sentences. The lower, the better: both at the lower left.{omitted}"
    )


def draw_space_map(data: SpaceMap, palette: Palette = LIGHT) -> go.Figure:
    """A point per encoder, by method."""
    figure = go.Figure()
    methods: dict[tuple[str, str], list[SpacePoint]] = {}
    for point in data.points:
        methods.setdefault((point.method, point.role), []).append(point)
    for points, look in zip(methods.values(), looks_of(list(methods), palette), strict=True):
        figure.add_scatter(
            x=[point.uniformity for point in points],
            y=[point.alignment for point in points],
            mode="markers",
            name=plain(look.name),
            marker={
                "color": look.colour,
                "symbol": look.symbol,
                "size": 9,
                "opacity": 0.8,
                "line": {"width": 1.5, "color": look.colour},
            },
            hovertext=[_hover(point) for point in points],
            hoverinfo="text",
        )
    frame(figure, palette, "Uniformity", "Alignment")
    return figure


def _text(record: ScoreRecord) -> tuple[str, int, int]:
    """What the geometry was measured on, as far as a record says it."""
    assert record.space is not None
    return record.compared_on, record.space.positives, record.space.rows


def _hover(point: SpacePoint) -> str:
    seeds = f"<br>mean over {point.seeds} seeds" if point.seeds > 1 else ""
    return (
        f"<b>{plain(point.name)}</b><br>{point.dim:,} dimensions<br>alignment {point.alignment:.3f}<br>"
        f"uniformity {point.uniformity:.2f}{seeds}"
    )
