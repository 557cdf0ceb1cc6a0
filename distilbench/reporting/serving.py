"""What a row costs where it is used: the size and speed of its exact index, how fast it embeds; and whether its codes find.

Times of different sets, threads or batches do not compare, so each column is of one setting, which its help names. Coded rows
that no longer find what their own float32 vectors find are marked, and never recommended.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import EncoderCost, IndexCost, ScoreRecord
from distilbench.reporting.board import Leaderboard, Row, mean_cell, teacher_row
from distilbench.reporting.formats import set_name

Setting = tuple[str, str, int, int, int | None, str]
"""Set, split, documents, threads, batch and device of an index."""
LEAST_OVERLAP = 50.0
"""Percent of the first 10 neighbours that a code has to keep. On 42,000 Quora documents sound int8 codes keep 97 to 99.5 %,
a bit a dimension 72 to 78 % at 384 dimensions, about 63 % at 128, 50 to 54 % at 64 and 38 to 40 % at 32."""


class Serving(NamedTuple):
    """Means over the seeds of a row; None where nothing was measured. The time of a search is the median of all rows whose
    vectors have the same code and dimensions: it does not depend on the encoder.

    `times_teacher`: of the teacher's sentences per second, where both were measured on one kind of machine.
    """

    index_bytes: float | None
    ms_per_1000_queries: float | None
    sentences_per_s: float | None
    times_teacher: float | None = None


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

    Of settings that as many rows were measured in, it is the one with the most documents, of two splits the test's, then the
    first by name.
    """
    measured = ({setting_of(cost) for seed in row.seeds for cost in _exact(seed.record)} for row in board.rows)
    counted = Counter(setting for settings in measured for setting in settings)
    setting = min(counted, key=lambda s: (-counted[s], -s[2], s[1] != "test", str(s)), default=None)
    times = _search_times(board, setting)
    rows = {row.anchor: _serving(row, setting, times) for row in board.rows}
    for row in board.rows:
        teacher, own = teacher_row(row, board.rows), rows[row.anchor]
        if teacher is not None and teacher.record.provenance.device == row.record.provenance.device:
            speed, base = own.sentences_per_s, rows[teacher.anchor].sentences_per_s
            rows[row.anchor] = own._replace(times_teacher=speed / base if speed is not None and base else None)
    timed = any(costs.sentences_per_s is not None for costs in rows.values())
    return ServingCosts(
        searched="" if setting is None else f"exact search of {setting_text(setting)}",
        speed="Sentences per second in batches on one thread: compare rows of one run" if timed else "",
        rows=rows,
        setting=setting,
    )


def _search_times(board: Leaderboard, setting: Setting | None) -> dict[tuple[str, int, str], float]:
    """The median of the measured times of each code, number of dimensions and machine."""
    measured = defaultdict[tuple[str, int, str], list[float]](list)
    for record in (seed.record for row in board.rows for seed in row.seeds):
        for cost in _exact(record, setting):
            if (ms := finite(cost.ms_per_1000_queries)) is not None:
                measured[_shape(record)].append(ms)
    return {shape: statistics.median(times) for shape, times in measured.items()}


def _shape(record: ScoreRecord) -> tuple[str, int, str]:
    return record.quantisation, record.dim, record.provenance.device


def _serving(row: Row, setting: Setting | None, times: Mapping[tuple[str, int, str], float]) -> Serving:
    records = [seed.record for seed in row.seeds]
    sizes = [float(cost.bytes) for record in records for cost in _exact(record, setting)]
    return Serving(
        mean_cell(sizes).value,
        mean_cell(times.get(_shape(record)) for record in records).value if sizes else None,
        mean_cell(map(_speed, records)).value,
    )


def _speed(record: ScoreRecord) -> float | None:
    if record.latency_ms is not None:
        return 1000 / record.latency_ms
    cost = record.cost
    return cost.sentences_per_second_32 if cost and cost.threads == 1 and cost.device == "cpu" else None


def _exact(record: ScoreRecord, setting: Setting | None = None) -> Iterator[IndexCost]:
    """Exhaustive indexes of the row's own vectors or codes, of one setting or of all (None)."""
    kind = "flat" if record.quantisation == "float32" else record.quantisation
    return (cost for cost in record.indexes if cost.kind == kind and setting in (None, setting_of(cost)))


def setting_of(cost: IndexCost) -> Setting:
    """What the times of two indexes must have in common to compare."""
    return cost.set, cost.split, cost.documents, cost.threads, cost.batch, cost.device


def setting_text(setting: Setting) -> str:
    """The setting in words: "quora, 20,000 documents, all queries at once, on 1 thread"."""
    name, split, documents, threads, batch, device = setting
    set_title = set_name(name, split)
    queries = "all queries at once" if batch is None else f"{batch:,} queries at a time"
    on = "the GPU" if device == "cuda" else f"{threads} {'thread' if threads == 1 else 'threads'}"
    return f"{set_title}, {documents:,} documents, {queries}, on {on}"


def encoder_cost(row: Row) -> EncoderCost | None:
    """What the row's encoder costs, as the first seed says of which it was measured."""
    return next((seed.record.cost for seed in row.seeds if seed.record.cost), None)


def model_bytes(row: Row) -> int:
    """Bytes of the files that loading the row's model needs, or of its parameters in float32 where that was not measured."""
    cost = encoder_cost(row)
    return cost.bytes_on_disk if cost else 4 * row.record.parameters


def code_overlap(row: Row) -> IndexCost | None:
    """The row's own index with the least `overlap10_with_flat`; None of float32 rows, and where no set was searched.

    The least over seeds and retrieval sets, and not the mean: in a set of a few documents any code finds the first 10, and it
    is one seed's model that is loaded in the end. The row is compared with its own float32 vectors, by an exact search of the
    same documents. No relevance judgement has a part in that, so test sets count here too and yet choose nothing.
    """
    if row.record.quantisation == "float32":
        return None
    costs = (cost for seed in row.seeds for cost in _exact(seed.record))
    known = (cost for cost in costs if finite(cost.overlap10_with_flat) is not None)
    return min(known, key=lambda cost: cost.overlap10_with_flat, default=None)


def below_overlap(row: Row) -> str:
    """Why the row must not be used, for the reader; "" where nothing is known against it."""
    kept = code_overlap(row)
    if kept is None or kept.overlap10_with_flat >= LEAST_OVERLAP:
        return ""
    return (
        f"Its {row.record.quantisation} codes lose their neighbours: of the first 10 documents that its own float32 vectors "
        f"find they find {kept.overlap10_with_flat:.1f} % ({set_name(kept.set, kept.split)}), less than {LEAST_OVERLAP:g} %. "
        "It is not recommended."
    )
