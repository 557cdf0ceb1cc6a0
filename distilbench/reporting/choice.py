"""Which row to take: chosen on dev, whatever its test scores are.

Every row takes part that can be used: students, baselines, and the teacher with its own codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distilbench.records import AS_IT_CAME, TrialRecord
from distilbench.reporting.board import DEV, Leaderboard, Row, competes, teacher_row
from distilbench.reporting.code_overlap import below_overlap
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.loading import FITTED
from distilbench.reporting.serving import ServingCosts
from distilbench.search.objectives import pareto_front

KEPT_PERCENT = 95
"""Of the teacher's dev score: what "keeps" means."""
FEW_BYTES = 64
FASTER = 1.1
"""Times the teacher's sentences per second, from which a row counts as faster: less is within what timing varies by."""
BEST, SMALLEST, SMALL = "Best quality", f"Smallest that keeps {KEPT_PERCENT} %", f"Best in {FEW_BYTES} bytes"
FASTEST, TRAINED = f"Fastest that keeps {KEPT_PERCENT} %", "Best trained student"


class ServingBudget(NamedTuple):
    """What a row may cost at most where it is used; None is no limit."""

    bytes_per_vector: int | None = None
    latency_ms: float | None = None
    """To embed one sentence. A row without a measured latency is over every such limit."""
    dim: int | None = None

    def allows(self, row: Row) -> bool:
        """Return whether the row is within all limits."""
        costs = row.record.bytes_per_vector, latency_of(row), row.record.dim
        return all(
            limit is None or (cost is not None and cost <= limit) for cost, limit in zip(costs, self, strict=True)
        )


def candidates(board: Leaderboard) -> list[Row]:
    """List the rows to choose from: all with vectors and a dev score, whose codes keep their neighbours.

    An encoder that was evaluated as it came is none: no run made it.
    """
    return [row for row in scored(board) if not below_overlap(row)]


def scored(board: Leaderboard) -> list[Row]:
    """List the candidates and those rows whose codes have lost their neighbours."""
    made = (row for row in board.rows if row.record.start != AS_IT_CAME and row.record.dim)
    return [row for row in made if board.cell(row, DEV).value is not None]


def best_of(board: Leaderboard, rows: Sequence[Row], compared: Comparison = NOT_COMPARED) -> Row | None:
    """Choose the smallest row that cannot be told from the one with the highest dev score; None of no rows.

    Dev scores are means over seeds, and are told apart on the dev sets alone (`Comparison.differ`). Of as many bytes the
    higher dev score wins, then the faster, then a row whose model is kept, then the first by name. The rows are taken to
    be of one corpus.
    """
    if not rows:
        return None
    highest = min(rows, key=lambda row: (-_dev(board, row), row.record.bytes_per_vector, *_worse(board, row)))
    as_good = [row for row in rows if row is highest or not compared.differ(board, highest, row)]
    return min(as_good, key=lambda row: (row.record.bytes_per_vector, *_worse(board, row)))


def best_under(board: Leaderboard, budget: ServingBudget, compared: Comparison = NOT_COMPARED) -> Row | None:
    """Choose among the candidates within the budget, by `best_of`; None when none is."""
    return best_of(board, [row for row in candidates(board) if budget.allows(row)], compared)


def choose(board: Leaderboard, compared: Comparison, serving: ServingCosts) -> dict[str, Row]:
    """Choose a row for each need; without the needs that no row serves. The rows are of one corpus.

    The teacher's float32 vectors serve none, unless nothing else was scored. Of those that keep 95 % of the teacher's dev
    score the one of the least cost is taken, of equal ones the higher dev score.
    """
    rows = [row for row in candidates(board) if competes(row.record)]
    keeping = [row for row in rows if keeps(board, row)]
    speeds = {row.anchor: faster(board, row, serving) or 0.0 for row in rows}
    quick = [row for row in keeping if speeds[row.anchor] >= FASTER]
    top = max((speeds[row.anchor] for row in quick), default=0.0)
    small = [row for row in rows if row.record.bytes_per_vector <= FEW_BYTES]

    found = {
        BEST: best_of(board, rows or candidates(board), compared),
        SMALLEST: min(keeping, key=lambda row: (row.record.bytes_per_vector, *_worse(board, row)), default=None),
        SMALL: best_of(board, small, compared),
        FASTEST: min(
            (row for row in quick if speeds[row.anchor] * 1.02 >= top),
            key=lambda row: _worse(board, row),
            default=None,
        ),
        TRAINED: best_of(board, [row for row in rows if is_trained(row)], compared),
    }
    return {need: row for need, row in found.items() if row is not None}


def first_choice(board: Leaderboard, chosen: dict[str, Row]) -> Row:
    """Take the best in few bytes if it keeps enough; else the smallest row that does; else the best quality."""
    small = chosen.get(SMALL)
    return small if small is not None and keeps(board, small) else chosen.get(SMALLEST, chosen[BEST])


def is_trained(row: Row) -> bool:
    """Return whether the row is a student that was trained, not fitted."""
    return row.record.role == "student" and row.record.method not in FITTED


def keeps(board: Leaderboard, row: Row) -> bool:
    """Return whether the row keeps `KEPT_PERCENT` of the teacher's dev score."""
    return (board.cell(row, DEV).retention or 0.0) >= KEPT_PERCENT


def faster(board: Leaderboard, row: Row, serving: ServingCosts) -> float | None:
    """Times the teacher's sentences per second, both measured on one kind of machine; None where that is not known."""
    teacher = teacher_row(board, row)
    if teacher is None or teacher.record.provenance.device != row.record.provenance.device:
        return None
    speed, base = (serving.rows[r.anchor].sentences_per_s.value for r in (row, teacher))
    return speed / base if speed is not None and base else None


def latency_of(row: Row) -> float | None:
    """Mean over the seeds that have a measured latency, in ms; None where none has."""
    latencies = [seed.record.latency_ms for seed in row.seeds if seed.record.latency_ms is not None]
    return math.fsum(latencies) / len(latencies) if latencies else None


def model_bytes(row: Row) -> int | None:
    """Bytes of the row's model on disk; None where that was not measured."""
    return next((seed.record.cost.bytes_on_disk for seed in row.seeds if seed.record.cost), None)


def is_front(records: Iterable[object]) -> bool:
    """Return whether some search of the records had several objectives."""
    return any(isinstance(record, TrialRecord) and len(record.values) > 1 for record in records)


def on_front(board: Leaderboard, rows: Sequence[Row]) -> list[Row]:
    """Those that no other one beats: in the dev score, bytes per vector and, where all were timed, ms a sentence."""
    known = [row for row in rows if board.cell(row, DEV).value is not None]
    timed = all(latency_of(row) is not None for row in known)
    points = [(_dev(board, r), r.record.bytes_per_vector, (latency_of(r) or 0.0) if timed else 0.0) for r in known]
    return [known[i] for i in pareto_front(points, ["maximize", "minimize", "minimize"])]


def _dev(board: Leaderboard, row: Row) -> float:
    return board.cell(row, DEV).value or 0.0


def _worse(board: Leaderboard, row: Row) -> tuple[float, float, bool, str]:
    latency = latency_of(row)
    return -_dev(board, row), math.inf if latency is None else latency, not row.record.model, row.name
