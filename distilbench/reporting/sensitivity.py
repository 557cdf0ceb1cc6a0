"""Sensitivity: the dev objective against each hyper-parameter of a search (as IBKD, figure 3, over beta).

The papers vary one parameter and hold the others; a search varies all of them at once. So beside the trials stands a line
through the best of neighbouring values: how high the objective gets around a value, the others being as good as was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.colours import LIGHT, SYMBOLS, Palette, kind_colour
from distilbench.reporting.figures import frame, plain
from distilbench.reporting.searched import Parameter, Searched, Within, axis_start, every_kth, searched_trials
from distilbench.reporting.ticks import log_axis

ACROSS = 3
MOST_PANELS = 12
MOST_POINTS = 300
"""Trials that are points in a panel; each is one more marker in every panel."""
BINS, LEAST_IN_BIN = 8, 3


class EffectPoint(NamedTuple):
    """A completed trial."""

    value: float
    objective: float
    number: int


class Effect(NamedTuple):
    """One group's trials in a panel. `best`: (value, objective) of the best trial of each bin, by rising value.

    Bins are of equally many neighbouring trials, or one for each value where there are few: the best of many trials is
    higher than the best of few by chance alone.
    """

    group: int
    points: tuple[EffectPoint, ...]
    best: tuple[tuple[float, float], ...]


class Panel(NamedTuple):
    """One hyper-parameter; `log` as in Parameter."""

    name: str
    log: bool
    effects: tuple[Effect, ...]


class Sensitivity(NamedTuple):
    """Panels in the order of the search space; `omitted` names those beyond `MOST_PANELS`.

    `groups` are what effects of equal `group` are called. `drawn` of `complete` trials are points; `best` is over all.
    `start`: where the axis of objectives starts, and `below` trials are under it; None: nothing is. `within`: what the
    trials of a group have in common.
    """

    panels: tuple[Panel, ...]
    groups: tuple[str, ...]
    drawn: int
    complete: int
    omitted: tuple[str, ...]
    start: float | None
    below: int
    within: Within = "output dimension"


def compute_sensitivity(records: Iterable[TrialRecord | ScoreRecord], limit: int = MOST_POINTS) -> Sensitivity:
    """The completed trials of one run, against each searched parameter that is a number.

    With more than `limit` of them, each group draws its best and every k-th after it by objective.

    Raises:
        ValueError: trials of more than one run, or `limit` below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more")
    study = searched_trials(records)
    members: list[list[int]] = [[] for _ in study.groups]
    for i in sorted(range(len(study.trials)), key=lambda i: -study.objective[i]):
        members[study.group[i]].append(i)
    share = max(1, limit // len(members)) if members else 1
    drawn = [every_kth(group, share) if len(study.trials) > limit else group for group in members]
    numbers = [p for p in study.parameters if not p.categories]
    panels = tuple(_panel(study, p, members, drawn) for p in numbers[:MOST_PANELS])
    count = sum(len(group) for group in drawn)
    omitted = tuple(p.name for p in numbers[MOST_PANELS:])
    start = axis_start([study.objective[i] for i in group] for group in members)
    below = 0 if start is None else sum(value < start for value in study.objective)
    return Sensitivity(panels, study.groups, count, len(study.trials), omitted, start, below, study.within)


def sensitivity_caption(data: Sensitivity) -> str:
    """What the figure of `compute_sensitivity` shows."""
    parts = [
        "Dev objective of the completed trials against each hyper-parameter that was searched, all varied at once. A line "
        f"joins the best of each of up to {BINS} equal groups of neighbouring trials (of each value, where it has few)."
    ]
    if len(data.groups) > 1:
        what = "dimensions" if data.within == "output dimension" else "numbers of bytes"
        parts.append(f"Objectives of different {what} do not compare: only the shapes of their lines do.")
    if data.drawn < data.complete:
        parts.append(f"{data.drawn:,} of {data.complete:,} trials are points, the best among them; lines are over all.")
    if data.below:
        parts.append(f"Below the axis: {data.below:,} trials.")
    if data.omitted:
        parts.append(f"Not drawn: {', '.join(data.omitted)}.")
    return " ".join(parts)


def draw_sensitivity(data: Sensitivity, palette: Palette = LIGHT) -> go.Figure:
    """Small panels, three in a row, with one scale of objectives; a colour and a marker per group."""
    count = len(data.panels)
    across, down = max(1, min(ACROSS, count)), max(1, -(-count // ACROSS))
    figure = make_subplots(
        rows=down, cols=across, shared_yaxes="all", horizontal_spacing=0.05, vertical_spacing=min(0.3, 0.5 / down)
    )
    frame(figure, palette, "", "")
    named = set[int]()
    for i, panel in enumerate(data.panels):
        place = {"row": i // across + 1, "col": i % across + 1}
        for effect in panel.effects:
            colour = kind_colour(effect.group, palette)
            group = {"legendgroup": str(effect.group), "name": plain(data.groups[effect.group])}
            figure.add_scatter(
                x=[point.value for point in effect.points],
                y=[point.objective for point in effect.points],
                customdata=[point.number for point in effect.points],
                mode="markers",
                marker={
                    "color": colour,
                    "symbol": SYMBOLS[effect.group % len(SYMBOLS)],
                    "size": 5,
                    "opacity": 0.55,
                },
                hovertemplate="Trial %{customdata}<br>%{x:.4g}<br>objective %{y:.4g}<extra></extra>",
                showlegend=len(data.groups) > 1 and effect.group not in named,
                **group,
                **place,
            )
            named.add(effect.group)
            figure.add_scatter(
                x=[value for value, _ in effect.best],
                y=[objective for _, objective in effect.best],
                mode="lines",
                line={"color": colour, "width": 2},
                showlegend=False,
                hoverinfo="skip",
                **group,
                **place,
            )
        title = plain(panel.name, 24) + (" (log scale)" if panel.log else "")
        figure.update_xaxes(title={"text": title, "standoff": 4}, **place)
        if panel.log:
            log_axis(figure, [point.value for effect in panel.effects for point in effect.points], most=3, **place)
        if place["col"] == 1:
            figure.update_yaxes(title={"text": "Dev objective"}, **place)
    figure.update_xaxes(tickangle=0)
    if data.start is not None:
        top = max(point.objective for panel in data.panels for effect in panel.effects for point in effect.points)
        figure.update_yaxes(range=[data.start, top + 0.05 * (top - data.start)])
    if down > 2:
        figure.update_layout(height=200 * down)
    return figure


def _panel(
    study: Searched, p: Parameter, members: Sequence[Sequence[int]], drawn_members: Sequence[Sequence[int]]
) -> Panel:
    effects = []
    for group, (all_trials, drawn_trials) in enumerate(zip(members, drawn_members, strict=True)):
        points = [
            EffectPoint(value, study.objective[i], study.trials[i].number)
            for i in drawn_trials
            if (value := p.values[i]) is not None
        ]
        measured = [(value, study.objective[i]) for i in all_trials if (value := p.values[i]) is not None]
        if points:
            effects.append(Effect(group, tuple(points), tuple(_best(measured))))
    return Panel(p.name, p.log, tuple(effects))


def _best(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The best point of each bin; none where fewer than two bins can be filled."""
    rising = sorted(points)
    values = sorted({value for value, _ in rising})
    if len(values) <= BINS:
        bins = [[point for point in rising if point[0] == value] for value in values]
    else:
        count = min(BINS, len(rising) // LEAST_IN_BIN)
        bins = [rising[len(rising) * k // count : len(rising) * (k + 1) // count] for k in range(count)]
    if len(bins) < 2:
        return []
    highest: dict[float, float] = {}
    for points_of_bin in bins:
        value, objective = max(points_of_bin, key=lambda point: point[1])
        highest[value] = max(objective, highest.get(value, objective))
    return sorted(highest.items())
