"""Parallel coordinates of a search: a vertical axis for each hyper-parameter, a line for each completed trial.

Drawn with plain lines: Plotly's own `parcoords` compiles its shaders with `Function`, which the page's content-security
policy forbids (tried in Chromium: it draws nothing, and says nothing).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.colours import LIGHT, Palette, kind_colour
from distilbench.reporting.figures import frame, plain
from distilbench.reporting.searched import GROUPED, Parameter, Searched, Within, axis_start, every_kth, searched_trials
from distilbench.reporting.ticks import Tick, tick_label, ticks

MOST_LINES = 240
MOST_AXES = 10
"""Hyper-parameters drawn, beside the group and the objective."""
MOST_TICKS = 6
FIFTHS = ("Lowest fifth", "Second", "Third", "Fourth", "Highest fifth")
_OPACITY = (0.25, 0.3, 0.35, 0.45, 0.7)


class Axis(NamedTuple):
    """`ticks`: (height, text). A height is 0 at the lowest of all completed trials, 1 at the highest.

    Of objectives 0 is where the axis starts (`searched.axis_start`).
    """

    title: str
    log: bool
    ticks: tuple[Tick, ...]


class TrialLine(NamedTuple):
    """A trial: its height on each axis, None where it lacks the parameter.

    `fifth`: of the trials of its group by objective, 0 the lowest and 4 the highest.
    """

    number: int
    fifth: int
    heights: tuple[float | None, ...]


class Coordinates(NamedTuple):
    """Axes from left to right, the objective last; lines from low to high objective. `complete`: trials, drawn or not.

    `omitted` names hyper-parameters without an axis. `within`: what the trials of a group have in common, where there are
    several.
    """

    axes: tuple[Axis, ...]
    lines: tuple[TrialLine, ...]
    complete: int
    omitted: tuple[str, ...]
    within: Within | None = None


def compute_coordinates(records: Iterable[TrialRecord | ScoreRecord], limit: int = MOST_LINES) -> Coordinates:
    """The completed trials of one run; no axes where there are fewer than two, or none of their parameters differ.

    Axes are scaled to all of them. With more than `limit`, a third of the lines are the best and the others every k-th of the
    rest, by rank within their group, since objectives of different groups do not compare.

    Raises:
        ValueError: trials of more than one run, or `limit` below 2.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}, expected 2 or more")
    study = searched_trials(records)
    standing = _standing(study)
    parameters = study.parameters[:MOST_AXES]
    if not parameters or len(study.trials) < 2:
        return Coordinates((), (), len(study.trials), ())
    placed = [_axis(p) for p in parameters]
    sizes = sorted({t.group.bytes for t in study.trials})
    if len(sizes) > 1:
        place = {size: float(i) for i, size in enumerate(sizes)}
        values = tuple(place[t.group.bytes] for t in study.trials)
        name = GROUPED if study.within == "output dimension" else "bytes"
        shown = sizes if name == "bytes" else [size // 4 for size in sizes]
        placed.insert(0, _axis(Parameter(name, values, tuple(map(tick_label, shown)), False)))
    placed.append(_objective(study))
    ranked = sorted(range(len(standing)), key=lambda i: -standing[i])
    if len(ranked) > limit:
        ranked = [*ranked[: limit // 3], *every_kth(ranked[limit // 3 :], limit - limit // 3)]
    lines = [
        TrialLine(study.trials[i].number, min(4, int(5 * standing[i])), tuple(heights[i] for _, heights in placed))
        for i in reversed(ranked)
    ]
    omitted = tuple(p.name for p in study.parameters[MOST_AXES:])
    within = study.within if len(sizes) > 1 else None
    return Coordinates(tuple(axis for axis, _ in placed), tuple(lines), len(study.trials), omitted, within)


def coordinates_caption(data: Coordinates) -> str:
    """What the figure of `compute_coordinates` shows."""
    within = f" of their {data.within}" if data.within else ""
    parts = [f"A line for each completed trial. Colours are fifths of the trials{within} by dev objective."]
    logs = [axis.title for axis in data.axes if axis.log]
    if logs:
        parts.append(f"On a logarithmic scale: {', '.join(logs)}.")
    if len(data.lines) < data.complete:
        parts.append(
            f"{len(data.lines):,} of {data.complete:,} trials are drawn: the best, and an even choice of the others."
        )
    if data.omitted:
        parts.append(f"Without an axis: {', '.join(data.omitted)}.")
    return " ".join(parts)


def draw_coordinates(data: Coordinates, palette: Palette = LIGHT) -> go.Figure:
    """Lines from weak to strong colour by fifth, which the legend can hide; every axis with its own ticks."""
    figure = go.Figure()
    frame(figure, palette, "", "")
    count = len(data.axes)
    for fifth, name in enumerate(FIFTHS):
        lines = [line for line in data.lines if line.fifth == fifth]
        if lines:
            figure.add_scatter(
                x=[*range(count), None] * len(lines),
                y=[y for line in lines for y in (*(h if h is None else round(h, 4) for h in line.heights), None)],
                customdata=[n for line in lines for n in [line.number] * (count + 1)],
                mode="lines",
                name=name,
                line={
                    "color": kind_colour(0, palette) if fifth > 2 else palette.muted,
                    "width": 1.2 if fifth == 4 else 1,
                },
                opacity=_OPACITY[fifth],
                hovertemplate="Trial %{customdata}<extra></extra>",
            )
    upright = {"type": "line", "y0": 0, "y1": 1, "line": {"color": palette.ink, "width": 1}}
    label = {
        "showarrow": False,
        "xanchor": "left",
        "xshift": 3,
        "bgcolor": palette.surface,
        "opacity": 0.85,
        "borderpad": 1,
        "font": {"size": 10, "color": palette.ink},
    }
    figure.update_layout(  # at once: Plotly checks all of them again for each one that is added
        shapes=[{**upright, "x0": i, "x1": i} for i in range(count)],
        annotations=[
            {**label, "x": i, "y": height, "text": plain(text, 12)}
            for i, axis in enumerate(data.axes)
            for height, text in axis.ticks
        ],
    )
    figure.update_xaxes(
        tickmode="array",
        tickvals=list(range(count)),
        ticktext=[plain(axis.title, 18) for axis in data.axes],
        range=[-0.4, count - 0.5],
        showline=False,
    )
    figure.update_yaxes(visible=False, range=[-0.04, 1.04])
    return figure


def _standing(study: Searched) -> list[float]:
    """Each trial's rank among those of its group, from above 0 to below 1, the higher the better."""
    members: list[list[int]] = [[] for _ in study.groups]
    for i in sorted(range(len(study.trials)), key=lambda i: study.objective[i]):
        members[study.group[i]].append(i)
    standing = [0.0] * len(study.trials)
    for ranked in members:
        for rank, i in enumerate(ranked):
            standing[i] = (rank + 0.5) / len(ranked)
    return standing


def _objective(study: Searched) -> tuple[Axis, list[float | None]]:
    """The objective's axis; where diverged trials are far below the others they lie at its lower end, marked "≤"."""
    members = [
        [v for v, g in zip(study.objective, study.group, strict=True) if g == k] for k in range(len(study.groups))
    ]
    start = axis_start(members)
    if start is None:
        return _axis(Parameter("objective", study.objective, (), False))
    axis, heights = _axis(Parameter("objective", tuple(max(value, start) for value in study.objective), (), False))
    inner = tuple(tick for tick in axis.ticks if tick[0] > 0.05)
    return axis._replace(ticks=((0.0, f"≤ {tick_label(start)}"), *inner)), heights


def _axis(p: Parameter) -> tuple[Axis, list[float | None]]:
    """The axis, and the height of every trial on it."""
    values = [value for value in p.values if value is not None]
    low, high = min(values), max(values)
    first, last = (math.log10(low), math.log10(high)) if p.log else (low, high)

    def height(value: float | None) -> float | None:
        if value is None:
            return None
        return ((math.log10(value) if p.log else value) - first) / (last - first) if last > first else 0.5

    marks: Sequence[Tick]
    if p.categories:
        marks = every_kth([(float(i), text) for i, text in enumerate(p.categories)], 2 * MOST_TICKS)
    elif len(set(values)) <= MOST_TICKS:
        marks = [(value, tick_label(value)) for value in sorted(set(values))]
    else:
        marks = ticks(low, high, log=p.log, most=MOST_TICKS)
    axis_ticks = tuple((at, text) for value, text in marks if (at := height(value)) is not None)
    return Axis(p.name, p.log, axis_ticks), [height(value) for value in p.values]
