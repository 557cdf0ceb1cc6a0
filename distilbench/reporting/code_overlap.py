"""Coded rows that no longer find what their own float32 vectors find: they are marked, and never recommended."""

from __future__ import annotations

from distilbench.progress.tally import finite
from distilbench.records import IndexCost
from distilbench.reporting.board import Leaderboard, Row
from distilbench.reporting.formats import set_name

LEAST_OVERLAP = 50.0
"""Percent of the first 10 neighbours that a code has to keep. On 42,000 Quora documents sound int8 codes keep 97 to 99.5 %,
a bit a dimension 72 to 78 % at 384 dimensions, about 63 % at 128, 50 to 54 % at 64 and 38 to 40 % at 32."""


def code_overlap(row: Row) -> IndexCost | None:
    """The row's own index with the least `overlap10_with_flat`; None of float32 rows, and where no set was searched.

    The least over seeds and retrieval sets, and not the mean: in a set of a few documents any code finds the first 10, and it
    is one seed's model that is loaded in the end. The row is compared with its own float32 vectors, by an exact search of the
    same documents. No relevance judgement has a part in that, so test sets count here too and yet choose nothing.
    """
    kind = row.record.quantisation
    if kind == "float32":
        return None
    costs = (cost for seed in row.seeds for cost in seed.record.indexes if cost.kind == kind)
    known = (cost for cost in costs if finite(cost.overlap10_with_flat) is not None)
    return min(known, key=lambda cost: cost.overlap10_with_flat, default=None)


def below_overlap(row: Row) -> str:
    """Why the row must not be used, for the reader; "" where nothing is known against it."""
    kept = code_overlap(row)
    if kept is None or kept.overlap10_with_flat >= LEAST_OVERLAP:
        return ""
    return (
        f"Its {row.record.quantisation} codes lose their neighbours: of the first 10 documents that its own float32 vectors "
        f"find they find {kept.overlap10_with_flat:.1f} % ({set_name(kept)}), less than {LEAST_OVERLAP:g} %. It is not "
        "recommended."
    )


def notice(board: Leaderboard) -> str:
    """How many rows are marked so, for the head of the page; "" where none is."""
    marked = sum(bool(below_overlap(row)) for row in board.rows)
    if not marked:
        return ""
    rows = "1 row is" if marked == 1 else f"{marked} rows are"
    return (
        f"{rows} marked “neighbours lost”: of the first 10 documents that a row's own float32 vectors find, its codes find "
        f"less than {LEAST_OVERLAP:g} % in some retrieval set. Such a row is never recommended, whatever its STS scores."
    )
