"""The figures of a report: each is computed (a NamedTuple of what will be drawn), then drawn with Plotly."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.colours import LIGHT, SYMBOLS, Look, Palette, kind_colour, method_look
from distilbench.reporting.direct_labels import EndLabel, add_labels
from distilbench.reporting.table import AVERAGE, DEV, Leaderboard, Row, Variant, unique_trials
from distilbench.selection import STS

MAX_TRIAL_MARKERS = 2000
"""A browser draws this many SVG markers without a pause; beyond, every k-th trial is drawn."""


MOST_DOUBLINGS = 12
"""Powers of two that have room below an axis."""


_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


class QualityPoint(NamedTuple):
    """One encoder: `quality` x 100, `retention` in percent of its teacher's quality.

    `interval` is half the width of the quality's 95 % interval over `seeds` seeds, None for one seed.
    """

    label: str
    role: str
    method: str
    dim: int
    quantisation: str
    bytes_per_vector: int
    quality: float
    interval: float | None
    seeds: int
    retention: float | None
    pareto: bool


class MethodLine(NamedTuple):
    """The encoders of one method, and a line through the best on dev at each dimension."""

    method: str
    role: str
    points: tuple[QualityPoint, ...]
    line: tuple[tuple[int, float], ...]


class QualityDim(NamedTuple):
    """Quality of float32 vectors against dimension, per method. `teachers`: name and quality, drawn as levels."""

    methods: tuple[MethodLine, ...]
    teachers: tuple[tuple[str, float], ...]
    sets: tuple[str, ...]
    variant: Variant
    measure: str = ""


class TrialPoint(NamedTuple):
    """A trial: its own optimiser steps, the steps spent when it ended, and its last dev objective (None: no value)."""

    number: int
    seed: int
    method: str
    state: str
    steps: int
    total_steps: int
    objective: float | None


class RunLearning(NamedTuple):
    """One run. `best`: (total steps, best objective so far) at each complete trial that improved it, and at the end.

    `drawn` of the `total` trials are in `points`.
    """

    run: str
    points: tuple[TrialPoint, ...]
    best: tuple[tuple[int, float], ...]
    drawn: int
    total: int


class Learning(NamedTuple):
    """Dev objective against optimiser steps spent, one entry per run."""

    runs: tuple[RunLearning, ...]


def own_measure(board: Leaderboard) -> str:
    """What the test score is of, where it is not the mean over STS sets; "" where it is."""
    return "" if board.selection == STS else board.selection.title


def compute_quality_dim(board: Leaderboard, variant: Variant = "all") -> QualityDim:
    """Every float32 row that has a test average, by method; the teachers' rows become levels."""
    rows = [row for row in board.rows if row.record.quantisation == "float32"]
    placed = [(row, point) for row in rows if (point := quality_point(board, row, variant))]
    others = [(row, point) for row, point in placed if point.role != "teacher"]
    lines, levels = _method_lines(board, others), _teacher_levels(placed)
    return QualityDim(lines, levels, board.sts_sets, variant, own_measure(board))


