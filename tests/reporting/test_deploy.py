"""How a search over quality, speed and bytes ends in the terminal: with its front, and five needs in five lines."""

from __future__ import annotations

from pathlib import Path

from distilbench.records import EncoderCost, ScoreRecord
from distilbench.reporting.closing import closing_lines, student_table
from distilbench.reporting.deploy import deploy_lines, deployed, is_front
from distilbench.reporting.table import leaderboard


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
    # Of so many dev pairs any two scores can be told apart.
    scores = [s.model_copy(update={"n": 10**6}) for s in record.scores]
    return record.model_copy(update={"scores": scores, "demonstration": False})


def records(make_score) -> list[ScoreRecord]:
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
    found = {one.need: one for one in deployed(leaderboard(records(make_score)))}
    assert {need: one.row.name if one.row else None for need, one in found.items()} == {
        "Best quality": "head",
        "Smallest vectors that keep 95 %": "small head",
        "Fastest that keeps 95 %": "static",
        "Smallest model that keeps 95 %": "static table",
        "In 64 bytes and 10 times as fast": "static",
    }
    fastest = found["Fastest that keeps 95 %"]
    assert fastest.row is not None
    assert fastest.text() == (
        f"Fastest that keeps 95 %: static, int8 ({fastest.row.anchor}): keeps 96.2 %, 64 bytes, "
        "50,000 sentences/s (200 times the teacher's), 30 MB on disk"
    )


def test_a_row_that_keeps_less_on_test_says_what_it_keeps_on_dev(make_score) -> None:
    teacher, head = records(make_score)[:2]
    scores = [s.model_copy(update={"value": s.value - 5}) if s.split == "test" else s for s in head.scores]
    board = leaderboard([teacher, head.model_copy(update={"scores": scores})])
    found = {one.need: one.text() for one in deployed(board)}["Smallest vectors that keep 95 %"]
    assert "keeps 93.6 % (99.9 % on dev), 128 bytes" in found


def test_a_need_that_nothing_serves_says_so(make_score) -> None:
    teacher, head = records(make_score)[:2]
    board = leaderboard([teacher, head.model_copy(update={"cost": None})])
    lines = deploy_lines(board, Path("runs/my run"))
    assert lines[3:5] == ["Smallest model that keeps 95 %: none", "In 64 bytes and 10 times as fast: none"]
    assert lines[5:] == ["    distilbench export 'runs/my run' --student ROW --to DIR, with the ROW in brackets"]
    assert deployed(leaderboard([teacher])) == () and deploy_lines(leaderboard([teacher]), Path("r")) == []


def test_a_search_over_several_objectives_ends_with_its_front_and_five_lines(make_score, make_trial) -> None:
    trial = make_trial(0, values={"quality": 80.0, "bytes": 64.0})
    assert is_front([trial]) and not is_front([make_trial(0), *records(make_score)])
    students = [
        row(make_score, label, quality, 4 * dim, "float32", ms, dim=dim, hyperparameters={"output_dim": dim})
        for label, quality, dim, ms in (
            ("a", 80.0, 64, 4.0),
            ("b", 79.0, 32, 4.0),
            ("c", 78.0, 128, 1.0),
            ("d", 77.0, 256, 2.0),
        )
    ]
    board = leaderboard([records(make_score)[0], *students])
    names = [line.split()[0] for line in student_table(board, front=True)[1:]]
    assert names == ["teacher", "b", "a", "c"], "d is beaten by c"
    assert len(student_table(board)) == len(names) + 2
    lines = closing_lines([*records(make_score), trial], Path("r"))
    assert lines[-6].startswith("Best quality: head") and lines[-1].startswith("    distilbench export r --student ROW")
    assert not any(line.startswith("Take ") for line in lines)
    assert any(line.startswith("Take ") for line in closing_lines(records(make_score), Path("r")))
