"""Figures of a search with several objectives: its front, and the hypervolume against what it spent.

Completed trials count; those that confirm another with a new seed do not, since they are the same settings again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from distilbench.choices import QUALITY
from distilbench.codes import code_of
from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.colours import LIGHT, SYMBOLS, Palette, kind_colour
from distilbench.reporting.figures import MAX_TRIAL_MARKERS, frame, log_ticks, plain, steps_of
from distilbench.reporting.table import unique_trials
from distilbench.search.objectives import OBJECTIVES, directions, hypervolume, pareto_front

COSTS = tuple(name for name in OBJECTIVES if name != QUALITY)


class FrontPoint(NamedTuple):
    """A completed trial: a value for each of the run's objectives, and whether no other trial of the run dominates it."""

    number: int
    seed: int
    method: str
    dim: int
    code: str
    values: dict[str, float]
    front: bool


class RunFront(NamedTuple):
    """One run. `objectives` are those that the front is taken over; `drawn` of `total` trials are in `points`."""

    run: str
    objectives: tuple[str, ...]
    points: tuple[FrontPoint, ...]
    drawn: int
    total: int


class SearchFront(NamedTuple):
    """Dev quality against `cost` ("bytes" or "latency"); `omitted` counts completed trials without that objective."""

    runs: tuple[RunFront, ...]
    cost: str
    omitted: int


class RunVolume(NamedTuple):
    """One run: (optimiser steps spent, volume in % of the box) at 0, where it grew, and at the end."""

    run: str
    points: tuple[tuple[int, float], ...]


class SearchVolume(NamedTuple):
    """Hypervolume against steps spent. The box lies between `reference`, the worst, and `best` of each objective.

    Both are over the completed trials of all runs, by name. `constant` are objectives in which all of them are equal:
    the box has no extent there, so they are left out.
    """

    runs: tuple[RunVolume, ...]
    reference: dict[str, float]
    best: dict[str, float]
    constant: tuple[str, ...]


class _Run(NamedTuple):
    """A run with several objectives: its trials in order of number, and what all of its completed ones have."""

    run: str
    trials: tuple[TrialRecord, ...]
    objectives: tuple[str, ...]


