"""The figures of a report: each is computed (a NamedTuple of what will be drawn), then drawn with Plotly."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.progress.tally import finite
from distilbench.records import Role, ScoreRecord, TrialRecord
from distilbench.reporting.table import AVERAGE, DEV, Leaderboard, Row, Variant, unique_trials
from distilbench.selection import STS
from distilbench.stored import FAISS_PEER

MAX_TRIAL_MARKERS = 2000
"""A browser draws this many SVG markers without a pause; beyond, every k-th trial is drawn."""


MOST_DOUBLINGS = 12
"""Powers of two that have room below an axis."""


class Palette(NamedTuple):
    """Colours of one theme; `methods` are told apart by hue and, for those who cannot see it, by marker and dash."""

    ink: str
    muted: str
    grid: str
    surface: str
    teacher: str
    baseline: str
    student: str
    methods: tuple[str, ...]


LIGHT = Palette(
    ink="#1d2126",
    muted="#626973",
    grid="#e7e5df",
    surface="#ffffff",
    teacher="#3f3d8f",
    baseline="#a8691a",
    student="#0d746c",
    methods=("#0d746c", "#b4502a", "#4760c4", "#8c3f86", "#71741c", "#2b7cb0", "#a03349", "#5d6470"),
)
DARK = Palette(
    ink="#e9e7e2",
    muted="#a0a6af",
    grid="#2d3239",
    surface="#1b1f24",
    teacher="#aaa7f5",
    baseline="#e0ad58",
    student="#52c4b9",
    methods=("#52c4b9", "#ee9468", "#94a6f7", "#d794d2", "#c3c567", "#74bcec", "#ef8c9f", "#aab1bb"),
)
ROLES: tuple[Role, ...] = ("student", "encoder", "baseline", "teacher")
"""In the order they are drawn."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "pentagon", "star")
OWN_LOOKS = {
    FAISS_PEER: ("FAISS", "baseline", "star"),
    "teacher": ("Teacher", "teacher", "diamond"),
}
"""Methods with a name, a colour of the palette and a marker of their own."""
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
    """The encoders of one method, and a line through the best on dev at each number of bytes, or of dimensions."""

    method: str
    role: str
    points: tuple[QualityPoint, ...]
    line: tuple[tuple[int, float], ...]


class QualityBytes(NamedTuple):
    """Quality against bytes per vector, per method; `teachers`: name and quality of float32 vectors, drawn as levels.

    `fronts`: one line (bytes, quality) per corpus, by rising bytes. `sets` are the STS test sets that the quality is the mean
    of; `omitted` counts rows without that mean.
    """

    methods: tuple[MethodLine, ...]
    teachers: tuple[tuple[str, float], ...]
    fronts: tuple[tuple[tuple[int, float], ...], ...]
    sets: tuple[str, ...]
    variant: Variant
    omitted: int
    measure: str = ""
    """What the quality is instead, where students are selected by something else than STS: `nDCG@10`."""

    @property
    def points(self) -> tuple[QualityPoint, ...]:
        """All encoders that are drawn, method by method."""
        return tuple(point for method in self.methods for point in method.points)


class QualityDim(NamedTuple):
    """Quality of float32 vectors against dimension, per method. `teachers`: name and quality, drawn as levels."""

    methods: tuple[MethodLine, ...]
    teachers: tuple[tuple[str, float], ...]
    sets: tuple[str, ...]
    variant: Variant
    measure: str = ""


Size = Callable[[QualityPoint], int]


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


def compute_quality_bytes(board: Leaderboard, variant: Variant = "all") -> QualityBytes:
    """Every row that has a test average, by method in whatever codes, and the Pareto front of each corpus.

    The teacher's own vectors and codes are a method like the others, and so are FAISS's codes of them, all together.
    """
    placed = [(row, point) for row in board.rows if (point := quality_point(board, row, variant))]
    fronts: dict[str, set[tuple[int, float]]] = {}
    for row, point in placed:
        if point.pareto:
            corpus = fronts.setdefault(row.record.compared_on, set())
            corpus.add((point.bytes_per_vector, point.quality))
    return QualityBytes(
        methods=_method_lines(board, placed, _bytes),
        teachers=_teacher_levels(placed),
        fronts=tuple(tuple(sorted(front)) for front in fronts.values()),
        sets=board.sts_sets,
        variant=variant,
        omitted=len(board.rows) - len(placed),
        measure=own_measure(board),
    )


