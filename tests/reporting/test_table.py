"""The leaderboard as data: averages, retention, Pareto flags, what a reader is told."""

from __future__ import annotations

import math

import pytest

from distilbench.reporting import table

TEACHER = {"role": "teacher", "dim": 384}


def by_label(board):
    return {row.record.label: row for row in board.rows}


def test_average_is_the_mean_over_all_sets_and_retention_is_of_the_teachers_own(make_score):
    board = table.leaderboard([make_score("t", 80.0, **TEACHER), make_score("s", 76.0)])
    assert board.sts_sets == ("STS12", "STS13", "STS14", "STSB")
    cell = board.cell(by_label(board)["s"], table.AVERAGE)
    # offsets -8 +1 -2 +3: mean -1.5
    assert cell.value == pytest.approx(74.5)
    assert cell.retention == pytest.approx(100 * 74.5 / 78.5)
    assert board.cell(by_label(board)["s"], "sts:STS12").retention == pytest.approx(100 * 68 / 72)
    assert board.cell(by_label(board)["s"], table.DEV).retention == pytest.approx(100 * 80 / 84)
    assert board.cell(by_label(board)["s"], "mrr10:quora").value == pytest.approx(56)
    assert board.cell(by_label(board)["t"], table.AVERAGE).retention == pytest.approx(100)


def test_row_without_a_set_has_no_average_rather_than_another_one(make_score):
    board = table.leaderboard([make_score("t", 80.0, **TEACHER), make_score("s", 76.0, skip=("STS13",))])
    row = by_label(board)["s"]
    assert board.cell(row, table.AVERAGE) == table.MISSING
    assert board.cell(row, "sts:STS13") == table.MISSING
    assert board.cell(row, "sts:STS12").value == pytest.approx(68)
    assert not row.pareto["all"]
    assert any("1 of 2 rows" in notice for notice in table.notices(board))


def test_nan_is_missing(make_score):
    record = make_score("s", 76.0)
    broken = record.scores[0].model_copy(update={"value": math.nan})
    board = table.leaderboard([record.model_copy(update={"scores": [broken, *record.scores[1:]]})])
    assert board.cell(board.rows[0], "sts:STS12") == table.MISSING
    assert board.cell(board.rows[0], table.AVERAGE) == table.MISSING


def test_wmean_of_a_set_with_one_subset_is_its_only_value(make_score):
    board = table.leaderboard([make_score("s", 76.0)])
    row = board.rows[0]
    assert board.has_wmean
    assert board.cell(row, "sts:STSB", "wmean").value == pytest.approx(79)
    # Three sets of four have subsets, each 1.5 higher in "wmean".
    assert board.cell(row, table.AVERAGE, "wmean").value == pytest.approx(74.5 + 3 * 1.5 / 4)


def test_wmean_missing_in_one_row_only_is_missing_not_replaced_by_all(make_score):
    full, record = make_score("full", 76.0), make_score("s", 76.0)
    partial = record.model_copy(
        update={"scores": [s for s in record.scores if (s.set, s.variant) != ("STS14", "wmean")]}
    )
    board = table.leaderboard([full, partial])
    row = by_label(board)["s"]
    assert board.cell(row, "sts:STS14", "wmean") == table.MISSING
    assert board.cell(row, table.AVERAGE, "wmean") == table.MISSING
    assert board.cell(row, table.AVERAGE, "all").value is not None


@pytest.mark.parametrize(
    ("rows", "front"),
    [
        # more bytes and a lower score: dominated
        ([("a", 32, 70.0), ("b", 64, 69.0)], {"a"}),
        # each better in one respect
        ([("a", 32, 70.0), ("b", 64, 71.0)], {"a", "b"}),
        # same bytes: the higher one only
        ([("a", 32, 70.0), ("b", 32, 71.0)], {"b"}),
        # same score: fewer bytes only
        ([("a", 32, 70.0), ("b", 64, 70.0)], {"a"}),
        # equal in both: neither is strictly better
        ([("a", 32, 70.0), ("b", 32, 70.0)], {"a", "b"}),
    ],
)
def test_pareto(make_score, rows, front):
    board = table.leaderboard([make_score(label, quality, dim=dim) for label, dim, quality in rows])
    assert {row.record.label for row in board.rows if row.pareto["all"]} == front


def test_pareto_and_best_are_taken_within_a_corpus(make_score):
    board = table.leaderboard(
        [make_score("a", 70.0), make_score("b", 71.0), make_score("c", 60.0, corpus_fingerprint="e" * 64)]
    )
    rows = by_label(board)
    assert rows["c"].pareto["all"] and not rows["a"].pareto["all"]
    assert rows["b"].best_in_dim["all"]
    # alone in its dimension and corpus: nothing to be best of
    assert not rows["c"].best_in_dim["all"]
    assert any("2 different corpora" in notice for notice in table.notices(board))


