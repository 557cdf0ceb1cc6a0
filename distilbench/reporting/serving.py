"""What a row costs where it is used: the size and speed of its exact index, and how fast it embeds.

Times of different sets, threads or batches do not compare, so each column is of one setting, which its help names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import IndexCost, ScoreRecord
from distilbench.reporting.board import Cell, Leaderboard, Row, mean_cell

Setting = tuple[str, str, int, int, int | None, str]
"""Set, split, documents, threads, batch and device of an index."""


class Serving(NamedTuple):
    """Means over the seeds of a row."""

    index_bytes: Cell
    ms_per_1000_queries: Cell
    sentences_per_s: Cell


class ServingCosts(NamedTuple):
    """The costs of every row, by its anchor. `searched` and `speed` say what the columns show, "" where nothing.

    `setting`: what the searches were measured in; its first two are the set and its split.
    """

    searched: str
    speed: str
    rows: Mapping[str, Serving]
    setting: Setting | None = None


def serving_costs(board: Leaderboard) -> ServingCosts:
    """The exact index in the setting that most rows were measured in, and sentences per second in batches on one thread.

    Of settings that as many rows were measured in, it is the one with the most documents, then the first by name.
    """
    counted = Counter(setting for row in board.rows for setting in {setting_of(cost) for cost in _exact(row)})
    setting = min(counted, key=lambda s: (-counted[s], -s[2], str(s)), default=None)
    rows = {row.anchor: _serving(row, setting) for row in board.rows}
    speed = any(costs.sentences_per_s.value is not None for costs in rows.values())
    return ServingCosts(
        searched="" if setting is None else f"exact search of {setting_text(setting)}",
        speed="Sentences per second in batches on one thread: compare rows of one run" if speed else "",
        rows=rows,
        setting=setting,
    )


def _serving(row: Row, setting: Setting | None) -> Serving:
    records = [seed.record for seed in row.seeds]
    costs = [next((c for c in _exact_of(r) if setting_of(c) == setting), None) for r in records]
    return Serving(
        mean_cell([float(c.bytes) if c else None for c in costs]),
        mean_cell([finite(c.ms_per_1000_queries) if c else None for c in costs]),
        mean_cell([_speed(r) for r in records]),
    )


def _speed(record: ScoreRecord) -> float | None:
    if record.latency_ms is not None:
        return 1000 / record.latency_ms
    cost = record.cost
    return cost.sentences_per_second_32 if cost and cost.threads == 1 and cost.device == "cpu" else None


def _exact(row: Row) -> Iterator[IndexCost]:
    for seed in row.seeds:
        yield from _exact_of(seed.record)


def _exact_of(record: ScoreRecord) -> Iterator[IndexCost]:
    """Exhaustive indexes of the row's own vectors or codes."""
    return (cost for cost in record.indexes if cost.kind == exact_kind(record))


def exact_kind(record: ScoreRecord) -> str:
    """The kind of index that searches all of a row's own vectors or codes."""
    return "flat" if record.quantisation == "float32" else record.quantisation


def setting_of(cost: IndexCost) -> Setting:
    """What the times of two indexes must have in common to compare."""
    return cost.set, cost.split, cost.documents, cost.threads, cost.batch, cost.device


def setting_text(setting: Setting) -> str:
    """The setting in words: "quora, 20,000 documents, all queries at once, on 1 thread"."""
    name, split, documents, threads, batch, device = setting
    set_title = name if split == "test" else f"{name}, {split}"
    queries = "all queries at once" if batch is None else f"{batch:,} queries at a time"
    on = "the GPU" if device == "cuda" else f"{threads} {'thread' if threads == 1 else 'threads'}"
    return f"{set_title}, {documents:,} documents, {queries}, on {on}"
