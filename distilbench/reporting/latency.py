"""Quality against sentences per second, the bytes of a vector as the size of its mark, and the front of quality and speed.

There are two measures of the time that a sentence takes, and neither compares with the other or across devices: an axis has
one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import plotly.graph_objects as go

from distilbench.progress.tally import finite
from distilbench.records import AS_IT_CAME, FROZEN, ON_VECTORS
from distilbench.reporting.colours import LIGHT, Palette
from distilbench.reporting.figures import (
    QualityPoint,
    add_fronts,
    add_points,
    frame,
    looks_of,
    own_measure,
    plain,
    point_hover,
    quality_point,
    quality_title,
    quality_told,
    span,
)
from distilbench.reporting.formats import short
from distilbench.reporting.table import Leaderboard, Row, Variant, mean_cell
from distilbench.reporting.ticks import log_axis
from distilbench.search.objectives import pareto_front


class Measure(NamedTuple):
    """What was timed, and where.

    "batches": `ScoreRecord.latency_ms`, the thread's own time from text on, a sentence's share of a batch of 32.
    "single": `EncoderCost.p50_ms`, on the wall clock and from text on, one sentence at a time.
    """

    kind: Literal["batches", "single"]
    threads: int
    device: str


SMALLEST, LARGEST = 5.0, 16.0
"""Pixels of the marks of the fewest and of the most bytes."""


NEAR = 1.5
"""Kinds of encoders whose speeds differ by less share a name in the figure."""
MOST_NAMES = 8
NAMES_ROOM = 0.08
"""Above the highest mark, as a share of the axis."""
PLOT = (250, 220)
"""Pixels of the plot on a phone, which names have to stand apart in."""
LETTER, LINE = 7, 15
"""Pixels of a name's letter, and of its height."""


class LatencyPoint(NamedTuple):
    """An encoder and the ms that it takes for a sentence, the mean over its seeds; `encoder.pareto`: on this front."""

    ms: float
    encoder: QualityPoint
    kind: str
    """What embeds: "static", "auto:2", "teacher"."""


class QualityLatency(NamedTuple):
    """Quality against latency. `fronts`: one line (ms, quality) per corpus, by rising ms; no `measure`: no points.

    `omitted` counts rows with a test average that were not timed by `measure`; `sets` as in QualityBytes.
    """

    points: tuple[LatencyPoint, ...]
    fronts: tuple[tuple[tuple[float, float], ...], ...]
    measure: Measure | None
    sets: tuple[str, ...]
    variant: Variant
    omitted: int
    tested: str = ""
    """What the quality is instead, where students are selected by something else than STS."""


def compute_quality_latency(board: Leaderboard, variant: Variant = "all") -> QualityLatency:
    """The rows with a test average that have the most common measure, "batches" where two are equally common.

    Of each corpus its front: no other row is at least as good and as fast, and better in one.
    """
    placed = [(row, point) for row in board.rows if (point := quality_point(board, row, variant))]
    timed: dict[Measure, dict[int, float]] = {}
    for i, (row, _) in enumerate(placed):
        for measure, ms in _timed(row).items():
            timed.setdefault(measure, {})[i] = ms
    if not timed:
        return QualityLatency((), (), None, board.sts_sets, variant, len(placed))
    measure = min(timed, key=lambda m: (-len(timed[m]), *m))
    corpora: dict[str, list[int]] = {}
    for i in timed[measure]:
        corpora.setdefault(placed[i][0].record.compared_on, []).append(i)
    fronts, on_front = [], set[int]()
    for rows in corpora.values():
        values = [(timed[measure][i], placed[i][1].quality) for i in rows]
        front = pareto_front(values, ["minimize", "maximize"]).tolist()
        on_front.update(rows[k] for k in front)
        fronts.append(tuple(sorted({values[k] for k in front})))
    points = tuple(
        LatencyPoint(ms, placed[i][1]._replace(pareto=i in on_front), _kind(placed[i][0]))
        for i, ms in timed[measure].items()
    )
    omitted, own = len(placed) - len(points), own_measure(board)
    return QualityLatency(points, tuple(fronts), measure, board.sts_sets, variant, omitted, own)


def latency_caption(data: QualityLatency) -> str:
    """What the figure of `compute_quality_latency` shows, and how the time was measured."""
    if data.measure is None:
        return "No encoder's latency was measured."
    kind, threads, device = data.measure
    how = {
        "batches": "in batches of 32, from its text on (median, the thread's own time)",
        "single": "on its own, from its text on (median, on the wall clock)",
    }[kind]
    ran = "one thread" if threads == 1 else f"{threads} threads"
    bars = any(point.encoder.interval is not None for point in data.points)
    spread = " Bars are 95 % intervals over seeds." if bars else ""
    omitted = f" Rows that were not timed this way, not drawn: {data.omitted}." if data.omitted else ""
    sizes = sorted({point.encoder.bytes_per_vector for point in data.points})
    size = (
        f" The size of a mark is the bytes of a vector, from {sizes[0]:,} to {sizes[-1]:,}." if len(sizes) > 1 else ""
    )
    return (
        f"{quality_told(data.sets, data.tested)}, against sentences per second {how}, on {ran} "
        f"of {device}.{size} The dotted line joins the encoders that no other one beats in both.{spread}{omitted}"
    )


