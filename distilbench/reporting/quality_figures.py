"""Quality against what an encoder costs: the bytes of its vectors, and how many sentences it embeds in a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.reporting.board import DEV, Leaderboard, Row, competes
from distilbench.reporting.colours import LIGHT, Look, method_look
from distilbench.reporting.drawing import doubling_ticks, frame, log_axis, plain, span
from distilbench.reporting.formats import short
from distilbench.reporting.serving import serving_costs

LONGEST = 30
"""Letters of a measure that the figure's height has room for, beside the rest of its axis's title."""

Points = tuple[tuple[float, float], ...]


class Mark(NamedTuple):
    """A row of the leaderboard: its test score `y` at its cost `x`. A click leads to the row."""

    row: Row
    x: float
    y: float
    merit: float
    """What chooses among marks: the dev score, or where there is none the test score."""

    @property
    def is_ours(self) -> bool:
        """Whether it is a student, or an encoder as it came."""
        return self.row.record.role in ("student", "encoder")


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


def compute_quality(board: Leaderboard, taken: Sequence[Row] = ()) -> TradeOff:
    """Every row of the largest corpus that has a test score, by bytes; `taken` are the recommended ones."""
    marks = [mark for row in board.rows if (mark := _mark(board, row, row.record.bytes_per_vector))]
    points = tuple((mark.x, mark.y) for row in taken for mark in marks if mark.row.anchor == row.anchor)
    return TradeOff(tuple(marks), _fronts(marks, 1), points, board.columns[0].help, "", len(board.rows) - len(marks))


def compute_speed(board: Leaderboard) -> TradeOff:
    """The rows of the largest corpus that have a test score and were timed, on the device that timed most of them."""
    costs = serving_costs(board).rows
    timed = [mark for row in board.rows if (mark := _mark(board, row, costs[row.anchor].sentences_per_s.value))]
    devices = Counter(mark.row.record.provenance.device for mark in timed)
    device = devices.most_common(1)[0][0] if devices else ""
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
    methods: dict[tuple[str, str], list[Mark]] = {}
    for mark in data.marks:
        methods.setdefault((mark.row.record.method, mark.row.record.role), []).append(mark)
    for key, marks in sorted(methods.items()):
        _add_marks(figure, method_look(*key), marks)
    for (name, front), dash in zip(data.fronts.items(), ("solid", "dot"), strict=True):
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
        log_axis(figure)
    else:
        doubling_ticks(figure, [int(mark.x) for mark in data.marks])
    lined = [y for points in (*data.fronts.values(), data.taken) for _, y in points]
    figure.update_yaxes(range=span(sorted(mark.y for mark in data.marks), lined))
    return figure


def _mark(board: Leaderboard, row: Row, cost: float | None) -> Mark | None:
    """None for a row without a test score or cost, or of another corpus than the largest."""
    y, dev = row.test.value, board.cell(row, DEV).value
    if not cost or y is None or row.record.compared_on != board.corpora[0]:
        return None
    return Mark(row, cost, y, y if dev is None else dev)


def _fronts(marks: Sequence[Mark], sign: int) -> dict[str, Points]:
    """By name the front of our rows and that of the others but the teacher; `sign` is -1 where more is better."""
    ours = "students" if any(mark.row.record.role == "student" for mark in marks) else "encoders"
    baselines = (mark for mark in marks if not mark.is_ours and competes(mark.row.record))
    sides = {ours: (mark for mark in marks if mark.is_ours), "baselines": baselines}
    return {f"best {name}": _front(side, sign) for name, side in sides.items()}


def _front(marks: Iterable[Mark], sign: int) -> Points:
    """Chosen on dev: choosing by the test score would flatter methods with more rows."""
    front: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (sign * mark.x, -mark.merit)):
        if not front or mark.merit > front[-1].merit:
            front.append(mark)
    return tuple((mark.x, mark.y) for mark in front)


def _add_marks(figure: go.Figure, look: Look, marks: Sequence[Mark]) -> None:
    """The marks of one method with their intervals."""
    spreads = [mark.row.test.interval or 0.0 for mark in marks]
    figure.add_scatter(
        x=[mark.x for mark in marks],
        y=[mark.y for mark in marks],
        customdata=[mark.row.anchor for mark in marks],
        mode="markers",
        name=plain(look.name),
        marker={"color": look.colour, "symbol": look.symbol, "size": 9, "opacity": 0.7},
        error_y={"array": spreads, "visible": any(spreads), "color": look.colour, "thickness": 1.5, "width": 0},
        hovertext=[_hover(mark) for mark in marks],
        hoverinfo="text",
    )


def _hover(mark: Mark) -> str:
    r, cell = mark.row.record, mark.row.test
    spread = "" if cell.interval is None else f" ± {cell.interval:.2f} ({cell.seeds} seeds)"
    kept = "" if cell.retention is None else f" ({cell.retention:.1f} % of teacher)"
    speed = "" if mark.x == r.bytes_per_vector else f"<br>{short(mark.x)} sentences/s"
    return (
        f"<b>{plain(mark.row.name)}</b><br>{plain(r.method)}, {r.role}<br>{cell.value:.2f}{spread}{kept}<br>"
        f"{r.bytes_per_vector:,} bytes: {r.dim:,} dimensions as {plain(r.quantisation)}{speed}"
    )
