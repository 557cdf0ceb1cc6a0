"""The first figure: what share of the teacher's quality an encoder keeps, against the bytes of its vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.codes import FAISS_PEER
from distilbench.reporting.colours import LIGHT, Look, Palette, method_look
from distilbench.reporting.direct_labels import EndLabel, add_labels
from distilbench.reporting.figures import (
    QualityPoint,
    best_at_each,
    doubling_ticks,
    frame,
    own_measure,
    plain,
    point_hover,
    quality_point,
    quality_told,
    span,
)
from distilbench.reporting.lines import Lines
from distilbench.reporting.loading import FITTED
from distilbench.reporting.table import DEV, Leaderboard, Row, competes, teacher_row

RECOMMENDED = "recommended"
"""The name at the first choice's ring; the page's script leaves it out where there is no room."""
LONGEST = 30
"""Letters of a measure that the figure's height has room for, beside the rest of its axis's title."""
COLOURED = 4
"""Methods whose marks are in colour from the start, trained ones first, beside PCA and FAISS: six colours at most."""


class Mark(NamedTuple):
    """A row: `y` is what is drawn of it, `shows` the anchor of the table's row that a click leads to."""

    point: QualityPoint
    y: float
    spread: float | None
    dev: float | None
    shows: str


class MethodMarks(NamedTuple):
    """The rows of one method, and the line through the best on dev at each number of bytes."""

    method: str
    role: str
    marks: tuple[Mark, ...]
    line: tuple[tuple[int, float], ...]
    coloured: bool


class Kept(NamedTuple):
    """`front`: by rising bytes, the students of higher dev score than every smaller one. `share`: y is in % of the teacher.

    `teachers`: name, bytes and y. `below` rows are under the axis.
    """

    methods: tuple[MethodMarks, ...]
    front: tuple[tuple[int, float], ...]
    teachers: tuple[tuple[str, int, float], ...]
    share: bool
    low: float
    high: float
    below: int
    omitted: int
    sets: tuple[str, ...]
    measure: str
    others: int
    """Rows of another corpus."""
    ours: bool
    """Whether the front is of students, and not of encoders as they came."""
    on_dev: bool
    taken: tuple[tuple[int, float], ...] = ()
    """Bytes and y of the rows that the page recommends, the first choice first."""


def compute_kept(board: Leaderboard, lines: Lines, taken: Sequence[Row] = ()) -> Kept:
    """Every row of the largest corpus that has a line in the table and a test score; `taken` are the recommended ones."""
    largest = next(iter(board.corpora), "")
    rows = [row for row in board.rows if row.record.compared_on == largest and row.anchor not in lines.same]
    placed = [(row, point) for row in rows if row.record.dim and (point := quality_point(board, row, "all"))]
    share = any(point.retention is not None for _, point in placed)
    if share:
        placed = [(row, point) for row, point in placed if point.retention is not None]
    marks = [(row, _mark(board, row, point, lines, share=share)) for row, point in placed]
    teachers = [
        (mark.point.label, mark.point.bytes_per_vector, mark.y) for row, mark in marks if not competes(row.record)
    ]
    methods: dict[tuple[str, str], list[Mark]] = {}
    for row, mark in marks:
        if competes(row.record):
            methods.setdefault((row.record.method, row.record.role), []).append(mark)
    ours = [mark for row, mark in marks if row.record.role in ("student", "encoder")]
    ours_first = [key for key in methods if key[1] in ("student", "encoder")]
    ranked = sorted(ours_first, key=lambda key: (key[0] in FITTED, -_best(methods[key])))
    drawn = [
        MethodMarks(
            method,
            role,
            tuple(found),
            _line(found),
            (method, role) in ranked[:COLOURED] or _has_line(method, role),
        )
        for (method, role), found in sorted(methods.items())
    ]
    heights = sorted(mark.y for _, mark in marks)
    lined = [y for method in drawn if _has_line(method.method, method.role) for _, y in method.line]
    places = {mark.shows: (mark.point.bytes_per_vector, mark.y) for _, mark in marks}
    recommended = tuple(places[anchor] for row in taken if (anchor := lines.place(row)) in places)
    low, high = span(heights, [*lined, *(y for _, y in (*_front(ours), *recommended))])
    return Kept(
        tuple(drawn),
        _front(ours),
        tuple(dict.fromkeys(teachers)),
        share,
        low,
        high,
        sum(y < low for y in heights),
        len(rows) - len(placed),
        board.sts_sets,
        own_measure(board),
        len(board.rows) - sum(row.record.compared_on == largest for row in board.rows),
        any(mark.point.role == "student" for mark in ours),
        any(mark.dev is not None for mark in ours),
        recommended,
    )


