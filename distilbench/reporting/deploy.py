"""What to deploy for which need, in five lines: how a search over quality, speed and bytes ends in the terminal.

Rows are chosen on dev, and told with their test scores, as on the page (`recommended`). The teacher's float32 vectors are no
choice, and no row whose codes have lost their neighbours is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.budget import ServingBudget, best_under, candidates, latency_of
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.formats import binary, short
from distilbench.reporting.recommended import FEW_BYTES, KEPT_PERCENT, faster, keeps, kept_spread, more_on_dev
from distilbench.reporting.serving import serving_costs
from distilbench.reporting.table import AVERAGE, DEV, Leaderboard, Row, competes, told
from distilbench.search.objectives import pareto_front

MANY_TIMES = 10
"""The teacher's sentences per second: what "fast" means of a student in few bytes."""


class Deployed(NamedTuple):
    """A need, and the row for it; None where nothing serves it."""

    need: str
    row: Row | None
    tells: str
    """What the row keeps and costs."""

    def text(self) -> str:
        """The line of the need."""
        return (
            f"{self.need}: none"
            if self.row is None
            else f"{self.need}: {told(self.row)} ({self.row.anchor}): {self.tells}"
        )


def is_front(records: Iterable[TrialRecord | ScoreRecord]) -> bool:
    """Whether some search of the records had several objectives."""
    return any(isinstance(record, TrialRecord) and len(record.values) > 1 for record in records)


def deployed(board: Leaderboard, compared: Comparison = NOT_COMPARED) -> tuple[Deployed, ...]:
    """The five needs, each with its row; () without a row to choose.

    Best quality: the smallest row that cannot be told from the best. Smallest vectors, fastest and smallest model: of those
    that keep 95 % of the teacher's dev score; of equal ones the higher dev score. In few bytes and fast: the best in 64 bytes
    of those at ten times the teacher's speed or more.
    """
    serving = serving_costs(board)
    rows = [row for row in candidates(board) if competes(row.record)]
    if not rows:
        return ()
    keeping = [row for row in rows if keeps(board, row)]
    speeds = {row.anchor: faster(board, row, serving) for row in rows}

    def least(cost: Callable[[Row], float | None]) -> Row | None:
        known = [(value, row) for row in keeping if (value := cost(row)) is not None]
        return min(known, key=lambda one: (one[0], -(board.cell(one[1], DEV).value or 0.0)), default=(0.0, None))[1]

    def tells(row: Row) -> str:
        cell, half = board.cell(row, AVERAGE), kept_spread(board, row)
        parts = []
        if cell.retention is not None:
            spread = "" if half is None else f" ± {half:.1f}"
            parts.append(f"keeps {cell.retention:.1f}{spread} %{more_on_dev(board, row)}")
        parts.append(f"{row.record.bytes_per_vector:,} bytes")
        if speed := serving.rows[row.anchor].sentences_per_s.value:
            times = speeds[row.anchor]
            parts.append(f"{short(speed)} sentences/s" + (f" ({short(times)} times the teacher's)" if times else ""))
        if (size := model_bytes(row)) is not None:
            parts.append(f"{binary(size)} on disk")
        return ", ".join(parts)

    def slowness(row: Row) -> float | None:
        speed = speeds[row.anchor]
        return None if speed is None else -round(speed, 1)

    quick = tuple(row for row in rows if (speeds[row.anchor] or 0.0) >= MANY_TIMES)
    chosen = {
        "Best quality": best_under(board._replace(rows=tuple(rows)), ServingBudget(), compared),
        f"Smallest vectors that keep {KEPT_PERCENT} %": least(lambda row: row.record.bytes_per_vector),
        f"Fastest that keeps {KEPT_PERCENT} %": least(slowness),
        f"Smallest model that keeps {KEPT_PERCENT} %": least(model_bytes),
        f"In {FEW_BYTES} bytes and {MANY_TIMES} times as fast": best_under(
            board._replace(rows=quick), ServingBudget(bytes_per_vector=FEW_BYTES), compared
        ),
    }
    return tuple(Deployed(need, row, tells(row) if row else "") for need, row in chosen.items())


def deploy_lines(board: Leaderboard, run: Path, compared: Comparison = NOT_COMPARED) -> list[str]:
    """The five lines, and how a row of theirs is exported; `run` is the folder by which commands name all of its runs.

    [] without a row to choose.
    """
    lines = [one.text() for one in deployed(board, compared)]
    command = shlex.join(["distilbench", "export", str(run), "--student", "ROW", "--to", "DIR"])
    return [*lines, f"    {command}, with the ROW in brackets"] if lines else []


def on_front(board: Leaderboard, rows: Sequence[Row]) -> list[Row]:
    """Those that no other one beats: in the dev score, bytes per vector and, where all were timed, ms a sentence."""
    scored = [(row, dev) for row in rows if (dev := board.cell(row, DEV).value) is not None]
    timed = all(latency_of(row) is not None for row, _ in scored)
    points = [(dev, row.record.bytes_per_vector, (latency_of(row) or 0.0) if timed else 0.0) for row, dev in scored]
    return [scored[i][0] for i in pareto_front(points, ["maximize", "minimize", "minimize"])]


def model_bytes(row: Row) -> int | None:
    """Bytes of the row's model on disk; None where that was not measured."""
    return next((seed.record.cost.bytes_on_disk for seed in row.seeds if seed.record.cost), None)
