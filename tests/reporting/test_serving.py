"""Cost columns: one setting for all rows, the row's own codes, missing where it was not measured."""

from __future__ import annotations

import pytest

from distilbench.reporting.board import leaderboard
from distilbench.reporting.serving import serving_costs


def values(board, costs):
    return {
        row.name: costs.rows[row.anchor][:3] for row in board.rows
    }  # index bytes, ms per 1,000 queries, sentences/s


def test_the_exact_index_and_the_speed(make_score):
    board = leaderboard([make_score("a", dim=64, latency_ms=4.0), make_score("b", dim=32)])
    costs = serving_costs(board)
    assert values(board, costs) == {
        "a": (64 * 4 * 20000, pytest.approx(57.6), 250.0),
        "b": (32 * 4 * 20000, pytest.approx(28.8), None),
    }
    assert costs.searched == "exact search of quora, 20,000 documents, all queries at once, on 1 thread"
    assert "one thread" in costs.speed


def test_times_of_another_setting_are_left_out(make_score):
    def threads(record, n):
        return record.model_copy(update={"indexes": [c.model_copy(update={"threads": n}) for c in record.indexes]})

    records = [make_score("a"), make_score("b", dim=32), threads(make_score("c", dim=16), 2)]
    board = leaderboard(records)
    found = values(board, serving_costs(board))
    assert found["c"] == (None, None, None) and found["a"][0] is not None


def test_seeds_are_averaged_and_nothing_measured_is_no_column(make_score):
    board = leaderboard([make_score("a", seed=s, record_id=f"{s}", latency_ms=m) for s, m in ((0, 4.0), (1, 5.0))])
    (row,) = board.rows
    assert serving_costs(board).rows[row.anchor].sentences_per_s == pytest.approx((250 + 200) / 2)
    bare = serving_costs(leaderboard([make_score("a", indexes=[])]))
    assert (bare.searched, bare.speed) == ("", "")
