"""Quality against what an encoder costs: the bytes of its vectors, and how many sentences it embeds in a second."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.codes import FAISS_PEER
from distilbench.records import AS_IT_CAME, FROZEN, ON_VECTORS
from distilbench.reporting.board import DEV, Leaderboard, Row, competes
from distilbench.reporting.colours import LIGHT, Look, Palette, method_look
from distilbench.reporting.drawing import EndLabel, add_labels, doubling_ticks, frame, log_axis, plain, span
from distilbench.reporting.formats import short
from distilbench.reporting.lines import Lines
from distilbench.reporting.loading import FITTED
from distilbench.reporting.serving import serving_costs
from distilbench.search.objectives import pareto_front

RECOMMENDED = "recommended"
"""The name at the first choice's ring; the page's script leaves it out where there is no room."""
LONGEST = 30
"""Letters of a measure that the figure's height has room for, beside the rest of its axis's title."""
COLOURED = 4
"""Methods whose marks are in colour, trained ones first, beside PCA and FAISS: six colours at most."""
MOST_NAMED = 8
"""Encoders that have their names in a figure at most."""
SMALLEST, LARGEST = 5.0, 16.0
"""Pixels of the marks of the fewest and of the most bytes."""


class Mark(NamedTuple):
    """A row of the leaderboard. `y` is what is drawn of its test score; a click leads to the row with the anchor `shows`."""

    row: Row
    y: float
    spread: float | None
    dev: float | None
    shows: str

    @property
    def bytes(self) -> int:
        """Bytes per vector."""
        return self.row.record.bytes_per_vector

    @property
    def merit(self) -> float:
        """What chooses among marks: the dev score, or where there is none the test score."""
        return self.y if self.dev is None else self.dev

    @property
    def is_ours(self) -> bool:
        """Whether it is a student, or an encoder as it came."""
        return self.row.record.role in ("student", "encoder")


class MethodMarks(NamedTuple):
    """The rows of one method, and the line through the best on dev at each number of bytes, where it costs no training."""

    method: str
    role: str
    marks: tuple[Mark, ...]
    line: tuple[tuple[int, float], ...]
    coloured: bool


class Quality(NamedTuple):
    """`front`: by rising bytes, the students of higher dev score than every smaller one. `share`: y is in % of the teacher.

    `low` and `high` are the ends of the y axis; `below` rows are under it, `omitted` lack a score, `others` are of another
    corpus. `taken` has bytes and y of the rows that the page recommends, the first choice first.
    """

    methods: tuple[MethodMarks, ...]
    front: tuple[tuple[int, float], ...]
    teachers: tuple[Mark, ...]
    share: bool
    low: float
    high: float
    below: int
    omitted: int
    others: int
    score: str
    taken: tuple[tuple[int, float], ...] = ()

    @property
    def marks(self) -> list[Mark]:
        """All marks but the teachers'."""
        return [mark for method in self.methods for mark in method.marks]

    @property
    def of_students(self) -> bool:
        """Whether the front is of students, and not of encoders as they came."""
        return any(mark.row.record.role == "student" for mark in self.marks)


class Speed(NamedTuple):
    """`marks` with sentences per second, and the front of both; `device` is where all of them were timed."""

    marks: tuple[tuple[float, Mark], ...]
    front: tuple[tuple[float, float], ...]
    device: str
    omitted: int
    score: str


def compute_quality(board: Leaderboard, lines: Lines, taken: Sequence[Row] = ()) -> Quality:
    """Every row of the largest corpus that has a line in the table and a test score; `taken` are the recommended ones."""
    rows = [row for row in _largest(board) if row.anchor not in lines.same]
    scored = [row for row in rows if row.record.dim and row.test.value is not None]
    share = any(row.test.retention is not None for row in scored)
    marks = [mark for row in scored if (mark := _mark(board, row, lines.place(row), share=share))]
    methods: dict[tuple[str, str], list[Mark]] = {}
    for mark in marks:
        if competes(mark.row.record):
            methods.setdefault((mark.row.record.method, mark.row.record.role), []).append(mark)
    ours = [mark for mark in marks if mark.is_ours]
    trained = [key for key, own in methods.items() if own[0].is_ours]
    ranked = sorted(trained, key=lambda key: (key[0] in FITTED, -max(mark.merit for mark in methods[key])))
    drawn = [
        MethodMarks(*key, tuple(own), _line(own) if _is_free(*key) else (), key in ranked[:COLOURED] or _is_free(*key))
        for key, own in sorted(methods.items())
    ]
    places = {mark.shows: (mark.bytes, mark.y) for mark in marks}
    recommended = tuple(places[anchor] for row in taken if (anchor := lines.place(row)) in places)
    heights = sorted(mark.y for mark in marks)
    points = [point for method in drawn for point in method.line] + [*_front(ours), *recommended]
    low, high = span(heights, [y for _, y in points])
    return Quality(
        tuple(drawn),
        _front(ours),
        tuple(mark for mark in marks if not competes(mark.row.record)),
        share,
        low,
        high,
        below=sum(y < low for y in heights),
        omitted=len(rows) - len(marks),
        others=len(board.rows) - len(_largest(board)),
        score=_score(board),
        taken=recommended,
    )