MOST_NAMED = 8
"""Encoders as they came that have their names in the figure at most."""


def kept_caption(data: Kept) -> str:
    """What the figure of `compute_kept` shows."""
    told, on_dev = quality_told(data.sets, data.measure), " on dev" if data.on_dev else ""
    parts = [
        f"{told}{', in percent of the teacher’s' if data.share else ''}. A click on a mark leads to its row. The strong line "
        f"joins the {'students' if data.ours else 'encoders'} that no smaller one beats{on_dev}; other lines pass through a "
        f"method's best{on_dev} at each size."
    ]
    if data.taken:
        parts.append("A ring is what is recommended." if len(data.taken) == 1 else "Rings are what is recommended.")
    if any(mark.spread for method in data.methods for mark in method.marks):
        parts.append("Bars are 95 % intervals over seeds.")
    if data.below:
        parts.append(f"Below the axis: {data.below}.")
    if data.omitted:
        parts.append(f"Without such a score: {data.omitted}.")
    if data.others:
        parts.append(f"Of another corpus, not drawn: {data.others}.")
    return " ".join(parts)


def draw_kept(data: Kept, palette: Palette = LIGHT) -> go.Figure:
    """Bytes on a logarithmic axis. What is grey can be asked for: `meta` says which traces a method's name switches."""
    figure = go.Figure()
    chips = []
    sizes = [mark.point.bytes_per_vector for method in data.methods for mark in method.marks]
    sizes += [size for _, size, _ in data.teachers]
    labels = [
        EndLabel(max(sizes), y, "Teacher" if len(data.teachers) == 1 else plain(label, 24), palette.ink)
        for label, _, y in data.teachers
    ]
    for _, size, y in data.teachers:
        _add_line(figure, [(min(sizes), y), (max(size, *sizes), y)], palette.ink, "dot", 1.5)
    for method in data.methods:
        look = method_look(method.method, method.role, palette)
        own = _has_line(method.method, method.role)
        _add_line(figure, method.line, look.colour, look.dash, 2, visible=own)
        _add_marks(figure, method, look, palette)
        if own and method.line:
            labels.append(EndLabel(method.line[-1][0], max(method.line[-1][1], data.low), look.name, look.colour))
        else:
            count = len(figure.data)
            chips.append(
                {
                    "name": look.name + (" (baseline)" if method.role == "baseline" else ""),
                    "line": count - 2,
                    "marks": count - 1,
                    "colour": look.colour,
                    "rest": look.colour if method.coloured else palette.faint,
                }
            )
    if len(data.front) > 1:
        _add_line(figure, data.front, palette.ink, "solid", 2.6)
    if data.front:
        labels.append(
            EndLabel(data.front[-1][0], data.front[-1][1], "our front" if data.ours else "front", palette.ink)
        )
    how = ", % of the teacher's" if data.share else ""
    what = data.measure or "STS average"
    title = f"Test {what}{how}" if len(what) <= LONGEST else f"Test score{how}"
    frame(figure, palette, "Bytes per vector (log scale)", title)
    doubling_ticks(figure, sizes)
    figure.update_yaxes(range=[data.low, data.high])
    figure.update_layout(showlegend=False, meta={"chips": chips})
    if sizes:
        add_labels(figure, labels, (min(sizes), max(sizes)), (data.low, data.high), palette)
    if data.taken:
        _add_rings(figure, data.taken, sizes, palette)
    elif not data.teachers and not data.ours and 0 < len(sizes) <= MOST_NAMED:
        _add_names(figure, [mark for method in data.methods for mark in method.marks], sizes, palette)
    return figure


def _add_names(figure: go.Figure, marks: Sequence[Mark], sizes: Sequence[int], palette: Palette) -> None:
    """The name of each encoder above its mark; beside it at the left, where lines go up."""
    low, high = math.log(min(sizes)), math.log(max(sizes))
    for mark in marks:
        place = (math.log(mark.point.bytes_per_vector) - low) / ((high - low) or 1.0)
        figure.add_annotation(
            x=math.log10(mark.point.bytes_per_vector),
            y=mark.y,
            text=f"<b>{plain(mark.point.label, 24)}</b>",
            font={"color": palette.ink, "size": 12},
            showarrow=False,
            xanchor="left" if place < 1 / 3 else "right" if place > 2 / 3 else "center",
            xshift=10 if place < 1 / 3 else 0,
            yanchor="middle" if place < 1 / 3 else "bottom",
            yshift=0 if place < 1 / 3 else 8,
        )