def compute_front(records: Iterable[TrialRecord | ScoreRecord], limit: int = MAX_TRIAL_MARKERS) -> SearchFront:
    """The completed trials of each run that has several objectives; the front of each is taken over all of its own.

    With more than `limit` trials in a run, of those off the front every k-th is drawn.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more")
    runs = _runs(records)
    cost = next((name for name in COSTS if any(name in run.objectives for run in runs)), COSTS[0])
    drawn = [_run_front(run, limit) for run in runs if cost in run.objectives]
    omitted = sum(len(_complete(run)) for run in runs if cost not in run.objectives)
    return SearchFront(tuple(drawn), cost, omitted)


def compute_volume(records: Iterable[TrialRecord | ScoreRecord]) -> SearchVolume:
    """Per run, trials in order of their number, each adding the steps of its last rung; only complete ones add volume.

    Over the objectives that all runs have. No runs where those are fewer than two, or all trials are equal in each.
    """
    runs = _runs(records)
    shared = tuple(name for name in OBJECTIVES if runs and all(name in run.objectives for run in runs))
    values_NK = np.array([_values(trial, shared) for run in runs for trial in _complete(run)])
    if len(shared) < 2:
        return SearchVolume((), {}, {}, ())
    low_K, high_K = values_NK.min(axis=0), values_NK.max(axis=0)
    names = tuple(name for name, low, high in zip(shared, low_K, high_K, strict=True) if low < high)
    constant = tuple(name for name in shared if name not in names)
    if not names:
        return SearchVolume((), {}, {}, constant)
    ends = dict(zip(shared, zip(low_K.tolist(), high_K.tolist(), strict=True), strict=True))
    upwards = {name: OBJECTIVES[name].direction == "maximize" for name in names}
    reference = {name: ends[name][0 if upwards[name] else 1] for name in names}
    best = {name: ends[name][1 if upwards[name] else 0] for name in names}
    return SearchVolume(tuple(_run_volume(run, reference, best) for run in runs), reference, best, constant)


def front_caption(data: SearchFront) -> str:
    """What the figure of `compute_front` shows."""
    over = dict.fromkeys(" and ".join(run.objectives) for run in data.runs)
    drawn, total = sum(run.drawn for run in data.runs), sum(run.total for run in data.runs)
    parts = [
        f"Completed trials: dev quality (selection) against {OBJECTIVES[data.cost].help.lower()}. Large markers are the "
        f"front: no other trial{' of the same run' if len(data.runs) > 1 else ''} is at least as good in "
        f"{' or in '.join(over)}, and better in one."
    ]
    if drawn < total:
        parts.append(f"{drawn:,} of {total:,} trials are drawn, all of the front among them.")
    if data.omitted:
        parts.append(f"Trials of a search without {data.cost} among its objectives, not drawn: {data.omitted:,}.")
    return " ".join(parts)


def volume_caption(data: SearchVolume) -> str:
    """What the figure of `compute_volume` shows, and its reference point."""
    reference = ", ".join(_shown(name, value) for name, value in data.reference.items())
    best = ", ".join(_shown(name, value) for name, value in data.best.items())
    left_out = f" Equal in all trials, so left out: {', '.join(data.constant)}." if data.constant else ""
    return (
        "Hypervolume that the completed trials so far dominate, against the optimiser steps of all trials up to then, "
        f"pruned and failed ones included. Reference point: {reference}, the worst of each objective among all completed "
        f"trials shown; 100 % is the box from there to the best of each ({best}).{left_out}"
    )


def draw_front(data: SearchFront, palette: Palette = LIGHT) -> go.Figure:
    """A colour per run; the front in large filled markers, with a line where there are two objectives."""
    figure = go.Figure()
    for index, run in enumerate(data.runs):
        colour, symbol = kind_colour(index, palette), SYMBOLS[index % len(SYMBOLS)]
        suffix = f", {plain(run.run)}" if len(data.runs) > 1 else ""
        for on_front, name in ((False, "Other trials"), (True, "Front")):
            points = sorted((p for p in run.points if p.front == on_front), key=lambda p: p.values[data.cost])
            if points:
                line = on_front and len(run.objectives) == 2
                figure.add_scatter(
                    x=[point.values[data.cost] for point in points],
                    y=[point.values[QUALITY] for point in points],
                    mode="lines+markers" if line else "markers",
                    name=name + suffix,
                    line={"color": colour, "width": 1.5, "dash": "dot"},
                    marker={
                        "color": colour if on_front else palette.muted,
                        "symbol": symbol,
                        "size": 11 if on_front else 6,
                        "opacity": 1.0 if on_front else 0.5,
                    },
                    hovertext=[_hover(point) for point in points],
                    hoverinfo="text",
                )
    if data.cost == "bytes":
        frame(figure, palette, "Bytes per vector (log scale)", "Dev quality (selection)")
        log_ticks(figure, [int(point.values[data.cost]) for run in data.runs for point in run.points])
    else:
        frame(figure, palette, f"{data.cost.capitalize()}, {OBJECTIVES[data.cost].unit}", "Dev quality (selection)")
        figure.update_xaxes(rangemode="tozero")
    return figure


def draw_volume(data: SearchVolume, palette: Palette = LIGHT) -> go.Figure:
    """A line of steps per run."""
    figure = go.Figure()
    for index, run in enumerate(data.runs):
        figure.add_scatter(
            x=[steps for steps, _ in run.points],
            y=[volume for _, volume in run.points],
            mode="lines",
            name=plain(run.run),
            showlegend=len(data.runs) > 1,
            line={"color": kind_colour(index, palette), "width": 2.2, "shape": "hv"},
            hovertext=[f"{plain(run.run)}<br>{volume:.2f} %<br>{steps:,} steps" for steps, volume in run.points],
            hoverinfo="text",
        )
    frame(figure, palette, "Optimiser steps spent, trials in order of number", "Hypervolume, % of the box")
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _runs(records: Iterable[TrialRecord | ScoreRecord]) -> list[_Run]:
    """The runs of which a completed trial has quality and another objective, confirmations left out."""
    by_run: dict[str, list[TrialRecord]] = {}
    for trial in unique_trials(records):
        if not trial.confirms:
            by_run.setdefault(trial.run, []).append(trial)
    runs = []
    for run, trials in by_run.items():
        complete = [t for t in trials if t.state == "COMPLETE" and len(t.values) > 1]
        objectives = tuple(name for name in OBJECTIVES if all(finite(t.values.get(name)) is not None for t in complete))
        if complete and len(objectives) > 1 and QUALITY in objectives:
            runs.append(_Run(run, tuple(trials), objectives))
    return runs


def _complete(run: _Run) -> list[TrialRecord]:
    return [t for t in run.trials if t.state == "COMPLETE" and len(t.values) > 1]


def _values(trial: TrialRecord, names: Iterable[str]) -> list[float]:
    return [trial.values[name] for name in names]


def _run_front(run: _Run, limit: int) -> RunFront:
    trials = _complete(run)
    front_positions = pareto_front([_values(t, run.objectives) for t in trials], directions(run.objectives))
    front = set(front_positions.tolist())
    others = [i for i in range(len(trials)) if i not in front]
    drawn = sorted([*front, *others[:: max(1, -(-len(others) // limit))]])
    points = [
        FrontPoint(
            number=t.number,
            seed=t.seed,
            method=t.method,
            dim=t.dim,
            code=code_of(t.params),
            values={name: t.values[name] for name in run.objectives},
            front=i in front,
        )
        for i, t in ((i, trials[i]) for i in drawn)
    ]
    return RunFront(run.run, run.objectives, tuple(points), len(points), len(trials))


def _run_volume(run: _Run, reference: dict[str, float], best: dict[str, float]) -> RunVolume:
    towards, worst_K = directions(reference), list(reference.values())
    box = float(np.prod([abs(best[name] - reference[name]) for name in reference]))
    complete = {id(trial) for trial in _complete(run)}
    points, front_FK, spent = [(0, 0.0)], list[Sequence[float]](), 0
    for trial in run.trials:
        spent += steps_of(trial)
        if id(trial) in complete:
            front_FK.append(_values(trial, reference))
            front_FK = [front_FK[i] for i in pareto_front(front_FK, towards)]
            volume = 100 * hypervolume(front_FK, worst_K, towards) / box
            if volume > points[-1][1]:
                points.append((spent, volume))
    if spent > points[-1][0]:
        points.append((spent, points[-1][1]))
    return RunVolume(run.run, tuple(points))


def _shown(name: str, value: float) -> str:
    """A value with its objective and unit: "512 bytes", "latency 0.42 ms"."""
    unit = OBJECTIVES[name].unit
    return f"{value:,.0f} {unit}" if name == unit else f"{name} {value:.4g} {unit}"


def _hover(point: FrontPoint) -> str:
    values = "<br>".join(_shown(name, value) for name, value in point.values.items())
    on_front = "<br>on the front" if point.front else ""
    return (
        f"<b>Trial {point.number}</b>, seed {point.seed}<br>{plain(point.method)}, {point.dim:,} dimensions, "
        f"{point.code}<br>{values}{on_front}"
    )