def quality_caption(data: Quality) -> str:
    """What the figure of `compute_quality` shows."""
    on_dev = " on dev" if any(mark.dev is not None for mark in data.marks) else ""
    whom = "students" if data.of_students else "encoders"
    parts = [
        f"{data.score}{', in percent of the teacher’s' if data.share else ''}. A click on a mark leads to its row. The "
        f"strong line joins the {whom} that no smaller one beats{on_dev}."
    ]
    if data.taken:
        parts.append("A ring is what is recommended." if len(data.taken) == 1 else "Rings are what is recommended.")
    if any(mark.spread for mark in data.marks):
        parts.append("Bars are 95 % intervals over seeds.")
    counts = {"Below the axis": data.below, "Without such a score": data.omitted}
    counts["Of another corpus, not drawn"] = data.others
    return " ".join([*parts, *(f"{what}: {count}." for what, count in counts.items() if count)])


def draw_quality(data: Quality, palette: Palette = LIGHT) -> go.Figure:
    """Bytes on a logarithmic axis; names stand at the ends of lines, other methods in the legend."""
    figure = go.Figure()
    sizes = [mark.bytes for mark in (*data.marks, *data.teachers)]
    labels = []
    for teacher in data.teachers:
        _add_line(figure, [(min(sizes), teacher.y), (max(sizes), teacher.y)], palette.ink, "dot", 1.5)
        name = "Teacher" if len(data.teachers) == 1 else plain(teacher.row.name, 24)
        labels.append(EndLabel(max(sizes), teacher.y, name, palette.ink))
    for method in data.methods:
        look = method_look(method.method, method.role, palette)
        if not method.coloured:
            look = look._replace(colour=palette.faint)
        _add_marks(figure, look, method.marks, [mark.bytes for mark in method.marks], dict(method.line or data.front))
        figure.data[-1].showlegend = not method.line
        if method.line:
            _add_line(figure, method.line, look.colour, look.dash, 2)
            size, y = method.line[-1]
            labels.append(EndLabel(size, max(y, data.low), look.name, look.colour))
    if data.front:
        _add_line(figure, data.front, palette.ink, "solid", 2.6)
        labels.append(EndLabel(*data.front[-1], "our front" if data.of_students else "front", palette.ink))
    if not data.teachers and not data.taken and len(data.marks) <= MOST_NAMED:
        labels += [EndLabel(mark.bytes, mark.y, plain(mark.row.name, 24), palette.muted) for mark in data.marks]
    how = ", % of the teacher's" if data.share else ""
    short_name = data.score.split(" x 100")[0]
    title = f"Test {short_name}{how}" if len(short_name) <= LONGEST else f"Test score{how}"
    frame(figure, palette, "Bytes per vector (log scale)", title)
    doubling_ticks(figure, sizes)
    figure.update_yaxes(range=[data.low, data.high])
    if sizes:
        add_labels(figure, labels, (min(sizes), max(sizes)), (data.low, data.high), palette)
    if data.taken:
        _add_rings(figure, data.taken, sizes, palette)
    return figure