def compute_learning(records: Iterable[TrialRecord | ScoreRecord], limit: int = MAX_TRIAL_MARKERS) -> Learning:
    """Per run, trials in order of their number, each adding the steps of its last rung to the total.

    Trainings that confirm a trial are no part of the search.
    The objective is taken as "higher is better". Only complete trials move the best so far: a pruned trial's last value
    belongs to an earlier rung. With more than `limit` trials in a run, every k-th is a point; `best` is always exact.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more")
    by_run: dict[str, list[TrialRecord]] = {}
    for trial in (t for t in unique_trials(records) if not t.confirms):
        by_run.setdefault(trial.run, []).append(trial)
    return Learning(tuple(_run_learning(run, trials, limit) for run, trials in by_run.items()))


def draw_quality_dim(data: QualityDim, palette: Palette = LIGHT) -> go.Figure:
    """One line per method over the dimension (log scale), named at its end; those beyond six are grey. Bars are intervals."""
    figure = go.Figure()
    dims = [point.dim for method in data.methods for point in method.points]
    heights = [p.quality for method in data.methods for p in method.points] + [y for _, y in data.teachers]
    looks = looks_of([(method.method, method.role) for method in data.methods], palette)
    labels = []
    for method, look in zip(data.methods, looks, strict=True):
        _add_method(figure, method, look)
        if look.colour != palette.faint and method.line:
            labels.append(EndLabel(*method.line[-1], plain(look.name, 24), look.colour))
    for label, quality in data.teachers if dims else ():
        figure.add_scatter(
            x=[min(dims), max(dims)],
            y=[quality, quality],
            mode="lines",
            line={"color": palette.ink, "width": 1.5, "dash": "dot"},
            hovertext=f"{plain(label)}<br>{quality:.2f}",
            hoverinfo="text",
        )
        labels.append(EndLabel(max(dims), quality, "Teacher", palette.ink))
    frame(figure, palette, "Dimension (log scale)", quality_title(data.sets, data.variant, data.measure))
    figure.update_layout(showlegend=False)
    log_ticks(figure, dims)
    if dims:
        low, high = min(heights), max(heights)
        room = 0.06 * ((high - low) or 1.0)
        figure.update_yaxes(range=[low - room, high + room])
        add_labels(figure, labels, (min(dims), max(dims)), (low - room, high + room), palette)
    return figure


AT_ONCE = 6
"""Colours of a figure; what is beyond stands back in grey."""


def looks_of(methods: Sequence[tuple[str, str]], palette: Palette) -> list[Look]:
    """Each (method, role)'s own look; those after the first six methods are grey."""
    looks = [method_look(method, role, palette) for method, role in methods]
    return [look if place < AT_ONCE else look._replace(colour=palette.faint) for place, look in enumerate(looks)]


def _add_method(figure: go.Figure, method: MethodLine, look: Look) -> None:
    """The line of a method, and its points: those on the line are stronger."""
    figure.add_scatter(
        x=[at for at, _ in method.line],
        y=[quality for _, quality in method.line],
        mode="lines",
        line={"color": look.colour, "width": 2, "dash": look.dash},
        hoverinfo="skip",
    )
    add_points(figure, [p.dim for p in method.points], method.points, look, set(method.line))


def add_points(
    figure: go.Figure,
    sizes: Sequence[float],
    points: Sequence[QualityPoint],
    look: Look,
    strong: set[tuple[int, float]] | None = None,
    hovers: Sequence[str] | None = None,
    diameters: Sequence[float] | None = None,
) -> None:
    """The marks of one method's encoders at `sizes`, with their intervals; those that are not `strong` are paler.

    `diameters` of the marks are in pixels; None: all are alike.
    """
    opacity: float | list[float] = 0.85
    if strong is not None:
        opacity = [1.0 if (s, p.quality) in strong else 0.45 for s, p in zip(sizes, points, strict=True)]
    figure.add_scatter(
        x=list(sizes),
        y=[point.quality for point in points],
        mode="markers",
        name=plain(look.name),
        marker={
            "color": look.colour,
            "symbol": look.symbol,
            "size": 9 if diameters is None else list(diameters),
            "opacity": opacity,
            "line": {"width": 1.5, "color": look.colour},
        },
        error_y=_error_bars(points, look.colour),
        hovertext=list(hovers or map(point_hover, points)),
        hoverinfo="text",
    )


def draw_learning(data: Learning, palette: Palette = LIGHT) -> go.Figure:
    """The best so far as steps per run; complete trials filled, pruned ones as crosses."""
    figure = go.Figure()
    several = len(data.runs) > 1
    for index, run in enumerate(data.runs):
        colour = kind_colour(index, palette)
        suffix = f", {plain(run.run)}" if several else ""
        states = (
            ("PRUNED", "Pruned (value at its last rung)", "x-thin", palette.muted),
            ("COMPLETE", "Complete", SYMBOLS[index % len(SYMBOLS)], colour),
        )
        for state, name, symbol, shade in states:
            points = [p for p in run.points if p.state == state and p.objective is not None]
            if points:
                figure.add_scatter(
                    x=[point.total_steps for point in points],
                    y=[point.objective for point in points],
                    mode="markers",
                    name=name + suffix,
                    marker={
                        "color": shade,
                        "symbol": symbol,
                        "size": 6,
                        "opacity": 0.75,
                        "line": {"width": 1.2 if state == "PRUNED" else 0, "color": shade},
                    },
                    hovertext=[_trial_hover(point) for point in points],
                    hoverinfo="text",
                )
        if run.best:
            figure.add_scatter(
                x=[steps for steps, _ in run.best],
                y=[objective for _, objective in run.best],
                mode="lines",
                name="Best so far" + suffix,
                line={"color": colour, "width": 2.2, "shape": "hv"},
                hoverinfo="skip",
            )
    frame(figure, palette, "Optimiser steps spent, trials in order of number", "Dev objective (selection)")
    figure.update_xaxes(rangemode="tozero")
    return figure


