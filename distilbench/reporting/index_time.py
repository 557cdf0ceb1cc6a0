"""Index recall against time: what an approximate index loses, and how fast it is.

Recall is the share of the exact index's first 10 documents that an index also returns: what the index loses, and not what
the encoder does, so indexes of different encoders compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from distilbench.codes import FAMILIES, family_of
from distilbench.records import IndexCost
from distilbench.reporting.colours import LIGHT, SYMBOLS, Palette, kind_colour
from distilbench.reporting.figures import frame, plain
from distilbench.reporting.table import IndexRow
from distilbench.reporting.ticks import log_axis

KINDS = ("flat", "ivf", "ivf-pq", "hnsw", "sq8", "int8", "binary", "int4", *FAMILIES)
"""In the order of the legend, the first six in colour; codes of FAISS by their family, whatever their bytes."""
MOST_POINTS = 600
"""Indexes drawn, of the encoders that lead the board."""


class Conditions(NamedTuple):
    """What two indexes must have in common for their times to compare; `batch` None: all queries at once."""

    set: str
    split: str
    documents: int
    queries: int
    threads: int
    batch: int | None
    device: str


class IndexPoint(NamedTuple):
    """An index of an encoder: `recall` and `mrr10` x 100, `ms` per 1,000 queries; `setting` as "nlist 64, nprobe 8"."""

    name: str
    dim: int
    kind: str
    setting: str
    ms: float
    recall: float
    mrr10: float | None
    bytes: float | None


class IndexTime(NamedTuple):
    """Indexes measured under the same `conditions` (None: there are none).

    `others` were measured under other conditions, `omitted` more would be points under these.
    """

    points: tuple[IndexPoint, ...]
    conditions: Conditions | None
    others: int
    omitted: int


def compute_index_time(rows: Sequence[IndexRow], limit: int = MOST_POINTS) -> IndexTime:
    """Take the rows of `table.index_rows(board)` that were measured under the most common conditions (test splits first).

    Beyond `limit` points the encoders further down the board are left out, each with all of its indexes.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more")
    measured = [(row, point) for row in rows if (point := _point(row))]
    counts = Counter(_conditions(row.cost) for row, _ in measured)
    if not counts:
        return IndexTime((), None, 0, 0)
    common = max(counts, key=lambda c: (counts[c], c.split == "test", c.documents, -c.threads))
    comparable = [(row.row.anchor, point) for row, point in measured if _conditions(row.cost) == common]
    each = Counter(anchor for anchor, _ in comparable)
    drawn_rows, points = set[str](), 0
    for anchor, count in each.items():
        if drawn_rows and points + count > limit:
            break
        drawn_rows.add(anchor)
        points += count
    drawn = tuple(point for anchor, point in comparable if anchor in drawn_rows)
    return IndexTime(drawn, common, len(measured) - len(comparable), len(comparable) - len(drawn))


def index_time_caption(data: IndexTime) -> str:
    """What the figure of `compute_index_time` shows, and under which conditions it was measured."""
    if data.conditions is None:
        return "No index was measured."
    c = data.conditions
    batch = (
        "all queries at once" if c.batch is None else "one query at a time" if c.batch == 1 else f"{c.batch} at a time"
    )
    threads = "one thread" if c.threads == 1 else f"{c.threads} threads"
    parts = [
        f"Share of the exact index's first 10 documents that an index also returns, against its time: {c.set}, {c.split} "
        f"split, {c.documents:,} documents, {c.queries:,} queries, {batch}, on {threads}"
        f"{' and a GPU' if c.device == 'cuda' else ''}. Upper left is better."
    ]
    if data.others:
        parts.append(f"Measured on another set, or with other threads, batches or devices, not drawn: {data.others:,}.")
    if data.omitted:
        parts.append(f"Of encoders further down the board, not drawn: {data.omitted:,}.")
    return " ".join(parts)


def draw_index_time(data: IndexTime, palette: Palette = LIGHT) -> go.Figure:
    """A marker per kind of index, and a colour for the first six, the same in every figure; time on a logarithmic axis."""
    figure = go.Figure()
    for i, kind in enumerate(KINDS):
        points = [point for point in data.points if _family(point.kind) == kind]
        if points:
            figure.add_scatter(
                x=[point.ms for point in points],
                y=[point.recall for point in points],
                mode="markers",
                name=kind,
                marker={
                    "color": kind_colour(i, palette),
                    "symbol": SYMBOLS[i % len(SYMBOLS)] + ("-open" if i >= len(SYMBOLS) else ""),
                    "size": 8,
                    "opacity": 0.7,
                },
                hovertext=[_hover(point) for point in points],
                hoverinfo="text",
            )
    frame(figure, palette, "ms per 1,000 queries (log scale)", "Exact first 10 found, %")
    log_axis(figure, [point.ms for point in data.points])
    return figure


def _point(row: IndexRow) -> IndexPoint | None:
    """None where time or recall is missing, or the time is no time."""
    ms, recall = row.measured["ms_per_1000_queries"].value, row.measured["overlap10_with_flat"].value
    if ms is None or ms <= 0 or recall is None:
        return None
    mrr10, size = row.measured["mrr10"].value, row.measured["bytes"].value
    return IndexPoint(row.row.name, row.row.record.dim, row.cost.kind, _setting(row.cost), ms, recall, mrr10, size)


def _family(kind: str) -> str:
    named = family_of(kind)
    return named[0] if named else kind


def _conditions(c: IndexCost) -> Conditions:
    return Conditions(c.set, c.split, c.documents, c.queries, c.threads, c.batch, c.device)


def _setting(cost: IndexCost) -> str:
    parts = [
        f"{name} {value:,}" for name, value in (("nlist", cost.nlist), ("nprobe", cost.nprobe)) if value is not None
    ]
    return ", ".join([*parts, *([cost.setting] if cost.setting else [])])


def _hover(point: IndexPoint) -> str:
    setting = f", {plain(point.setting)}" if point.setting else ""
    more = [f"MRR@10 {point.mrr10:.2f}"] if point.mrr10 is not None else []
    more += [f"{point.bytes / 1e6:,.3g} MB"] if point.bytes is not None else []
    return (
        f"<b>{plain(point.name)}</b><br>{point.dim:,} dimensions<br>{point.kind}{setting}<br>"
        f"{point.recall:.1f} % of the exact 10, {point.ms:,.3g} ms<br>{', '.join(more)}"
    )
