"""The leaderboard as data: averages, retention, Pareto flags, what a reader is told."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from distilbench.records import AS_IT_CAME
from distilbench.reporting import board as boards
from distilbench.reporting.choice import answer
from distilbench.reporting.run_facts import listed_trials

TEACHER = {"role": "teacher", "dim": 384}


def by_label(board):
    return {row.record.label: row for row in board.rows}


def test_average_is_the_mean_over_all_sets_and_retention_is_of_the_teachers_own(make_score):
    board = boards.leaderboard([make_score("t", 80.0, **TEACHER), make_score("s", 76.0)])
    cell = by_label(board)["s"].test
    # offsets -8 +1 -2 +3: mean -1.5
    assert cell.value == pytest.approx(74.5)
    assert cell.retention == pytest.approx(100 * 74.5 / 78.5)
    assert by_label(board)["s"].cells["sts:STS12"].retention == pytest.approx(100 * 68 / 72)
    assert by_label(board)["s"].dev.retention == pytest.approx(100 * 80 / 84)
    assert by_label(board)["s"].cells["mrr10:quora"].value == pytest.approx(56)
    assert by_label(board)["t"].test.retention == pytest.approx(100)


def test_nan_is_missing(make_score):
    record = make_score("s", 76.0)
    broken = record.scores[0].model_copy(update={"value": math.nan})
    board = boards.leaderboard([record.model_copy(update={"scores": [broken, *record.scores[1:]]})])
    assert board.rows[0].cells["sts:STS12"] == boards.MISSING
    assert board.rows[0].test == boards.MISSING


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
    board = boards.leaderboard([make_score(label, quality, dim=dim) for label, dim, quality in rows])
    assert {row.record.label for row in board.rows if row.pareto} == front


def test_teacher_first_then_by_average_and_missing_last(make_score):
    board = boards.leaderboard(
        [
            make_score("low", 60.0),
            make_score("none", 90.0, skip=("STS12",)),
            make_score("high", 70.0),
            make_score("t", 50.0, **TEACHER),
        ]
    )
    assert [row.record.label for row in board.rows] == ["t", "high", "low", "none"]


def test_retention_needs_the_same_teacher_on_the_same_corpus_and_prefers_the_same_run(make_score):
    board = boards.leaderboard(
        [
            make_score("t", 80.0, **TEACHER),
            make_score("t-other-run", 90.0, run="other", **TEACHER),
            make_score("s", 76.0),
            make_score("orphan", 76.0, teacher="another"),
            make_score("elsewhere", 76.0, corpus_fingerprint="e" * 64),
        ]
    )
    rows = by_label(board)
    assert rows["s"].test.retention == pytest.approx(100 * 74.5 / 78.5)
    assert rows["orphan"].test.retention is None
    assert rows["elsewhere"].test.retention is None


def test_interval_is_scipys_own():
    values = [81.2, 80.7, 81.9, 80.1, 81.4, 82.6]
    mean = sum(values) / len(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=stats.sem(values))
    cell = boards.mean_cell(values)
    assert (cell.value - cell.interval, cell.value + cell.interval) == (pytest.approx(low), pytest.approx(high))
    assert cell.seeds == 6


def seeds_of(make_score, label, qualities, **changes):
    return [
        make_score(label, quality, seed=seed, record_id=f"{label}-{seed}", trial=seed, model=f"m{seed}", **changes)
        for seed, quality in enumerate(qualities)
    ]


def test_seeds_of_an_encoder_are_one_row_of_means(make_score):
    teacher = make_score("t", 80.0, **TEACHER)
    board = boards.leaderboard([*seeds_of(make_score, "s", [75.0, 76.0, 78.0]), teacher])
    assert [row.record.label for row in board.rows] == ["t", "s"]
    t, s = board.rows
    cell = s.test
    # averages per seed 73.5, 74.5, 76.5: mean 74 5/6, sd sqrt(7/3), t(0.975, 2) = 4.302653
    assert cell.value == pytest.approx(74 + 5 / 6)
    assert cell.interval == pytest.approx(4.302653 * math.sqrt(7 / 3) / math.sqrt(3), rel=1e-6)
    assert cell.seeds == 3
    assert cell.retention == pytest.approx(100 * (74 + 5 / 6) / 78.5)
    assert s.cells["mrr10:quora"].interval == pytest.approx(cell.interval)
    assert [(x.record.seed, x.record.record_id, x.score("test")) for x in s.seeds] == [
        (0, "s-0", pytest.approx(73.5)),
        (1, "s-1", pytest.approx(74.5)),
        (2, "s-2", pytest.approx(76.5)),
    ]
    alone = t.test
    assert (alone.interval, alone.seeds, alone.retention) == (None, 1, pytest.approx(100))


@pytest.mark.parametrize(
    "change",
    [
        {"run": "other"},
        {"role": "baseline"},
        {"method": "mcr2"},
        {"configuration": "other"},
        {"label": "other"},
        {"dim": 32},
        {"bytes_per_vector": 64},
        {"quantisation": "int8"},
        {"teacher": "other"},
        {"start": "other"},
        {"corpus_fingerprint": "e" * 64},
        {"hyperparameters": {"lr": 2e-4}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_identifies_an_encoder_makes_a_row_of_its_own(make_score, change):
    first = make_score("s", 75.0)
    other = first.model_copy(update={"seed": 1, "record_id": "other", **change})
    assert len(boards.leaderboard([first, other]).rows) == 2


def test_a_seed_without_a_set_is_left_out_of_that_mean(make_score):
    records = seeds_of(make_score, "s", [75.0, 77.0])
    records.append(make_score("s", 99.0, seed=2, record_id="s-2", skip=("STS13",)))
    board = boards.leaderboard(records)
    (row,) = board.rows
    average = row.test
    assert (average.value, average.seeds) == (pytest.approx(74.5), 2)
    assert row.cells["sts:STS12"].seeds == 3


def test_retention_is_of_the_float32_teacher(make_score):
    teacher, later = make_score("t", 80.0, **TEACHER), "2002-01-01T00:00:00Z"
    small = make_score("t8", 60.0, quantisation="int8", bytes_per_vector=384, **TEACHER)
    small = small.model_copy(update={"provenance": small.provenance.model_copy(update={"created_at": later})})
    board = boards.leaderboard([teacher, small, make_score("s", 76.0)])
    assert by_label(board)["s"].test.retention == pytest.approx(100 * 74.5 / 78.5)
    alone = boards.leaderboard([small, make_score("s", 76.0)])
    assert by_label(alone)["s"].test.retention is None


def test_pair_columns_are_the_metrics_there_are_on_test_else_on_dev(make_score, make_pairs):
    board = boards.leaderboard(
        [
            make_score("a", pairs=[*make_pairs(80.0), *make_pairs(50.0, split="dev")]),
            make_score("b", pairs=make_pairs(70.0, "SICK", "dev", ("pearson", "spearman"))),
            make_score("c", pairs=make_pairs(60.0, "QQP", "dev")),
        ]
    )
    pairs = [column for column in board.columns if column.key.startswith("pairs:")]
    assert [(c.key, c.group, c.title, c.dev) for c in pairs] == [
        ("pairs:QQP:accuracy", "Pairs, QQP (test)", "Accuracy", False),
        ("pairs:QQP:f1", "Pairs, QQP (test)", "F1", False),
        ("pairs:SICK:pearson:dev", "Pairs, SICK (dev)", "Pearson", True),
        ("pairs:SICK:spearman:dev", "Pairs, SICK (dev)", "Spearman", True),
    ]
    rows = by_label(board)
    assert rows["a"].cells["pairs:QQP:f1"].value == pytest.approx(81.0)
    assert rows["b"].cells["pairs:SICK:pearson:dev"].value == pytest.approx(70.0)
    # a dev score never stands in a test column
    assert rows["c"].cells["pairs:QQP:accuracy"] == boards.MISSING


def test_a_retrieval_set_that_differs_between_rows_is_told(make_score):
    """Such as 1,000 of its documents in one run, and all of them in another."""
    sts = {"STS12/test": "a"}
    rows = [make_score(label=name, sets={**sts, "retrieval/cystic/test": name}) for name in ("one", "two")]
    told = [line for line in boards.notices(boards.leaderboard(rows)) if "do not compare" in line]
    assert len(told) == 1 and "cystic test. Scores of these sets" in told[0]
    same = [make_score(label=name, sets={**sts, "retrieval/cystic/test": "same"}) for name in ("one", "two")]
    assert not any(
        "do not compare" in line for line in boards.notices(boards.leaderboard([*same, make_score(sets=sts)]))
    )


def test_nothing_at_all():
    board = boards.leaderboard([])
    assert board.rows == () and answer(board).recommendations == () and boards.index_rows(board) == ()
    assert "no score record" in boards.notices(board)[0]
    assert listed_trials([], 30) == ()


def test_the_best_trials_and_some_failed_ones_are_listed(make_trial):
    trials = [make_trial(n, objective=float(n)) for n in range(100)]
    trials += [make_trial(n, state="FAIL", objective=None) for n in range(100, 120)]
    assert [t.number for t in listed_trials(trials, 30)] == [*range(75, 100), *range(100, 105)]
    assert len(listed_trials(trials, 120)) == 120


def confirmed_pair(make_score, make_trial):
    """Trials 3 and 7 of one dimension, each with two seeds; 3 was better in the search, 7 is in the mean."""
    records = []
    for trial, objectives in ((3, (8.0, 0.0)), (7, (7.0, 5.0))):
        for seed, objective in enumerate(objectives):
            for kind in ("float32", "int8"):
                name = f"{trial}-{seed}-{kind}"
                settings = {"lr": trial / 1000, "output_dim": 64}
                records.append(
                    make_score(
                        "s",
                        80.0 - trial,
                        record_id=name,
                        trial=trial,
                        seed=seed,
                        quantisation=kind,
                        hyperparameters=settings,
                    )
                )
            records.append(make_trial(trial, seed=seed, objective=objective, confirms=seed > 0))
    return records


def test_rows_that_share_a_label_are_told_apart_by_their_trial(make_score, make_trial):
    records = confirmed_pair(make_score, make_trial)
    rows = boards.leaderboard(records).rows
    assert sorted((row.name, row.record.quantisation) for row in rows) == [
        (f"s, trial {trial}", kind) for trial in (3, 7) for kind in ("float32", "int8")
    ]
    alone = [r for r in records if r.kind == "trial" or r.trial == 3]
    assert {row.name for row in boards.leaderboard(alone).rows} == {"s"}
    # A comparison has names of its own; another run's label is no clash.
    named = [make_score("s", record_id=str(n), hyperparameters={"lr": n}, configuration=f"c{n}") for n in (1, 2)]
    other = make_score("s", record_id="o", run="other", trial=1)
    assert [row.name for row in boards.leaderboard([*named, other]).rows] == ["c1", "c2", "s"]


def test_the_choice_is_the_highest_mean_objective_on_dev(make_score, make_trial):
    records = confirmed_pair(make_score, make_trial)
    chosen = {row.record.trial: row.chosen for row in boards.leaderboard(records).rows}
    assert chosen == {3: False, 7: True}  # although trial 3 has the higher test average, and was first in the search
    assert not any(row.chosen for row in boards.leaderboard([r for r in records if r.kind == "score"]).rows)
    alone = [r for r in records if r.kind == "trial" or r.trial == 7]
    assert not any(row.chosen for row in boards.leaderboard(alone).rows)  # nothing competes with it


def test_trials_for_a_code_compete_within_its_bytes_whatever_their_dimension(make_score, make_trial):
    records = []
    for trial, (dim, bits, objective) in enumerate(((16, 8, 1.0), (32, 4, 2.0), (16, 4, 0.5), (32, 8, 3.0))):
        params = {"output_dim": dim, "bits": bits}
        kind = {8: "int8", 4: "int4"}[bits]
        common = {"dim": dim, "trial": trial, "hyperparameters": params}
        records.append(make_score(f"s{trial}", record_id=f"{trial}", **common))
        coded = {"quantisation": kind, "bytes_per_vector": dim * bits // 8}
        records.append(make_score(f"s{trial}", record_id=f"{trial} coded", **common, **coded))
        records.append(make_trial(trial, dim=dim, params=params, objective=objective))
    board = boards.leaderboard(records)
    # in 16 bytes trial 1 is above trial 0, in both forms; trials 2 (8 bytes) and 3 (32 bytes) have no rival
    assert {row.record.record_id for row in board.rows if row.chosen} == {"1", "1 coded"}
    rivals = {row.record.record_id: boards.rivals(row.record) for row in board.rows}
    assert rivals["0 coded"] == rivals["1 coded"] and rivals["0"] != rivals["0 coded"]


def test_students_of_several_starts_are_told_apart_by_them(make_score):
    def named(*records):
        return sorted(row.name for row in boards.leaderboard(records).rows)

    two, other_two, three, static = (
        make_score("HPD d=64", q, record_id=str(q), run=f"r{q}", start=f"big {start}")
        for q, start in ((71.0, "layers:4,5"), (72.0, "layers:0,5"), (73.0, "layers:5"), (70.0, "tokens (static)"))
    )
    head = make_score("MCR2 d=64", 75.0, record_id="h", start="teacher (frozen)")
    mine = make_score("HPD d=64", 75.0, record_id="m", trial=None, configuration="mine", start="big layers:1")
    searched = make_score(
        "HPD (auto:1) d=64", 75.0, record_id="s", start="big layers:1", hyperparameters={"student": "auto:1"}
    )
    assert named(two, head) == ["HPD d=64", "MCR2 d=64"]
    assert named(two, three, static, head, mine, searched) == [
        "HPD (auto:1) d=64",
        "HPD d=64, 1 layer",
        "HPD d=64, 2 layers",
        "HPD d=64, static",
        "MCR2 d=64",
        "mine",
    ]
    assert named(two, other_two, static) == [
        "HPD d=64, big layers:0,5",
        "HPD d=64, big layers:4,5",
        "HPD d=64, static",
    ]
    elsewhere = make_score("HPD d=64", 75.0, record_id="e", run="e", start="other layers:4,5")
    whole = make_score("HPD d=64", 76.0, record_id="w", run="w", start="models/mine")
    assert named(two, elsewhere, whole) == [
        "HPD d=64, big layers:4,5",
        "HPD d=64, models/mine",
        "HPD d=64, other layers:4,5",
    ]
    # Two trials of one start are still told apart by their numbers.
    again = [
        make_score(
            "HPD d=64", 74.0, record_id=f"a{n}", trial=n, run="r", start="big layers:5", hyperparameters={"lr": n}
        )
        for n in (1, 2)
    ]
    assert named(two, *again) == ["HPD d=64, 1 layer, trial 1", "HPD d=64, 1 layer, trial 2", "HPD d=64, 2 layers"]


def test_encoders_whose_folders_have_one_name_are_told_apart(make_score):
    came = {"role": "encoder", "method": "encoder", "start": AS_IT_CAME, "trial": None}
    # A longer way to a folder is the same folder, whose weights have changed.
    said = {"one/model": "a", "two/model": "b", "/old/two/model": "c", "two/large": "d"}
    records = [
        make_score(
            Path(source).name,
            quality,
            source=source,
            record_id=weights,
            hyperparameters={"weights": weights * 9},
            **came,
        )
        for quality, (source, weights) in enumerate(said.items(), 70)
    ]
    names = sorted(row.name for row in boards.leaderboard(records).rows)
    assert names == ["large", "one/model", "two/model, weights bbbbbbbb", "two/model, weights cccccccc"]


def test_the_widths_of_a_row_with_a_name_of_its_own_are_told_apart(make_score):
    nested = [make_score("HPD", 70.0 + dim, configuration="static", dim=dim, record_id=str(dim)) for dim in (8, 4)]
    assert [row.name for row in boards.leaderboard(nested).rows] == ["static, d=8", "static, d=4"]
    assert [row.name for row in boards.leaderboard(nested[:1]).rows] == ["static"]


def test_students_of_two_teachers_of_one_name_are_told_apart(make_score):
    records = [make_score("s", 70.0, run=folder, source=f"{folder}/model") for folder in ("one", "two")]
    assert {row.name for row in boards.leaderboard(records).rows} == {"s of one/model", "s of two/model"}
    assert {row.name for row in boards.leaderboard(records[:1]).rows} == {"s"}


def test_searches_among_other_documents_are_ranked_apart_where_they_select(make_score):
    """The same STS sets do not make two runs comparable by what they find."""
    sts = {"STS12/test": "a"}

    def board(select):
        rows = [
            make_score(
                f"{role} {run}", quality, run=run, role=role, select=select, sets=sts | {"retrieval/quora/test": run}
            )
            for run, quality in (("few", 90.0), ("all", 80.0))
            for role in ("teacher", "student")
        ]
        return boards.leaderboard(rows)

    apart, together = board("mrr@10"), board("sts")
    assert [len(b.corpora) for b in (apart, together)] == [2, 1]
    assert sum(row.pareto for row in apart.rows if row.record.role == "student") == 2
    assert [row.record.run for row in together.rows if row.pareto] == ["few", "few"]
    assert len(boards.leaderboard([row.record for row in apart.rows if row.record.run == "few"]).corpora) == 1