def quality_point(board: Leaderboard, row: Row, variant: Variant) -> QualityPoint | None:
    """The row's test average, and what it is of; None where it has none."""
    cell, record = board.cell(row, AVERAGE, variant), row.record
    if cell.value is None:
        return None
    return QualityPoint(
        label=row.name,
        role=record.role,
        method=record.method,
        dim=record.dim,
        quantisation=record.quantisation,
        bytes_per_vector=record.bytes_per_vector,
        quality=cell.value,
        interval=cell.interval,
        seeds=cell.seeds,
        retention=cell.retention,
        pareto=row.pareto[variant],
    )


def _teacher_levels(placed: Iterable[tuple[Row, QualityPoint]]) -> tuple[tuple[str, float], ...]:
    levels = ((p.label, p.quality) for _, p in placed if (p.role, p.quantisation) == ("teacher", "float32"))
    return tuple(dict.fromkeys(levels))


def _method_lines(board: Leaderboard, placed: Iterable[tuple[Row, QualityPoint]]) -> tuple[MethodLine, ...]:
    """The points by method and role, each with its line (`best_at_each`); the methods of the best dev scores first."""
    by_method: dict[tuple[str, str], list[tuple[float, QualityPoint]]] = {}
    for row, point in placed:
        dev = board.cell(row, DEV).value
        scored = by_method.setdefault((point.method, point.role), [])
        scored.append((dev if dev is not None else float("-inf"), point))
    ranked = sorted(by_method.items(), key=lambda group: (-max(dev for dev, _ in group[1]), group[0]))
    return tuple(
        MethodLine(
            *key, tuple(point for _, point in scored), best_at_each((p.dim, dev, p.quality) for dev, p in scored)
        )
        for key, scored in ranked
    )


def best_at_each(scored: Iterable[tuple[int, float, float]]) -> tuple[tuple[int, float], ...]:
    """A line (size, quality) of (size, merit, quality): of each size that of the highest merit, the first of equals.

    The merit is the dev score: choosing by the test score would flatter methods with more rows.
    """
    best: dict[int, tuple[float, float]] = {}
    for size, merit, quality in scored:
        if size not in best or merit > best[size][0]:
            best[size] = merit, quality
    return tuple((size, best[size][1]) for size in sorted(best))