def compute_speed(board: Leaderboard) -> Speed:
    """The rows of the largest corpus that have a test score and were timed, on the device that timed most of them.

    The front: no other row is at least as good and as fast, and better in one.
    """
    costs, rows = serving_costs(board).rows, _largest(board)
    marks = [mark for row in rows if (mark := _mark(board, row, row.anchor, share=False))]
    timed = [(speed, mark) for mark in marks if (speed := costs[mark.row.anchor].sentences_per_s.value)]
    devices = Counter(mark.row.record.provenance.device for _, mark in timed)
    device = devices.most_common(1)[0][0] if devices else ""
    drawn = [(speed, mark) for speed, mark in timed if mark.row.record.provenance.device == device]
    values = [(speed, mark.y) for speed, mark in drawn]
    front = pareto_front(values, ["maximize", "maximize"]).tolist() if values else []
    line = tuple(sorted({values[place] for place in front}))
    return Speed(tuple(drawn), line, device, len(marks) - len(drawn), _score(board))


def speed_caption(data: Speed) -> str:
    """What the figure of `compute_speed` shows."""
    sizes = sorted({mark.bytes for _, mark in data.marks})
    parts = [f"{data.score}, against sentences per second in batches on one thread of {data.device}."]
    if len(sizes) > 1:
        parts.append(f"The size of a mark is the bytes of a vector, from {sizes[0]:,} to {sizes[-1]:,}.")
    parts.append("The dotted line joins the encoders that no other one beats in both.")
    if any(mark.spread for _, mark in data.marks):
        parts.append("Bars are 95 % intervals over seeds.")
    if data.omitted:
        parts.append(f"Rows that were not timed this way, not drawn: {data.omitted}.")
    return " ".join(parts)


def draw_speed(data: Speed, palette: Palette = LIGHT) -> go.Figure:
    """Sentences per second on a logarithmic axis, larger marks for more bytes, and a name at the best of each kind."""
    figure = go.Figure()
    _add_line(figure, data.front, palette.muted, "dot", 1.5)
    methods: dict[tuple[str, str], list[tuple[float, Mark]]] = {}
    best: dict[str, tuple[float, Mark]] = {}
    for speed, mark in sorted(data.marks, key=lambda timed: (not timed[1].is_ours, -timed[1].y)):
        methods.setdefault((mark.row.record.method, mark.row.record.role), []).append((speed, mark))
        best.setdefault(_kind(mark.row), (speed, mark))
    sizes = [mark.bytes for _, mark in data.marks]
    for place, (key, timed) in enumerate(methods.items()):
        look = method_look(*key, palette)
        look = look if place < COLOURED + 2 else look._replace(colour=palette.faint)
        marks = [mark for _, mark in timed]
        diameters = [_diameter(mark.bytes, min(sizes), max(sizes)) for mark in marks]
        _add_marks(figure, look, marks, [speed for speed, _ in timed], {}, diameters)
        figure.data[-1].showlegend = look.colour != palette.faint
    frame(figure, palette, "Sentences per second (log scale)", f"Test {data.score.split(' x 100')[0]}")
    figure.update_layout(legend_itemsizing="constant")
    log_axis(figure)
    if data.marks:
        low, high = span(sorted(mark.y for _, mark in data.marks), [y for _, y in data.front])
        figure.update_yaxes(range=[low, high])
        speeds = [speed for speed, _ in data.marks]
        named = best.items() if 1 < len(best) <= MOST_NAMED else ()
        labels = [EndLabel(speed, mark.y, plain(name, 24), palette.muted) for name, (speed, mark) in named]
        add_labels(figure, labels, (min(speeds), max(speeds)), (low, high), palette)
    return figure


def _largest(board: Leaderboard) -> list[Row]:
    """The rows of the corpus that most rows are of."""
    largest = next(iter(board.corpora), "")
    return [row for row in board.rows if row.record.compared_on == largest]


def _mark(board: Leaderboard, row: Row, shows: str, *, share: bool) -> Mark | None:
    """None for a row without a test score, or with `share` without a teacher's."""
    cell = row.test
    y = cell.retention if share else cell.value
    if cell.value is None or y is None:
        return None
    spread = None if cell.interval is None else cell.interval * (y / cell.value if share else 1.0)
    return Mark(row, y, spread, board.cell(row, DEV).value, shows)


def _score(board: Leaderboard) -> str:
    """What the test score is, with its sets."""
    return board.columns[0].help


def _is_free(method: str, role: str) -> bool:
    """Whether the method costs no training, so that a line through its rows can be followed at every size."""
    return role == "baseline" and method in ("pca", FAISS_PEER)