def own_measure(board: Leaderboard) -> str:
    """What the test score is of, where it is not the mean over STS sets; "" where it is."""
    return "" if board.selection == STS else board.selection.title


def compute_quality_dim(board: Leaderboard, variant: Variant = "all") -> QualityDim:
    """Every float32 row that has a test average, by method; the teachers' rows become levels."""
    rows = [row for row in board.rows if row.record.quantisation == "float32"]
    placed = [(row, point) for row in rows if (point := quality_point(board, row, variant))]
    others = [(row, point) for row, point in placed if point.role != "teacher"]
    lines, levels = _method_lines(board, others, _dim), _teacher_levels(placed)
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


def draw_quality_bytes(data: QualityBytes, palette: Palette = LIGHT) -> go.Figure:
    """A line per method over the bytes (powers of two), baselines dashed, the front dotted; intervals as bars."""
    figure = go.Figure()
    add_fronts(figure, data.fronts, palette)
    sizes = [point.bytes_per_vector for point in data.points]
    _add_methods(figure, data.methods, _bytes, palette)
    _add_levels(figure, data.teachers, sizes, palette, named=False)  # its float32 row is on its line
    frame(figure, palette, "Bytes per vector (log scale)", quality_title(data.sets, data.variant, data.measure))
    doubling_ticks(figure, sizes)
    return figure


def draw_quality_dim(data: QualityDim, palette: Palette = LIGHT) -> go.Figure:
    """One line per method over the dimension (log scale), baselines dashed, teachers dotted levels; intervals as bars."""
    figure = go.Figure()
    dims = [point.dim for method in data.methods for point in method.points]
    _add_methods(figure, data.methods, _dim, palette)
    _add_levels(figure, data.teachers, dims, palette, named=True)
    frame(figure, palette, "Dimension (log scale)", quality_title(data.sets, data.variant, data.measure))
    log_ticks(figure, dims)
    return figure


def draw_learning(data: Learning, palette: Palette = LIGHT) -> go.Figure:
    """The best so far as steps per run; complete trials filled, pruned ones as crosses."""
    figure = go.Figure()
    several = len(data.runs) > 1
    for index, run in enumerate(data.runs):
        colour = palette.methods[index % len(palette.methods)]
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


def _bytes(point: QualityPoint) -> int:
    return point.bytes_per_vector


def _dim(point: QualityPoint) -> int:
    return point.dim


def _teacher_levels(placed: Iterable[tuple[Row, QualityPoint]]) -> tuple[tuple[str, float], ...]:
    levels = ((p.label, p.quality) for _, p in placed if (p.role, p.quantisation) == ("teacher", "float32"))
    return tuple(dict.fromkeys(levels))


def _method_lines(board: Leaderboard, placed: Iterable[tuple[Row, QualityPoint]], size: Size) -> tuple[MethodLine, ...]:
    """The points by method and role, each with its line.

    Where there are several of one size the line passes through the one with the best dev score (the first where none has
    one): choosing by the test score would flatter methods with more rows.
    """
    by_method: dict[tuple[str, str], list[tuple[float, QualityPoint]]] = {}
    for row, point in placed:
        dev = board.cell(row, DEV).value
        scored = by_method.setdefault((point.method, point.role), [])
        scored.append((dev if dev is not None else float("-inf"), point))
    methods = []
    for key, scored in sorted(by_method.items(), key=lambda group: group[0]):
        chosen: dict[int, tuple[float, QualityPoint]] = {}
        for dev, point in scored:
            if size(point) not in chosen or dev > chosen[size(point)][0]:
                chosen[size(point)] = (dev, point)
        line = tuple((at, chosen[at][1].quality) for at in sorted(chosen))
        methods.append(MethodLine(*key, tuple(point for _, point in scored), line))
    return tuple(methods)