def _run_learning(run: str, trials: Sequence[TrialRecord], limit: int) -> RunLearning:
    points: list[TrialPoint] = []
    best: list[tuple[int, float]] = []
    spent = 0
    for trial in trials:
        steps = steps_of(trial)
        spent += steps
        objective = finite(trial.objective)
        points.append(TrialPoint(trial.number, trial.seed, trial.method, trial.state, steps, spent, objective))
        if trial.state == "COMPLETE" and objective is not None and (not best or objective > best[-1][1]):
            best.append((spent, objective))
    if best and spent > best[-1][0]:
        best.append((spent, best[-1][1]))
    stride = -(-len(points) // limit)
    drawn = points[:: max(stride, 1)]
    return RunLearning(run, tuple(drawn), tuple(best), len(drawn), len(points))


def add_fronts(figure: go.Figure, fronts: Sequence[Sequence[tuple[float, float]]], palette: Palette) -> None:
    """A dotted line (cost, quality) for each front, with one entry in the legend."""
    for i, front in enumerate(fronts):
        figure.add_scatter(
            x=[cost for cost, _ in front],
            y=[quality for _, quality in front],
            mode="lines",
            line={"color": palette.muted, "width": 1.5, "dash": "dot"},
            name="Pareto front",
            legendgroup="front",
            showlegend=i == 0,
            hoverinfo="skip",
        )


def steps_of(trial: TrialRecord) -> int:
    """The optimiser steps that a trial took."""
    return max((rung.step for rung in trial.rungs), default=0)


def plain(text: str, longest: int = 60) -> str:
    """`text` as Plotly shows it letter for letter: its labels are a small HTML of their own."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return html.escape(cut, quote=False)


def _error_bars(points: Sequence[QualityPoint], colour: str) -> dict[str, object]:
    """Bars without caps, so that the bar of length 0 of a point without an interval is nothing at all."""
    return {
        "type": "data",
        "array": [point.interval or 0.0 for point in points],
        "visible": any(point.interval for point in points),
        "color": colour,
        "thickness": 1.5,
        "width": 0,
    }


def point_hover(point: QualityPoint) -> str:
    """An encoder's name, method, quality and size, as lines of a Plotly label."""
    spread = "" if point.interval is None else f" ± {point.interval:.2f} ({point.seeds} seeds)"
    retention = "" if point.retention is None else f" ({point.retention:.1f} % of teacher)"
    size = f"{point.bytes_per_vector:,} bytes: {point.dim:,} dimensions as {plain(point.quantisation)}"
    return (
        f"<b>{plain(point.label)}</b><br>{plain(point.method)}, {point.role}<br>"
        f"{point.quality:.2f}{spread}{retention}<br>{size}"
    )


def _trial_hover(point: TrialPoint) -> str:
    return (
        f"<b>Trial {point.number}</b>, seed {point.seed}, {point.state.lower()}<br>{plain(point.method)}<br>"
        f"objective {point.objective:.4g}<br>{point.steps:,} steps"
    )


def quality_title(sets: Sequence[str], variant: Variant, measure: str = "") -> str:
    """The axis names its sets while they fit; the page's caption always names them all."""
    if measure:
        return f"Test: {measure}"
    names = ", ".join(plain(name, 12) for name in sets) if len(sets) <= 2 else f"average of {len(sets)} sets"
    how = "" if variant == "all" else ", weighted over subsets"
    return f"STS test: {names or 'none'}{how}"


def quality_told(sets: Sequence[str], measure: str = "") -> str:
    """The quality in a caption, with all its sets."""
    return f"{measure} x 100 on the test sets" if measure else f"Mean Spearman x 100 on the test sets {', '.join(sets)}"


def span(heights: Sequence[float], lined: Sequence[float]) -> tuple[float, float]:
    """The ends of the y axis: all lines and nine of ten marks, whose `heights` rise, with room around them."""
    if not heights:
        return 0.0, 1.0
    low = min([heights[len(heights) // 10], *lined])
    room = 0.06 * ((heights[-1] - low) or 1.0)
    return low - room, heights[-1] + room


def frame(figure: go.Figure, palette: Palette, x_title: str, y_title: str) -> None:
    """What all figures have in common: a see-through ground, axes with their titles, the legend above."""
    axis = {
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "zeroline": False,
        "tickfont": {"color": palette.muted},
        "automargin": True,
    }
    figure.update_layout(
        template=None,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 13, "color": palette.ink},
        margin={"l": 12, "r": 12, "t": 8, "b": 8},
        hovermode="closest",
        hoverlabel={
            "bgcolor": palette.surface,
            "bordercolor": palette.grid,
            "font": {"family": _FONT, "color": palette.ink},
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
    small = {"size": 12, "color": palette.muted}
    figure.update_xaxes(**axis, showgrid=False, title={"text": x_title, "font": small, "standoff": 12})
    figure.update_yaxes(**axis, title={"text": y_title, "font": small, "standoff": 10})


def log_ticks(figure: go.Figure, values: Sequence[int]) -> None:
    """A logarithmic x axis with ticks at the values themselves, thinned to neighbours at least 1.35 x apart."""
    ticks: list[int] = []
    for value in sorted({value for value in values if value > 0}):
        if not ticks or value >= 1.35 * ticks[-1]:
            ticks.append(value)
    figure.update_xaxes(type="log", tickmode="array", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])


def doubling_ticks(figure: go.Figure, values: Sequence[int]) -> None:
    """A logarithmic x axis whose ticks are the powers of two around the values; every second one where there are many."""
    present = [value for value in values if value > 0]
    if not present:
        return
    powers = range(min(present).bit_length() - 1, (max(present) - 1).bit_length() + 1)
    ticks = [2**power for power in powers[:: -(-len(powers) // MOST_DOUBLINGS)]]
    figure.update_xaxes(type="log", tickmode="array", tickvals=ticks, ticktext=[f"{tick:,}" for tick in ticks])