def _add_rings(figure: go.Figure, taken: Sequence[tuple[int, float]], sizes: Sequence[int], palette: Palette) -> None:
    """A ring around each recommended row, and a name at the first: above the lines, or below them at the axis."""
    figure.add_scatter(
        x=[size for size, _ in taken],
        y=[y for _, y in taken],
        mode="markers",
        marker={"symbol": "circle-open", "size": 19, "color": palette.ink, "line": {"width": 2.2}},
        hoverinfo="skip",
    )
    size, y = taken[0]
    at_axis = size**3 < min(sizes) ** 2 * max(sizes)  # in the left third
    figure.add_annotation(
        x=math.log10(size),
        y=y,
        name=RECOMMENDED,
        text=f"<b>{RECOMMENDED}</b>",
        font={"color": palette.ink, "size": 12},
        bgcolor=palette.surface,
        xanchor="left" if at_axis else "right",
        ax=30 if at_axis else -40,
        ay=34 if at_axis else -12,
        arrowcolor=palette.ink,
        arrowwidth=1.3,
        arrowhead=0,
        standoff=9,
    )


def _mark(board: Leaderboard, row: Row, point: QualityPoint, lines: Lines, *, share: bool) -> Mark:
    teacher = teacher_row(board, row)
    y, spread = point.quality, point.interval
    if share and point.retention is not None:
        y = point.retention
        spread = None if point.interval is None or teacher is None else point.interval * y / point.quality
    return Mark(point, y, spread, board.cell(row, DEV).value, lines.place(row))


def _has_line(method: str, role: str) -> bool:
    """Whether the method's line is drawn from the start: what costs no training."""
    return role == "baseline" and method in ("pca", FAISS_PEER)


def _merit(mark: Mark) -> float:
    return mark.y if mark.dev is None else mark.dev


def _best(marks: Sequence[Mark]) -> float:
    return max(map(_merit, marks))


def _line(marks: Sequence[Mark]) -> tuple[tuple[int, float], ...]:
    """Through the best on dev at each number of bytes."""
    return best_at_each((mark.point.bytes_per_vector, _merit(mark), mark.y) for mark in marks)


def _front(marks: Sequence[Mark]) -> tuple[tuple[int, float], ...]:
    best, front = float("-inf"), []
    for mark in sorted(marks, key=lambda mark: (mark.point.bytes_per_vector, -_merit(mark))):
        if _merit(mark) > best:
            best = _merit(mark)
            front.append((mark.point.bytes_per_vector, mark.y))
    return tuple(front)


def _add_line(
    figure: go.Figure, line: Sequence[tuple[int, float]], colour: str, dash: str, width: float, *, visible: bool = True
) -> None:
    figure.add_scatter(
        x=[size for size, _ in line],
        y=[y for _, y in line],
        mode="lines",
        line={"color": colour, "width": width, "dash": dash},
        hoverinfo="skip",
        visible=visible,
    )


def _add_marks(figure: go.Figure, method: MethodMarks, look: Look, palette: Palette) -> None:
    colour = look.colour if method.coloured else palette.faint
    on_line = set(method.line)
    figure.add_scatter(
        x=[mark.point.bytes_per_vector for mark in method.marks],
        y=[mark.y for mark in method.marks],
        customdata=[mark.shows for mark in method.marks],
        mode="markers",
        name=plain(look.name),
        marker={
            "color": colour,
            "symbol": look.symbol,
            "size": 9,
            "opacity": [1.0 if (m.point.bytes_per_vector, m.y) in on_line else 0.55 for m in method.marks],
            "line": {"width": 1.5, "color": colour},
        },
        error_y={
            "type": "data",
            "array": [mark.spread or 0.0 for mark in method.marks],
            "visible": any(mark.spread for mark in method.marks),
            "color": colour,
            "thickness": 1.5,
            "width": 0,
        },
        hovertext=[point_hover(mark.point) for mark in method.marks],
        hoverinfo="text",
    )
