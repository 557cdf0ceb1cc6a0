"""What is recommended, one row for each need: chosen on dev, told with its test score and cost; lines and cost columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.records import AS_IT_CAME, EncoderCost, ScoreRecord
from distilbench.reporting.board import leaderboard
from distilbench.reporting.choice import answer, answer_of_run, choose, is_front
from distilbench.reporting.comparison import NOT_COMPARED
from distilbench.reporting.exports import student_table, terminal_summary
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.serving import serving_costs


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
    found = answer(leaderboard(records))
    assert [(one.title, one.row.name) for one in found.recommendations] == [
        ("Take ", "good"),
        ("Smallest that keeps 95 %: ", "small"),
        ("Fastest that keeps 95 %: ", "fast"),
    ]
    first, small, fast = found.sentences()
    assert first == (
        "Take good, int8: keeps 98.7 % of the teacher's STS average and 98.4 % of its search (MRR@10), 64 bytes a vector "
        "(24 times smaller), 2 times as fast as the teacher on a CPU; also the best quality on dev sets and the best in 64 "
        "bytes. (STS average 78.50; one seed, no interval)"
    )
    assert small.startswith("Smallest that keeps 95 %: small, int4: keeps 97.5 %")
    assert "20 times as fast as the teacher on a CPU" in fast and found.absent == ()
    assert (
        found.recommendations[0].command
        == f"distilbench export runs/synthetic --student {found.rows[0].anchor} --to DIR"
    )


def test_it_is_chosen_on_dev_and_told_with_its_test_score(make_score):
    lucky = coded(make_score, "lucky on test", 85.0, "int8", 64, dev=60.0)
    sound = coded(make_score, "sound", 78.0, "int8", 64, trial=4, dev=84.0)
    board = leaderboard([teacher(make_score), lucky, sound])
    found = answer(board)
    assert found.rows[0].name == "sound" and "96.2 % of the teacher's STS average" in found.sentences()[0]


def test_the_interval_is_over_seeds_or_over_the_test_items(make_score):
    seeds = [
        coded(make_score, "s", 78.0 + n, "int8", 64, seed=n).model_copy(update={"record_id": f"{n}"}) for n in (0, 1, 2)
    ]
    (one,) = answer(leaderboard([teacher(make_score), *seeds])).recommendations
    assert one.interval == "STS average 77.50 ± 2.48 over 3 seeds" and "97.5 ± 3.1 %" in one.summary
    single = coded(make_score, "single", 80.0, "int8", 64)
    single = single.model_copy(
        update={"scores": [s.model_copy(update={"low": s.value - 1, "high": s.value + 2}) for s in single.scores]}
    )
    (one,) = answer(leaderboard([teacher(make_score), single])).recommendations
    assert one.interval == "STS average 78.50, 78.0 to 79.5 over its test items; one seed"  # of four sets: a half


def test_a_baseline_that_is_best_is_what_is_recommended_and_the_best_student_is_named_too(make_score):
    student = coded(make_score, "student", 78.0, "int8", 64)
    pca = coded(make_score, "PCA", 80.5, "int8", 16, role="baseline", method="pca", model="", start="teacher (frozen)")
    found = answer(leaderboard([teacher(make_score), student, pca]))
    assert [one.name for one in found.recommendations] == ["PCA, int8, a baseline", "student, int8"]
    assert found.recommendations[1].title == "Best trained student: " and found.recommendations[0].command
    assert "the smallest that keeps 95 %" in found.recommendations[0].summary


def test_where_nothing_keeps_enough_the_best_is_named_and_it_is_said(make_score):
    found = answer(leaderboard([teacher(make_score), coded(make_score, "poor", 60.0, "int8", 64)]))
    assert found.rows[0].name == "poor" and found.absent == ("No row keeps 95 % of the teacher's dev score.",)


def test_no_speed_and_no_faster_row_are_said(make_score):
    slow = coded(make_score, "slow", 80.0, "int8", 64, latency_ms=2.0)
    with_speed = answer(leaderboard([teacher(make_score, latency_ms=2.0), slow]))
    assert with_speed.absent == ("Fastest that keeps 95 %: none embeds faster than the teacher.",)
    without = answer(leaderboard([teacher(make_score), slow]))
    assert without.absent == ("Fastest that keeps 95 %: speed was not measured here.",)
    # Of two kinds of machines nothing is compared.
    elsewhere = slow.provenance.model_copy(update={"device": "another"})
    apart = [teacher(make_score, latency_ms=9.0), slow.model_copy(update={"provenance": elsewhere})]
    assert answer(leaderboard(apart)).absent == without.absent


def test_of_encoders_as_they_came_the_highest_test_score_is_named(make_score):
    def encoder(label, quality):
        fields = {"role": "encoder", "start": AS_IT_CAME, "teacher": "", "model": "", "trial": None, "latency_ms": 9.0}
        return make_score(label, quality, bytes_per_vector=3072, hyperparameters={"weights": label}, **fields)

    found = answer(leaderboard([encoder("worse", 70.0), encoder("good", 80.0)]))
    assert not found.chosen and [one.command for one in found.recommendations] == [""]
    (sentence,) = found.sentences()
    assert sentence.startswith(
        "Highest STS average: good: 3,072 bytes a vector, 111 sentences per second. (STS average 78"
    )


def test_a_run_is_answered_by_its_own_students_beside_their_teacher(make_score):
    own = [make_score(f"own {d}", 80.0 - d / 100, dim=d, run="own", record_id=f"o{d}") for d in (16, 64)]
    better = [
        make_score("another run's", 90.0, dim=16, run="another"),
        make_score("a baseline", 95.0, dim=16, role="baseline", method="pca", run="own"),
    ]
    board = leaderboard([teacher(make_score, run="another"), *own, *better])
    found = answer_of_run(board, "own")
    assert [one.name for one in found.recommendations][:1] == ["own 16"]
    assert found.sentences()[0].startswith("Of this run take own 16: keeps ")


@pytest.mark.parametrize("records", [[], None])
def test_nothing_to_recommend(make_score, records):
    board = leaderboard([make_score("s", skip=("STS12", "STS13", "STS14", "STSB"))] if records is None else records)
    assert isinstance(answer(board).sentences(), tuple)


def cost(ms: float, size: int) -> dict[str, object]:
    timed = EncoderCost(
        parameters_without_embeddings=1,
        bytes_on_disk=size,
        sentences_per_second_1=500 / ms,
        sentences_per_second_32=1000 / ms,
        p50_ms=2 * ms,
        p95_ms=3 * ms,
        threads=1,
        device="cpu",
        timed_1=64,
        timed_32=256,
    )
    return {"latency_ms": ms, "cost": timed}


def row(
    make_score,
    label: str,
    quality: float,
    size: int,
    kind: str = "int8",
    ms: float = 4.0,
    disk: int = 90_000_000,
    **more,
):
    fields = {"record_id": label, "quantisation": kind, "bytes_per_vector": size, "indexes": [], **cost(ms, disk)}
    record = make_score(label, quality, **(fields | more))
    return record.model_copy(update={"demonstration": False})


def timed_records(make_score) -> list[ScoreRecord]:
    whole = {"role": "teacher", "method": "teacher", "dim": 384, "trial": None, "model": ""}
    return [
        row(make_score, "teacher", 81.0, 1536, "float32", **whole),
        row(make_score, "head", 80.9, 128),
        row(make_score, "small head", 79.0, 16, "int4"),
        row(make_score, "layers", 79.5, 64, ms=1.0, disk=50_000_000),
        row(make_score, "static", 78.0, 64, ms=0.02, disk=30_000_000),
        row(make_score, "static table", 77.9, 256, ms=0.02, disk=8_000_000),
        row(make_score, "poor", 60.0, 4, "binary", ms=0.01, disk=1_000_000),
    ]


def test_each_need_has_its_row(make_score) -> None:
    board = leaderboard(timed_records(make_score))
    found = choose(board, NOT_COMPARED, serving_costs(board))
    assert {need: row.name for need, row in found.items()} == {
        "Best quality on dev sets": "head",
        "Smallest that keeps 95 %": "small head",
        "Best in 64 bytes": "layers",
        "Fastest that keeps 95 %": "static",
        "Best trained student": "head",
    }
    fastest = next(one for one in answer(board).recommendations if one.title.startswith("Fastest"))
    assert fastest.summary == (
        "keeps 96.2 % of the teacher's STS average and 95.1 % of its search (MRR@10), 64 bytes a vector (24 times smaller), "
        "200 times as fast as the teacher on a CPU, 30 MB on disk"
    )


def test_a_vector_of_the_teachers_size_is_not_called_smaller(make_score) -> None:
    records = [timed_records(make_score)[0], row(make_score, "fast", 80.0, 1536, "float32", ms=0.02)]
    summaries = [one.summary for one in answer(leaderboard(records)).recommendations]
    assert summaries and all("1,536 bytes a vector, " in text and "smaller" not in text for text in summaries)


def test_a_search_over_several_objectives_ends_with_its_front_and_five_lines(make_score, make_trial) -> None:
    trial = make_trial(0, values={"quality": 80.0, "bytes": 64.0})
    assert is_front([trial]) and not is_front([make_trial(0), *timed_records(make_score)])
    students = [
        row(make_score, label, quality, 4 * dim, "float32", ms, dim=dim, hyperparameters={"output_dim": dim})
        for label, quality, dim, ms in (
            ("a", 80.0, 64, 4.0),
            ("b", 79.0, 32, 4.0),
            ("c", 78.0, 128, 1.0),
            ("d", 77.0, 256, 2.0),
        )
    ]
    board = leaderboard([timed_records(make_score)[0], *students])
    names = [line.split()[0] for line in student_table(board, front=True)[1:]]
    assert names == ["teacher", "b", "a", "c"], "d is beaten by c"
    assert len(student_table(board)) == len(names) + 2
    lines = terminal_summary([*timed_records(make_score), trial], Path("r"))
    assert any(line.startswith("Take layers, int8") for line in lines)
    assert any(line.startswith("    distilbench export r --student") for line in lines)


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


def test_rows_of_one_shape_have_one_search_time(make_score):
    """Code, dimensions, documents and machine decide it: the median of what was measured."""

    def took(record, ms):
        costs = [c.model_copy(update={"ms_per_1000_queries": ms}) for c in record.indexes]
        return record.model_copy(update={"indexes": costs})

    records = [took(make_score(name), ms) for name, ms in (("a", 10.0), ("b", 90.0), ("c", 12.0))]
    board = leaderboard([*records, took(make_score("d", dim=32), 70.0)])
    found = values(board, serving_costs(board))
    assert [found[name][1] for name in "abcd"] == [12.0, 12.0, 12.0, 70.0]


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


def forms(make_score, label, quality, codes=("float32", "int8"), **changes):
    sizes = {"float32": 256, "int8": 64, "int4": 32, "binary": 8}
    return [
        make_score(
            label,
            quality,
            record_id=f"{label} {code}",
            quantisation=code,
            bytes_per_vector=sizes[code],
            indexes=[],
            **changes,
        )
        for code in codes
    ]


def told(lines):
    return [(line.row.name, line.row.record.quantisation, len(line.codes), line.kind) for line in lines]


def test_codes_are_folded_and_references_stand_on_top(make_score):
    baseline = {"role": "baseline", "trial": None, "model": ""}
    records = [
        *forms(make_score, "worse", 70.0),
        *forms(make_score, "better", 75.0, trial=4),
        *forms(make_score, "PCA d=64", 74.0, method="pca", **baseline),
        *forms(make_score, "PCA d=32", 60.0, method="pca", **(baseline | {"dim": 32})),
        *forms(make_score, "random", 79.0, method="random_projection", **baseline),
        *forms(make_score, "teacher", 81.0, role="teacher", method="teacher", trial=None, model=""),
    ]
    lines = encoder_lines(leaderboard(records))
    assert told(lines) == [
        ("teacher", "float32", 1, "reference"),
        ("PCA d=64", "int8", 3, "reference"),
        ("better", "int8", 1, "encoder"),
        ("worse", "int8", 1, "encoder"),
        ("random", "int8", 1, "other"),
    ]
    assert sum(1 + len(line.codes) for line in lines) == len(records)


def test_the_form_that_stands_for_an_encoder_is_chosen_on_dev(make_score):
    devs = {"float32": 80.0, "int8": 70.0}
    apart = leaderboard([r for code, dev in devs.items() for r in forms(make_score, "s", 75.0, [code], dev=dev)])
    assert told(encoder_lines(apart)) == [("s", "float32", 1, "encoder")]
    # What is recommended stands for its encoder, whatever else there is.
    taken = [row for row in apart.rows if row.record.quantisation == "int8"]
    assert told(encoder_lines(apart, taken)) == [("s", "int8", 1, "encoder")]


def test_what_pca_keeps_stands_beside_a_trained_student(make_score):
    pca = {"role": "baseline", "method": "pca", "trial": None}
    records = [
        teacher(make_score),
        coded(make_score, "good", 80.0, "int8", 64, dim=64),
        coded(make_score, "PCA", 75.0, "int8", 64, dim=64, **pca),
        coded(make_score, "PCA, another code", 74.0, "float32", 256, dim=64, **pca),
        coded(make_score, "PCA, narrower", 73.0, "int8", 32, dim=32, **pca),
    ]
    board = leaderboard(records)
    kept = {row.name: f"{row.test.retention:.1f} %" for row in board.rows if row.test.retention is not None}
    assert kept["good"] > kept["PCA"] > kept["PCA, another code"]
    summary = answer(board).recommendations[0].summary
    assert f"keeps {kept['good']} of the teacher's" in summary
    assert f"PCA in the same code keeps {kept['PCA']} of the" in summary
    assert "PCA" not in answer(leaderboard([*records[:2], *records[3:]])).recommendations[0].summary
    baseline = answer(leaderboard([records[0], records[2]])).recommendations[0]
    assert baseline.row.name == "PCA" and "in the same code" not in baseline.summary
