"""The figures of the leaderboard: quality against bytes and against speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.reporting.board import Leaderboard, Row, competes
from distilbench.reporting.drawing import (
    LIGHT,
    Plot,
    doubling_ticks,
    frame,
    method_look,
    plain,
    plot_of,
    span,
)
from distilbench.reporting.formats import short
from distilbench.reporting.names import PAIR
from distilbench.reporting.serving import ServingCosts

LONGEST = 30
"""Letters of a measure that the figure's height has room for, beside the rest of its axis's title."""
OURS = ("student", "encoder")
"""Roles of students, and of encoders as they came."""
Points = tuple[tuple[float, float], ...]


class Mark(NamedTuple):
    """A row of the leaderboard: its test score `y` at its cost `x`. A click leads to the row."""

    row: Row
    x: float
    y: float

    @property
    def merit(self) -> float:
        """What chooses among marks: the dev score, or where there is none the test score."""
        return self.y if self.row.dev.value is None else self.row.dev.value


class TradeOff(NamedTuple):
    """`fronts`: by name the rows of higher dev score than all of less cost. `taken` are the points that the page recommends.

    `device` is where all rows were timed, "" where x is the bytes of a vector. `omitted` rows are not drawn.
    """

    marks: tuple[Mark, ...]
    fronts: dict[str, Points]
    taken: Points
    score: str
    device: str
    omitted: int


def board_plots(board: Leaderboard, costs: ServingCosts, taken: Sequence[Row] = ()) -> dict[str, Plot]:
    """The figures of the leaderboard that have something to show, by name.

    `costs` are `serving_costs(board)`, `taken` the rows that the page recommends.
    """
    quality, speed = compute_quality(board, taken), compute_speed(board, costs)
    plots = {}
    if quality.marks:
        title, caption = "Quality against bytes per vector", trade_off_caption(quality)
        plots["quality-bytes"] = plot_of("quality-bytes", title, caption, draw_trade_off(quality), wide=True)
    if len(speed.marks) > 1:
        title, caption = "Quality against sentences per second", trade_off_caption(speed)
        plots["quality-speed"] = plot_of("quality-speed", title, caption, draw_trade_off(speed))
    return plots


def compute_quality(board: Leaderboard, taken: Sequence[Row] = ()) -> TradeOff:
    """Every row of the largest corpus that has a test score, by bytes; `taken` are the recommended ones."""
    marks = _marks(board, {row.anchor: row.record.bytes_per_vector for row in board.rows})
    points = tuple((mark.x, mark.y) for row in taken for mark in marks if mark.row.anchor == row.anchor)
    return TradeOff(tuple(marks), _fronts(marks, 1), points, board.columns[0].help, "", len(board.rows) - len(marks))


def compute_speed(board: Leaderboard, costs: ServingCosts) -> TradeOff:
    """The rows of the largest corpus that have a test score and were timed, on the device that timed most of them."""
    timed = _marks(board, {anchor: row.sentences_per_s for anchor, row in costs.rows.items()})
    device = next(iter(Counter(m.row.record.provenance.device for m in timed).most_common(1)), ("", 0))[0]
    marks = tuple(mark for mark in timed if mark.row.record.provenance.device == device)
    return TradeOff(marks, _fronts(marks, -1), (), board.columns[0].help, device, len(board.rows) - len(marks))


def trade_off_caption(data: TradeOff) -> str:
    """What the figure shows."""
    against = f", against sentences per second in batches on one thread of {data.device}" if data.device else ""
    parts = [
        f"{data.score}{against}. A click on a mark leads to its row. Lines join those that no "
        f"{'faster' if data.device else 'smaller'} one beats on dev. The lowest tenth may lie below the axis."
    ]
    if data.taken:
        parts.append("A ring is what is recommended.")
    if any(mark.row.test.interval for mark in data.marks):
        parts.append("Bars are 95 % intervals over seeds.")
    if data.omitted:
        why = "or timed elsewhere or not at all" if data.device else "or of another corpus"
        parts.append(f"Not drawn, since without such a score {why}: {data.omitted}.")
    return " ".join(parts)


def draw_trade_off(data: TradeOff) -> go.Figure:
    """The cost on a logarithmic axis, a look for each method, the fronts as lines, rings around what is recommended."""
    figure = go.Figure()
    methods: dict[tuple[str, str, bool], list[Mark]] = {}
    for mark in data.marks:
        r = mark.row.record
        methods.setdefault((r.method, r.role, bool(r.documents)), []).append(mark)
    for (*method, pair), marks in sorted(methods.items()):
        look, spreads = method_look(*method), [mark.row.test.interval or 0.0 for mark in marks]
        name, symbol = (f"{look.name}, {PAIR}", f"{look.symbol}-open") if pair else (look.name, look.symbol)
        figure.add_scatter(
            x=[mark.x for mark in marks],
            y=[mark.y for mark in marks],
            customdata=[mark.row.anchor for mark in marks],
            mode="markers",
            name=plain(name),
            marker={"color": look.colour, "symbol": symbol, "size": 9, "opacity": 0.7},
            error_y={"array": spreads, "visible": any(spreads), "color": look.colour, "thickness": 1.5, "width": 0},
            hovertext=[_mark_hover(mark) for mark in marks],
            hoverinfo="text",
        )
    for (name, front), dash in zip(data.fronts.items(), ("solid", "dot", "dash"), strict=False):
        x, y = zip(*front, strict=True) if front else ((), ())
        line = {"color": LIGHT.ink, "width": 2, "dash": dash}
        figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip", showlegend=bool(front))
    if data.taken:
        x, y = zip(*data.taken, strict=True)
        ring = {"symbol": "circle-open", "size": 19, "color": LIGHT.ink, "line": {"width": 2.2}}
        figure.add_scatter(
            x=x, y=y, mode="markers", name="recommended", marker=ring, hoverinfo="skip", cliponaxis=False
        )
    measure = data.score.split(" x 100")[0]
    y_title = f"Test {measure}" if len(measure) <= LONGEST else "Test score"
    frame(figure, "Sentences per second (log scale)" if data.device else "Bytes per vector (log scale)", y_title)
    if data.device:
        figure.update_xaxes(type="log", tickformat=",.3~r")  # whose numbers are written out
    else:
        doubling_ticks(figure, [int(mark.x) for mark in data.marks])
    lined = [y for points in (*data.fronts.values(), data.taken) for _, y in points]
    figure.update_layout(meta="speed" if data.device else "bytes")
    figure.update_yaxes(range=span(sorted(mark.y for mark in data.marks), lined))
    return figure


def _marks(board: Leaderboard, costs: Mapping[str, float | None]) -> list[Mark]:
    marks, largest = [], next(iter(board.corpora), "")
    for row in board.rows:
        cost, y = costs[row.anchor], row.test.value
        if cost and y is not None and row.compared_on == largest:
            marks.append(Mark(row, cost, y))
    return marks


def _fronts(marks: Sequence[Mark], sign: int) -> dict[str, Points]:
    """By name the front of our rows, that of the others but the teacher, and that of pairs; `sign`: -1 where more is better.

    Chosen on dev: choosing by the test score would flatter methods with more rows.
    """
    fronts: tuple[list[Mark], ...] = ([], [], [])
    for mark in sorted(marks, key=lambda mark: (sign * mark.x, -mark.merit)):
        front = fronts[2 if mark.row.record.documents else mark.row.record.role not in OURS]
        if competes(mark.row.record) and (not front or mark.merit > front[-1].merit):
            front.append(mark)
    ours, others, pairs = (tuple((mark.x, mark.y) for mark in front) for front in fronts)
    name = "students" if any(mark.row.record.role == "student" for mark in marks) else "encoders"
    return {f"best {name}": ours, "best baselines": others} | ({f"best with {PAIR}": pairs} if pairs else {})


def _mark_hover(mark: Mark) -> str:
    r, cell = mark.row.record, mark.row.test
    spread = "" if cell.interval is None else f" ± {cell.interval:.2f} ({cell.seeds} seeds)"
    kept = "" if cell.retention is None else f" ({cell.retention:.1f} % of teacher)"
    speed = "" if mark.x == r.bytes_per_vector else f"<br>{short(mark.x)} sentences/s"
    return (
        f"<b>{plain(mark.row.name)}</b><br>{plain(r.method)}, {r.role}<br>{cell.value:.2f}{spread}{kept}<br>"
        f"{r.bytes_per_vector:,} bytes: {r.dim:,} dimensions as {plain(r.quantisation)}{speed}"
    )