def _add_methods(figure: go.Figure, methods: Sequence[MethodLine], size: Size, palette: Palette) -> None:
    """The line of each method, and its points: those on the line are stronger."""
    in_turn = [method for method in methods if _look(method) not in OWN_LOOKS]
    for method in methods:
        if method in in_turn:
            lap, place = divmod(in_turn.index(method), len(palette.methods))
            colour, symbol = palette.methods[place], SYMBOLS[(place + lap) % len(SYMBOLS)]  # no pair of them twice
            name = plain(method.method)
        else:  # the same in every report
            name, shade, symbol = OWN_LOOKS[_look(method)]
            colour = getattr(palette, shade)
        baseline = method.role == "baseline"
        figure.add_scatter(
            x=[at for at, _ in method.line],
            y=[quality for _, quality in method.line],
            mode="lines",
            line={"color": colour, "width": 2, "dash": "dash" if baseline else "solid"},
            legendgroup=f"{name} {method.role}",
            showlegend=False,
            hoverinfo="skip",
        )
        on_line = set(method.line)
        figure.add_scatter(
            x=[size(point) for point in method.points],
            y=[point.quality for point in method.points],
            mode="markers",
            name=f"{name} (baseline)" if baseline else name,
            legendgroup=f"{name} {method.role}",
            marker={
                "color": colour,
                "symbol": f"{symbol}-open" if baseline else symbol,
                "size": 8,
                "opacity": [1.0 if (size(point), point.quality) in on_line else 0.45 for point in method.points],
                "line": {"width": 1.5, "color": colour},
            },
            error_y=_error_bars(method.points, colour),
            hovertext=[_hover(point) for point in method.points],
            hoverinfo="text",
        )


def _look(method: MethodLine) -> str:
    return "teacher" if method.role == "teacher" else method.method


def _add_levels(
    figure: go.Figure, teachers: Iterable[tuple[str, float]], sizes: Sequence[int], palette: Palette, *, named: bool
) -> None:
    """A dotted level for each teacher; `named` in the legend."""
    for label, quality in teachers:
        figure.add_scatter(
            x=[min(sizes), max(sizes)] if sizes else [1, 2],
            y=[quality, quality],
            mode="lines",
            name=f"Teacher: {plain(label)}",
            showlegend=named,
            line={"color": palette.teacher, "width": 1.5, "dash": "dot"},
            hovertext=f"{plain(label)}<br>{quality:.2f}",
            hoverinfo="text",
        )


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


def role_look(role: str, palette: Palette) -> tuple[str, str, str]:
    """A role's name in a legend, its colour and its marker."""
    looks = {
        "student": ("Students", palette.student, "circle"),
        "encoder": ("Encoders as they came", palette.methods[2], "square"),
        "baseline": ("Baselines", palette.baseline, "square-open"),
        "teacher": ("Teacher", palette.teacher, "diamond"),
    }
    return looks[role]


def add_role(
    figure: go.Figure,
    role: str,
    costs: Sequence[float],
    points: Sequence[QualityPoint],
    hovers: Sequence[str],
    palette: Palette,
) -> None:
    """The points of one role (none: nothing is added) at their costs; those on the front are larger."""
    if not points:
        return
    name, colour, symbol = role_look(role, palette)
    figure.add_scatter(
        x=list(costs),
        y=[point.quality for point in points],
        mode="markers",
        name=name,
        marker={
            "color": colour,
            "symbol": symbol,
            "size": [12 if point.pareto else 9 for point in points],
            "opacity": [1.0 if point.pareto else 0.6 for point in points],
            "line": {"width": 2 if "open" in symbol else 0, "color": colour},
        },
        error_y=_error_bars(points, colour),
        hovertext=list(hovers),
        hoverinfo="text",
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


def _hover(point: QualityPoint) -> str:
    return point_hover(point) + ("<br>on the Pareto front" if point.pareto else "")


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
