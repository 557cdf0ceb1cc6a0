"""What an encoder's index costs, in one line: its exact index, and the fastest approximate one that finds nearly the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distilbench.progress.tally import finite
from distilbench.reporting.formats import index_setting, set_name
from distilbench.reporting.lines import Lines
from distilbench.reporting.serving import Setting, exact_kind, setting_of
from distilbench.reporting.table import IndexRow, Row

LEAST_OVERLAP = 95.0
"""Percent of the exact index's first 10 documents that an approximate one has to return."""
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


class IndexLine(NamedTuple):
    """An encoder: the exact index of the form that stands for it, and the best approximate one of any form."""

    row: Row
    exact: IndexRow | None
    best: IndexRow | None


def index_lines(lines: Lines, indexes: Sequence[IndexRow], setting: Setting | None) -> tuple[IndexLine, ...]:
    """One line for each encoder that has an index measured in `setting`, in the leaderboard's order."""
    by_row: dict[str, list[IndexRow]] = {}
    for index in indexes:
        if setting_of(index.cost) == setting:
            by_row.setdefault(index.row.anchor, []).append(index)
    found = []
    for line in lines.lines:
        own = by_row.get(line.row.anchor, [])
        exact = next((i for i in own if i.cost.kind == exact_kind(line.row.record)), None)
        near = [i for row in line.rows for i in by_row.get(row.anchor, []) if _near(i)]
        best = min(near, key=lambda i: i.measured["ms_per_1000_queries"].value or 0.0, default=None)
        if exact is not None or best is not None:
            found.append(IndexLine(line.row, exact, best))
    return tuple(found)


def _near(index: IndexRow) -> bool:
    """Whether it is an approximate index that finds nearly what the exact one does."""
    exact = index.cost.kind in ("flat", exact_kind(index.row.record))
    overlap = index.measured["overlap10_with_flat"].value
    timed = index.measured["ms_per_1000_queries"].value is not None
    return not exact and timed and overlap is not None and overlap >= LEAST_OVERLAP


def every_index(indexes: Sequence[IndexRow]) -> list[list[Any]]:
    """All indexes as the script of the page lists them: a row's anchor, then a value for each of `HEADINGS`."""

    def number(index: IndexRow, field: str) -> float | None:
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
            number(i, "bytes"),
            number(i, "build_s"),
            number(i, "ms_per_1000_queries"),
            number(i, "overlap10_with_flat"),
            number(i, "mrr10"),
            number(i, "recall100"),
            i.cost.threads,
        ]
        for i in indexes
    ]
