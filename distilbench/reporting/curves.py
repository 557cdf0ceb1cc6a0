"""Learning curves of a search: the dev objective of each trial at its rungs, and where a trial was stopped early."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.colours import LIGHT, Palette, kind_colour
from distilbench.reporting.figures import frame, plain
from distilbench.reporting.searched import Within, axis_start, every_kth, groups_within, search_trials, trial_groups
from distilbench.reporting.ticks import log_axis, logarithmic

MOST_CURVES = 200
"""Drawn of a run, half of them completed where there are as many."""


class Curve(NamedTuple):
    """One trial: (step, dev objective) at its rungs; `best`: the highest last objective of its group's completed trials."""

    number: int
    group: int
    pruned: bool
    points: tuple[tuple[int, float], ...]
    best: bool


class Curves(NamedTuple):
    """`groups` are what curves of equal `group` are called. `complete` and `pruned` count the trials that have a curve.

    `without`: trials that have none, since they failed or no rung had a finite objective.
    """

    curves: tuple[Curve, ...]
    groups: tuple[str, ...]
    complete: int
    pruned: int
    without: int
    start: float | None
    """Where the axis of objectives starts; None: at the lowest."""
    within: Within = "output dimension"
    """What the trials of a group have in common."""


def compute_curves(records: Iterable[TrialRecord | ScoreRecord], limit: int = MOST_CURVES) -> Curves:
    """The completed and the pruned trials of one run, in order of group and last objective, best last.

    With more than `limit`: every k-th completed one, the best of each group among them; and every k-th pruned one.

    Raises:
        ValueError: trials of more than one run, or `limit` below 2.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}, expected 2 or more")
    trials = search_trials(records)
    drawable = [(t, points) for t in trials if t.state != "FAIL" and (points := _points(t))]
    group, groups = trial_groups([t for t, _ in drawable])
    best: dict[int, tuple[float, int]] = {}
    for i, (t, points) in enumerate(drawable):
        if t.state == "COMPLETE":
            best[group[i]] = max(best.get(group[i], (float("-inf"), i)), (points[-1][1], i))
    tops = {i for _, i in best.values()}
    curves = [Curve(t.number, group[i], t.state == "PRUNED", pts, i in tops) for i, (t, pts) in enumerate(drawable)]
    complete = sorted((c for c in curves if not c.pruned), key=_by_last)
    pruned = sorted((c for c in curves if c.pruned), key=_by_last)
    chosen = [*pruned, *complete]
    if len(chosen) > limit:
        half = limit // 2
        of_pruned = max(half, limit - len(complete))
        of_complete = max(limit - half, limit - len(pruned))
        drawn_complete = {id(c) for c in every_kth(complete, of_complete)}
        chosen = [*every_kth(pruned, of_pruned), *(c for c in complete if id(c) in drawn_complete or c.best)]
    values: list[list[float]] = [[] for _ in groups]
    for curve in curves:
        values[curve.group] += [value for _, value in curve.points]
    without = len(trials) - len(drawable)
    start, within = axis_start(values), groups_within(trials)
    return Curves(tuple(chosen), tuple(groups), len(complete), len(pruned), without, start, within)


def curves_caption(data: Curves) -> str:
    """What the figure of `compute_curves` shows."""
    parts = ["Dev objective of the trials at each rung."]
    if data.pruned:
        parts.append("A thin grey line that ends in a cross is a trial that was stopped there.")
    if data.complete:
        of_each = f" of each {data.within.removeprefix('output ')}" if len(data.groups) > 1 else ""
        parts.append(f"Strong lines are the best{of_each}.")
    drawn = sum(curve.pruned for curve in data.curves)
    if len(data.curves) < data.complete + data.pruned:
        parts.append(
            f"Drawn: {len(data.curves) - drawn:,} of {data.complete:,} completed and {drawn:,} of {data.pruned:,} pruned "
            "trials, evenly chosen by their last objective."
        )
    if data.start is not None:
        parts.append("Trials that diverge leave the figure at its lower edge.")
    if data.without:
        parts.append(f"Without a curve, failed or never with a finite objective: {data.without:,}.")
    return " ".join(parts)


def draw_curves(data: Curves, palette: Palette = LIGHT) -> go.Figure:
    """Completed trials in the colour of their group, the best of each strong; pruned ones thin and grey."""
    figure = go.Figure()
    pruned = [curve for curve in data.curves if curve.pruned]
    if pruned:
        look = {"color": palette.muted, "width": 0.8}
        figure.add_scatter(**_lines(pruned), mode="lines", line=look, opacity=0.45, hoverinfo="skip", showlegend=False)
        figure.add_scatter(
            x=[curve.points[-1][0] for curve in pruned],
            y=[curve.points[-1][1] for curve in pruned],
            customdata=[curve.number for curve in pruned],
            mode="markers",
            name="Pruned",
            marker={
                "symbol": "x-thin",
                "size": 6,
                "color": palette.muted,
                "line": {"width": 1.2, "color": palette.muted},
            },
            hovertemplate=_HOVER.replace("Trial", "Pruned trial"),
        )
    several = len(data.groups) > 1
    for group, name in enumerate(data.groups):
        colour = kind_colour(group, palette)
        for best, width, opacity in ((False, 1.0, 0.4), (True, 2.6, 1.0)):
            group_curves = [c for c in data.curves if c.group == group and not c.pruned and c.best == best]
            if group_curves:
                figure.add_scatter(
                    **_lines(group_curves),
                    mode="lines+markers",
                    line={"color": colour, "width": width},
                    marker={"color": colour, "size": 4},
                    opacity=opacity,
                    name=plain(name) if several else "Best" if best else "Complete",
                    legendgroup=str(group) if several else None,
                    showlegend=best or not several,
                    hovertemplate=_HOVER,
                )
    frame(figure, palette, "Optimiser steps of the trial", "Dev objective (selection)")
    steps = {step for curve in data.curves for step, _ in curve.points}
    if logarithmic(steps):
        log_axis(figure, steps)
    else:
        figure.update_xaxes(rangemode="tozero")
    if data.start is not None:
        top = max(value for curve in data.curves for _, value in curve.points)
        figure.update_yaxes(range=[data.start, top + 0.05 * (top - data.start)])
    return figure


_HOVER = "Trial %{customdata}<br>%{x:,} steps<br>objective %{y:.4g}<extra></extra>"


def _lines(curves: Sequence[Curve]) -> dict[str, list[float | None]]:
    """All curves as one line with gaps: x, y, and each point's trial."""
    return {
        "x": [x for curve in curves for x in (*(step for step, _ in curve.points), None)],
        "y": [y for curve in curves for y in (*(round(value, 4) for _, value in curve.points), None)],
        "customdata": [n for curve in curves for n in [curve.number] * (len(curve.points) + 1)],
    }


def _points(trial: TrialRecord) -> tuple[tuple[int, float], ...]:
    return tuple((rung.step, value) for rung in trial.rungs if (value := finite(rung.objective)) is not None)


def _by_last(curve: Curve) -> tuple[int, float, int]:
    return curve.group, curve.points[-1][1], curve.number
