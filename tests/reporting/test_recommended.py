"""What the page says first: one row for each need, chosen on dev, told with its test score and its cost."""

from __future__ import annotations

import pytest

from distilbench.records import AS_IT_CAME
from distilbench.reporting.recommended import answer, answer_of_run, rows_of_run
from distilbench.reporting.table import leaderboard


def with_dev(record, value):
    scores = [s.model_copy(update={"value": value}) if s.split == "dev" else s for s in record.scores]
    return record.model_copy(update={"scores": scores})


def teacher(make_score, **changes):
    fields = {"role": "teacher", "method": "teacher", "dim": 384, "trial": None, "model": ""}
    return make_score("teacher", 81.0, **(fields | changes))


def coded(make_score, label, quality, kind, size, **changes):
    return make_score(label, quality, record_id=label, quantisation=kind, bytes_per_vector=size, indexes=[], **changes)


def test_each_need_has_a_sentence_and_its_command(make_score):
    records = [
        teacher(make_score, latency_ms=2.0),
        coded(make_score, "good", 80.0, "int8", 64, latency_ms=1.0),
        coded(make_score, "small", 79.0, "int4", 16, latency_ms=1.9),
        coded(make_score, "fast", 78.0, "float32", 256, latency_ms=0.1),
        coded(make_score, "poor", 60.0, "binary", 8, latency_ms=0.01),
    ]
    # Of 1,500 dev pairs 79 cannot be told from 80; of a hundred thousand it can.
    records = [r.model_copy(update={"scores": [s.model_copy(update={"n": 10**5}) for s in r.scores]}) for r in records]
    found = answer(leaderboard(records))
    assert [(one.title, one.row.name) for one in found.taken] == [
        ("Take ", "good"),
        ("Smallest that keeps 95 %: ", "small"),
        ("Fastest that keeps 95 %: ", "fast"),
    ]
    first, small, fast = found.sentences()
    assert first == (
        "Take good, int8: it keeps 98.7 % of the teacher's STS average and 98.4 % of its MRR@10, in 64 bytes a vector "
        "instead of 1,536 (24 times smaller), at 2 times the teacher's sentences per second. It is also the best in 64 "
        "bytes. "
        "(STS average 78.50; one seed, no interval)"
    )
    assert small.startswith("Smallest that keeps 95 %: small, int4: 16 bytes (96 times smaller), keeps 97.5 %")
    assert "at 20 times the teacher's sentences per second" in fast and found.absent == ()
    assert found.taken[0].command == f"distilbench export runs/synthetic --student {found.rows[0].anchor} --to DIR"


def test_it_is_chosen_on_dev_and_told_with_its_test_score(make_score):
    lucky = coded(make_score, "lucky on test", 85.0, "int8", 64)
    sound = coded(make_score, "sound", 78.0, "int8", 64, trial=4)
    board = leaderboard([teacher(make_score), with_dev(lucky, 60.0), with_dev(sound, 84.0)])
    found = answer(board)
    assert found.rows[0].name == "sound" and "96.2 % of the teacher's STS average" in found.sentences()[0]


def test_where_less_is_kept_on_test_than_on_dev_both_are_told(make_score):
    fast = with_dev(coded(make_score, "fast", 75.0, "int8", 256, latency_ms=0.1), 82.0)
    board = leaderboard([teacher(make_score, latency_ms=2.0), coded(make_score, "good", 80.0, "int8", 64), fast])
    _, told = answer(board).sentences()
    assert told.startswith(
        "Fastest that keeps 95 %: fast, int8: 256 bytes (6 times smaller), keeps 92.5 % (96.5 % on dev)"
    )


def test_the_interval_is_over_seeds_or_over_the_test_items(make_score):
    seeds = [
        coded(make_score, "s", 78.0 + n, "int8", 64, seed=n).model_copy(update={"record_id": f"{n}"}) for n in (0, 1, 2)
    ]
    (one,) = answer(leaderboard([teacher(make_score), *seeds])).taken
    assert one.sure == "STS average 77.50 ± 2.48 over 3 seeds" and "97.5 ± 3.1 %" in one.tells
    single = coded(make_score, "single", 80.0, "int8", 64)
    single = single.model_copy(
        update={"scores": [s.model_copy(update={"low": s.value - 1, "high": s.value + 2}) for s in single.scores]}
    )
    (one,) = answer(leaderboard([teacher(make_score), single])).taken
    assert one.sure == "STS average 78.50, 78.0 to 79.5 over its test items; one seed"  # of four sets: a half


def test_a_baseline_that_is_best_is_what_is_recommended_and_the_best_student_is_named_too(make_score):
    student = coded(make_score, "student", 78.0, "int8", 64)
    pca = coded(make_score, "PCA", 80.5, "int8", 16, role="baseline", method="pca", model="", start="teacher (frozen)")
    found = answer(leaderboard([teacher(make_score), student, pca]))
    assert [one.name for one in found.taken] == ["PCA, int8, a baseline", "student, int8"]
    assert found.taken[1].title == "Best trained student: " and found.taken[0].command
    assert "the smallest that keeps 95 %" in found.taken[0].tells