def draw_quality_latency(data: QualityLatency, palette: Palette = LIGHT) -> go.Figure:
    """Sentences per second on a logarithmic axis, larger marks for more bytes, and a name above the best of each kind."""
    figure = go.Figure()
    add_fronts(figure, [[(1000 / ms, quality) for ms, quality in front] for front in data.fronts], palette)
    sizes = sorted({point.encoder.bytes_per_vector for point in data.points})

    def diameter(size: int) -> float:
        share = math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0]) if sizes[0] < sizes[-1] else 0.25
        return SMALLEST + share * (LARGEST - SMALLEST)

    methods: dict[tuple[str, str], list[LatencyPoint]] = {}
    for point in sorted(data.points, key=lambda point: (point.encoder.role != "student", -point.encoder.quality)):
        methods.setdefault((point.encoder.method, point.encoder.role), []).append(point)
    for points, look in zip(methods.values(), looks_of(list(methods), palette), strict=True):
        encoders = [point.encoder for point in points]
        speeds, diameters = [1000 / point.ms for point in points], [diameter(e.bytes_per_vector) for e in encoders]
        add_points(figure, speeds, encoders, look, hovers=[_hover(p) for p in points], diameters=diameters)
        figure.data[-1].showlegend = look.colour != palette.faint
    frame(figure, palette, _title(data.measure), quality_title(data.sets, data.variant, data.tested))
    figure.update_layout(legend_itemsizing="constant")
    log_axis(figure, [1000 / point.ms for point in data.points])
    low, high = 0.0, 1.0
    if data.points:
        lined = [quality for front in data.fronts for _, quality in front]
        low, high = span(sorted(point.encoder.quality for point in data.points), lined)
        figure.update_yaxes(range=[low, high + NAMES_ROOM * (high - low)])
    names = _names(data.points)
    for (speed, quality, name), level in zip(
        names, _levels(names, [1000 / p.ms for p in data.points], high - low), strict=True
    ):
        figure.add_annotation(
            x=math.log10(speed),
            y=quality,
            text=f"<b>{plain(name, 40)}</b>",
            font={"color": palette.ink, "size": 12},
            showarrow=False,
            yanchor="bottom",
            yshift=LARGEST / 2 + 2 + level * LINE,
        )
    return figure


def _names(points: Sequence[LatencyPoint]) -> list[tuple[float, float, str]]:
    """Sentences per second, quality and name above the best of each kind, the best first.

    [] where there is one kind, or there are many.
    Kinds that are about as fast have one name together.
    """
    best: dict[str, LatencyPoint] = {}
    for point in sorted(points, key=lambda point: -point.encoder.quality):
        best.setdefault(point.kind, point)
    together: list[list[LatencyPoint]] = []
    for point in sorted(best.values(), key=lambda point: point.ms):
        if together and point.ms < NEAR * together[-1][0].ms:
            together[-1].append(point)
        else:
            together.append([point])
    if not 1 < len(together) <= MOST_NAMES:
        return []
    tops = [max(kinds, key=lambda point: point.encoder.quality) for kinds in together]
    names = [", ".join(sorted(point.kind for point in kinds)) for kinds in together]
    named = [(1000 / top.ms, top.encoder.quality, name) for top, name in zip(tops, names, strict=True)]
    return sorted(named, key=lambda speed_quality_name: -speed_quality_name[1])


def _levels(names: Sequence[tuple[float, float, str]], speeds: Sequence[float], span_of_axis: float) -> list[int]:
    """How many lines each name is lifted by, so that none covers another one."""
    if not names:
        return []
    decades = math.log10(max(speeds) / min(speeds)) or 1.0
    placed: list[tuple[float, float, float]] = []
    levels = []
    for speed, quality, name in names:
        x, y, half = PLOT[0] * math.log10(speed) / decades, PLOT[1] * quality / span_of_axis, LETTER * len(name) / 2
        level = 0
        while any(abs(x - px) < half + phalf and abs(y + level * LINE - py) < LINE for px, py, phalf in placed):
            level += 1
        placed.append((x, y + level * LINE, half))
        levels.append(level)
    return levels


def _kind(row: Row) -> str:
    """What embeds: the student by the name that the search has for it, the teacher, or what the student started from."""
    record = row.record
    if record.role in ("teacher", "baseline") or record.start in (FROZEN, ON_VECTORS):
        return "teacher"
    if record.start == AS_IT_CAME:
        return row.name
    return str(record.hyperparameters.get("student") or record.start.removeprefix("teacher "))


def _timed(row: Row) -> dict[Measure, float]:
    """The row's ms by each measure, the mean over the seeds that have it."""
    latencies: dict[Measure, list[float]] = {}
    for record in (seed.record for seed in row.seeds):
        device = record.provenance.device
        if record.latency_ms is not None:
            latencies.setdefault(Measure("batches", 1, device), []).append(record.latency_ms)
        if record.cost is not None:
            where = device if record.cost.device in device.lower() else f"{record.cost.device}, {device}"
            latencies.setdefault(Measure("single", record.cost.threads, where), []).append(record.cost.p50_ms)
    means = {measure: mean_cell(_above_zero(values)).value for measure, values in latencies.items()}
    return {measure: ms for measure, ms in means.items() if ms is not None}


def _above_zero(values: Sequence[float]) -> list[float]:
    return [value for value in values if finite(value) is not None and value > 0]


def _title(measure: Measure | None) -> str:
    if measure is None:
        return "Sentences per second"
    how = "Sentences per second, " + ("in batches" if measure.kind == "batches" else "one at a time")
    return f"{how}, {'one thread' if measure.threads == 1 else f'{measure.threads} threads'} (log scale)"


def _hover(point: LatencyPoint) -> str:
    front = "<br>on the front" if point.encoder.pareto else ""
    return f"{point_hover(point.encoder)}<br>{short(1000 / point.ms)} sentences/s, {point.ms:.3g} ms{front}"
