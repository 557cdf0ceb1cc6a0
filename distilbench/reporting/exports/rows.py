"""Which rows of a leaderboard stand for the others outside of it."""

from __future__ import annotations

from distilbench.reporting import table


def representatives(board: table.Leaderboard) -> tuple[table.Row, ...]:
    """The float32 rows in the leaderboard's order; of the trials of a sweep that compete, only the one that dev chose."""

    plain = [row for row in board.rows if row.record.quantisation == "float32"]
    decided = {table.rivals(row.record) for row in plain if row.chosen}
    return tuple(
        row for row in plain if row.record.trial is None or row.chosen or table.rivals(row.record) not in decided
    )