def test_where_nothing_keeps_enough_the_best_is_named_and_it_is_said(make_score):
    found = answer(leaderboard([teacher(make_score), coded(make_score, "poor", 60.0, "int8", 64)]))
    assert found.rows[0].name == "poor" and found.absent == ("No row keeps 95 % of the teacher's dev score.",)


def test_no_speed_and_no_faster_row_are_said(make_score):
    slow = coded(make_score, "slow", 80.0, "int8", 64, latency_ms=2.0)
    with_speed = answer(leaderboard([teacher(make_score, latency_ms=2.0), slow]))
    assert with_speed.absent == ("Fastest that keeps 95 %: none embeds faster than the teacher.",)
    without = answer(leaderboard([teacher(make_score), slow]))
    assert without.absent == ("Fastest that keeps 95 %: speed was not measured here (sweep --measure-speed does).",)
    # Of two kinds of machines nothing is compared.
    elsewhere = slow.provenance.model_copy(update={"device": "another"})
    apart = [teacher(make_score, latency_ms=9.0), slow.model_copy(update={"provenance": elsewhere})]
    assert answer(leaderboard(apart)).absent == without.absent


def test_only_rows_of_the_largest_corpus_take_part(make_score):
    other = coded(make_score, "elsewhere", 81.0, "int8", 8, corpus_fingerprint="e" * 64)
    board = leaderboard([teacher(make_score), coded(make_score, "here", 78.0, "int8", 64), other])
    assert [row.name for row in answer(board).rows] == ["here"]


def test_codes_that_lost_their_neighbours_are_not_recommended(make_score, make_cost):
    lost = make_score("lost", 82.0, dim=8, bytes_per_vector=8, quantisation="int8", indexes=[make_cost("int8", 49.9)])
    found = answer(leaderboard([teacher(make_score), lost, coded(make_score, "sound", 78.0, "int8", 64)]))
    assert [row.name for row in found.rows] == ["sound"]


def test_encoders_as_they_came_are_named_by_their_test_scores(make_score):
    def encoder(label, quality, size, ms):
        fields = {"role": "encoder", "start": AS_IT_CAME, "teacher": "", "model": "", "trial": None}
        return make_score(
            label, quality, **fields, latency_ms=ms, bytes_per_vector=size, hyperparameters={"weights": label}
        )

    board = leaderboard([encoder("good", 80.0, 3072, 9.0), encoder("small", 70.0, 512, 1.0)])
    found = answer(board)
    assert found.sentences()[0].startswith(
        "Highest STS average: good: 3,072 bytes, 111 sentences per second. (STS average 78.50"
    )
    assert found.sentences()[1].startswith("Fastest, with the fewest bytes: small") and len(found.taken) == 2
    assert all(one.command == "" for one in found.taken)
    apart = leaderboard(
        [encoder("good", 80.0, 3072, 9.0), encoder("quick", 70.0, 768, 1.0), encoder("s", 60.0, 64, 8.0)]
    )
    titles = [sentence.partition(": ")[::2] for sentence in answer(apart).sentences()]
    assert [(title, told.partition(":")[0]) for title, told in titles] == [
        ("Highest STS average", "good"),
        ("Fastest", "quick"),
        ("Fewest bytes", "s"),
    ]


def test_a_run_is_answered_by_its_own_students_beside_their_teacher(make_score):
    own = [make_score(f"own {d}", 80.0 - d / 100, dim=d, run="own", record_id=f"o{d}") for d in (16, 64)]
    better = [
        make_score("another run's", 90.0, dim=16, run="another"),
        make_score("a baseline", 95.0, dim=16, role="baseline", method="pca", run="own"),
    ]
    board = leaderboard([teacher(make_score, run="another"), *own, *better])
    found = answer_of_run(board, "own")
    assert [one.name for one in found.taken][:1] == ["own 16"]
    assert found.sentences()[0].startswith("Of this run take own 16: it keeps ")
    rows = rows_of_run(board, "own")
    assert [row.record.role for row in rows.shown] == ["teacher", "student", "student"]
    assert [row.name for row in rows.others] == ["a baseline"]


def test_a_run_without_students_is_all_its_rows(make_score):
    board = leaderboard([make_score(name, 80.0, role="encoder", start=AS_IT_CAME, trial=None) for name in ("a", "b")])
    rows = rows_of_run(board, board.rows[0].record.run)
    assert len(rows.shown) == 2 and not rows.others and not answer_of_run(board, board.rows[0].record.run).chosen


@pytest.mark.parametrize("records", [[], None])
def test_nothing_to_recommend(make_score, records):
    board = leaderboard([make_score("s", skip=("STS12", "STS13", "STS14", "STSB"))] if records is None else records)
    assert isinstance(answer(board).sentences(), tuple)