def test_a_baseline_can_be_best_in_its_dimension_but_the_teacher_is_apart(make_score):
    board = table.leaderboard(
        [
            make_score("t", 80.0, role="teacher"),
            make_score("pca", 77.0, role="baseline", method="pca"),
            make_score("s", 76.0),
        ]
    )
    assert [row.record.label for row in board.rows if row.best_in_dim["all"]] == ["pca"]


def test_teacher_first_then_by_average_and_missing_last(make_score):
    board = table.leaderboard(
        [
            make_score("low", 60.0),
            make_score("none", 90.0, skip=("STS12",)),
            make_score("high", 70.0),
            make_score("t", 50.0, **TEACHER),
        ]
    )
    assert [row.record.label for row in board.rows] == ["t", "high", "low", "none"]


def test_retention_needs_the_same_teacher_on_the_same_corpus_and_prefers_the_same_run(make_score):
    board = table.leaderboard(
        [
            make_score("t", 80.0, **TEACHER),
            make_score("t-other-run", 90.0, run="other", **TEACHER),
            make_score("s", 76.0),
            make_score("orphan", 76.0, teacher="another"),
            make_score("elsewhere", 76.0, corpus_fingerprint="e" * 64),
        ]
    )
    rows = by_label(board)
    assert board.cell(rows["s"], table.AVERAGE).retention == pytest.approx(100 * 74.5 / 78.5)
    assert board.cell(rows["orphan"], table.AVERAGE).retention is None
    assert board.cell(rows["elsewhere"], table.AVERAGE).retention is None


def test_a_record_written_twice_counts_once(make_score):
    board = table.leaderboard([make_score("s", 70.0), make_score("s", 72.0)])
    assert [board.cell(row, table.AVERAGE).value for row in board.rows] == [pytest.approx(70.5)]


def test_one_seed_is_said_until_an_encoder_has_two(make_score):
    one = table.leaderboard([make_score("a"), make_score("b", method="mcr2", seed=1)])
    assert one.one_seed and "One seed: no interval" in table.notices(one)[0]
    two = table.leaderboard([make_score("a"), make_score("b", seed=1)])
    assert not two.one_seed and "several seeds" in table.notices(two)[0]


def test_highlights(make_study):
    board = table.leaderboard(make_study())
    assert [(h.title, h.row.record.label) for h in table.highlights(board)] == [
        ("Teacher", "synthetic-teacher"),
        ("Highest test average", "mcr2-256"),
        ("Fewest bytes that keep 95 %", "hpd-32"),
    ]


def test_nothing_at_all():
    board = table.leaderboard([])
    assert board.rows == () and table.highlights(board) == () and table.index_rows(board) == ()
    assert "no score record" in table.notices(board)[0]
    assert table.trial_table([]).total == 0


def test_index_rows_follow_the_leaderboard(make_score):
    board = table.leaderboard([make_score("low", 60.0), make_score("high", 70.0)])
    assert [(item.row.record.label, item.cost.kind) for item in table.index_rows(board)] == [
        ("high", "flat"),
        ("high", "ivf"),
        ("low", "flat"),
        ("low", "ivf"),
    ]


def test_exact_retrieval_comes_from_the_flat_index_where_no_score_says_it(make_score):
    record = make_score("s", 76.0)
    board = table.leaderboard(
        [record.model_copy(update={"scores": [s for s in record.scores if s.task != "retrieval"]})]
    )
    assert board.cell(board.rows[0], "recall100:quora").value == pytest.approx(86)


def test_trial_table_keeps_the_best_and_some_failed_ones(make_trial):
    trials = [make_trial(n, objective=float(n)) for n in range(100)]
    trials += [make_trial(n, state="FAIL", objective=None) for n in range(100, 120)]
    listed = table.trial_table(trials, limit=30)
    assert listed.total == 120 and len(listed.shown) == 30
    assert listed.states == {"COMPLETE": 100, "FAIL": 20}
    assert [t.number for t in listed.shown] == [*range(75, 100), *range(100, 105)]
    assert len(table.trial_table(trials, limit=120).shown) == 120
    with pytest.raises(ValueError, match="limit is 0"):
        table.trial_table(trials, limit=0)


def test_a_trial_recorded_twice_counts_once(make_trial):
    trials = table.unique_trials([make_trial(1, objective=1.0), make_trial(0), make_trial(1, objective=2.0)])
    assert [(t.number, t.objective) for t in trials] == [(0, 70.0), (1, 2.0)]