def _line(marks: Sequence[Mark]) -> tuple[tuple[int, float], ...]:
    """Through the best on dev at each number of bytes: choosing by the test score would flatter methods with more rows."""
    best: dict[int, Mark] = {}
    for mark in marks:
        if mark.bytes not in best or mark.merit > best[mark.bytes].merit:
            best[mark.bytes] = mark
    return tuple((size, best[size].y) for size in sorted(best))


def _front(marks: Sequence[Mark]) -> tuple[tuple[int, float], ...]:
    """The marks of higher merit than every smaller one."""
    front: list[Mark] = []
    for mark in sorted(marks, key=lambda mark: (mark.bytes, -mark.merit)):
        if not front or mark.merit > front[-1].merit:
            front.append(mark)
    return tuple((mark.bytes, mark.y) for mark in front)


def _kind(row: Row) -> str:
    """What embeds: the student by the name that the search has for it, the teacher, or what the student started from."""
    record = row.record
    if record.role in ("teacher", "baseline") or record.start in (FROZEN, ON_VECTORS):
        return "teacher"
    if record.start == AS_IT_CAME:
        return row.name
    return str(record.hyperparameters.get("student") or record.start.removeprefix("teacher "))


def _diameter(size: int, least: int, most: int) -> float:
    share = math.log(size / least) / math.log(most / least) if least < most else 0.25
    return SMALLEST + share * (LARGEST - SMALLEST)


def _add_line(figure: go.Figure, line: Sequence[tuple[float, float]], colour: str, dash: str, width: float) -> None:
    figure.add_scatter(
        x=[x for x, _ in line],
        y=[y for _, y in line],
        mode="lines",
        line={"color": colour, "width": width, "dash": dash},
        hoverinfo="skip",
        showlegend=False,
    )


def _add_marks(
    figure: go.Figure,
    look: Look,
    marks: Sequence[Mark],
    xs: Sequence[float],
    line: dict[int, float],
    diameters: Sequence[float] | None = None,
) -> None:
    """The marks of one method with their intervals; those on its line are stronger."""
    figure.add_scatter(
        x=list(xs),
        y=[mark.y for mark in marks],
        customdata=[mark.shows for mark in marks],
        mode="markers",
        name=plain(look.name),
        marker={
            "color": look.colour,
            "symbol": look.symbol,
            "size": 9 if diameters is None else list(diameters),
            "opacity": [1.0 if line.get(mark.bytes) == mark.y else 0.6 for mark in marks],
            "line": {"width": 1.5, "color": look.colour},
        },
        error_y={
            "type": "data",
            "array": [mark.spread or 0.0 for mark in marks],
            "visible": any(mark.spread for mark in marks),
            "color": look.colour,
            "thickness": 1.5,
            "width": 0,
        },
        hovertext=[_hover(mark, x) for mark, x in zip(marks, xs, strict=True)],
        hoverinfo="text",
    )


def _hover(mark: Mark, x: float) -> str:
    r, cell = mark.row.record, mark.row.test
    spread = "" if cell.interval is None else f" ± {cell.interval:.2f} ({cell.seeds} seeds)"
    kept = "" if cell.retention is None else f" ({cell.retention:.1f} % of teacher)"
    speed = "" if x == r.bytes_per_vector else f"<br>{short(x)} sentences/s"
    return (
        f"<b>{plain(mark.row.name)}</b><br>{plain(r.method)}, {r.role}<br>{cell.value:.2f}{spread}{kept}<br>"
        f"{r.bytes_per_vector:,} bytes: {r.dim:,} dimensions as {plain(r.quantisation)}{speed}"
    )


def _add_rings(figure: go.Figure, taken: Iterable[tuple[int, float]], sizes: Sequence[int], palette: Palette) -> None:
    """A ring around each recommended row, and a name at the first: above the lines, or below them at the axis."""
    first, *_ = rings = list(taken)
    figure.add_scatter(
        x=[size for size, _ in rings],
        y=[y for _, y in rings],
        mode="markers",
        marker={"symbol": "circle-open", "size": 19, "color": palette.ink, "line": {"width": 2.2}},
        hoverinfo="skip",
        showlegend=False,
    )
    at_axis = first[0] ** 3 < min(sizes) ** 2 * max(sizes)  # in the left third
    figure.add_annotation(
        x=math.log10(first[0]),
        y=first[1],
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
