"""What indexes find and cost: a figure of recall against time, and the lines of the table of index costs.

Recall is the share of the exact index's first 10 documents that an index also returns: what the index loses, and not what
the encoder does, so indexes of different encoders compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from distilbench.codes import FAMILIES, family_of
from distilbench.progress.tally import finite
from distilbench.reporting.board import CostRow
from distilbench.reporting.colours import SYMBOLS, kind_colour
from distilbench.reporting.drawing import frame, log_axis, plain
from distilbench.reporting.formats import index_setting, set_name
from distilbench.reporting.serving import Setting, setting_of, setting_text

KINDS = ("flat", "ivf", "ivf-pq", "hnsw", "sq8", "int8", "binary", "int4", *FAMILIES)
"""In the order of the legend, the first six in colour; codes of FAISS by their family, whatever their bytes."""
MOST_POINTS = 600
"""Indexes drawn, of the encoders that lead the board."""
HEADINGS = (
    ("Encoder", "text", ""),
    ("Set", "text", ""),
    ("Index", "text", ""),
    ("Setting", "text", "nlist and nprobe of IVF, and what else the index depends on"),
    ("Documents", "number", ""),
    ("Size", "number", "Bytes of the serialised index"),
    ("Build,\u00a0s", "number", ""),
    ("ms / 1,000 queries", "number", ""),
    ("Overlap,\u00a0%", "number", "Share of the exact index's first 10 documents that this one returns"),
    ("MRR@10", "number", ""),
    ("Recall@100", "number", ""),
    ("Threads", "number", ""),
)
"""Columns of the table of all indexes: title, kind, help."""


class IndexTimes(NamedTuple):
    """Indexes measured in one `setting` (None: there are none), with their ms per 1,000 queries and their recall.

    `others` were measured in other settings, `omitted` more would be points in this one.
    """

    points: tuple[tuple[float, float, CostRow], ...]
    setting: Setting | None
    others: int
    omitted: int


def compute_index_times(rows: Sequence[CostRow], limit: int = MOST_POINTS) -> IndexTimes:
    """Take the rows of `board.index_rows` that were measured in the most common setting, test splits first.

    Beyond `limit` points those of encoders further down the board are left out.
    """
    measured = [(*point, row) for row in rows if (point := _point(row))]
    counts = Counter(setting_of(row.cost) for _, _, row in measured)
    if not counts:
        return IndexTimes((), None, 0, 0)
    common = max(counts, key=lambda s: (counts[s], s[1] == "test", s[2], -s[3]))
    comparable = [point for point in measured if setting_of(point[2].cost) == common]
    drawn = tuple(comparable[:limit])
    return IndexTimes(drawn, common, len(measured) - len(comparable), len(comparable) - len(drawn))


def index_times_caption(data: IndexTimes) -> str:
    """What the figure of `compute_index_times` shows, and in which setting it was measured."""
    if data.setting is None:
        return "No index was measured."
    parts = [
        "Share of the exact index's first 10 documents that an index also returns, against its time: "
        f"{setting_text(data.setting)}. Upper left is better."
    ]
    if data.others:
        parts.append(f"Measured on another set, or with other threads, batches or devices, not drawn: {data.others:,}.")
    if data.omitted:
        parts.append(f"Of encoders further down the board, not drawn: {data.omitted:,}.")
    return " ".join(parts)


def draw_index_times(data: IndexTimes) -> go.Figure:
    """A marker per kind of index, and a colour for the first six, the same in every figure; time on a logarithmic axis."""
    figure = go.Figure()
    for i, kind in enumerate(KINDS):
        points = [point for point in data.points if _family(point[2].cost.kind) == kind]
        if points:
            figure.add_scatter(
                x=[ms for ms, _, _ in points],
                y=[recall for _, recall, _ in points],
                mode="markers",
                name=kind,
                marker={
                    "color": kind_colour(i),
                    "symbol": SYMBOLS[i % len(SYMBOLS)] + ("-open" if i >= len(SYMBOLS) else ""),
                    "size": 8,
                    "opacity": 0.7,
                },
                hovertext=[_hover(*point) for point in points],
                hoverinfo="text",
            )
    frame(figure, "ms per 1,000 queries (log scale)", "Exact first 10 found, %")
    log_axis(figure)
    return figure


def every_index(indexes: Sequence[CostRow]) -> list[list[Any]]:
    """All indexes as the script of the page lists them: a row's anchor, then a value for each of `HEADINGS`."""

    def number(index: CostRow, field: str) -> float | None:
        value = finite(index.measured[field].value)
        return None if value is None else float(f"{value:.5g}")

    return [
        [
            i.row.anchor,
            i.row.name,
            set_name(i.cost),
            f"{i.cost.kind} (exact)" if i.cost.kind == "flat" else i.cost.kind,
            index_setting(i.cost),
            i.cost.documents,
            *(number(i, field) for field in ("bytes", "build_s", "ms_per_1000_queries", "overlap10_with_flat")),
            *(number(i, field) for field in ("mrr10", "recall100")),
            i.cost.threads,
        ]
        for i in indexes
    ]


def _point(row: CostRow) -> tuple[float, float] | None:
    """Time and recall; None where one is missing, or the time is no time."""
    ms, recall = row.measured["ms_per_1000_queries"].value, row.measured["overlap10_with_flat"].value
    return None if ms is None or ms <= 0 or recall is None else (ms, recall)


def _family(kind: str) -> str:
    named = family_of(kind)
    return named[0] if named else kind


def _hover(ms: float, recall: float, index: CostRow) -> str:
    record, cost = index.row.record, index.cost
    setting = f", {plain(index_setting(cost))}" if index_setting(cost) else ""
    mrr10, size = index.measured["mrr10"].value, index.measured["bytes"].value
    more = [f"MRR@10 {mrr10:.2f}"] if mrr10 is not None else []
    more += [f"{size / 1e6:,.3g} MB"] if size is not None else []
    return (
        f"<b>{plain(index.row.name)}</b><br>{record.dim:,} dimensions<br>{cost.kind}{setting}<br>"
        f"{recall:.1f} % of the exact 10, {ms:,.3g} ms<br>{', '.join(more)}"
    )
