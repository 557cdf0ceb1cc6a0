"""What a run says in the terminal at its end."""

from __future__ import annotations

import re
from pathlib import Path

from distilbench.records import ScoreRecord
from distilbench.reporting.board import leaderboard
from distilbench.reporting.exports import best_students, student_table, terminal_summary


def seeds(make_score, label: str, qualities: list[float], **changes: object) -> list[ScoreRecord]:
    records = [make_score(label, q, seed=s, record_id=f"{label}-{s}", **changes) for s, q in enumerate(qualities)]
    return [record.model_copy(update={"demonstration": False}) for record in records]


def board_records(make_score) -> list[ScoreRecord]:
    teacher = seeds(make_score, "teacher", [80.0], role="teacher", dim=384, model="", method="teacher", trial=None)
    return [
        *teacher,
        *seeds(make_score, "MCR2 d=64", [70.0, 72.0], dim=64, trial=3),
        *seeds(make_score, "MCR2 d=64, worse", [60.0], dim=64, trial=4),
        *seeds(make_score, "MCR2 d=32", [65.0], dim=32, trial=5),
        *seeds(make_score, "MCR2 d=32 codes", [90.0], dim=32, trial=5, quantisation="int8", bytes_per_vector=32),
        *seeds(make_score, "PCA d=64", [60.0], dim=64, role="baseline", method="pca", model="", trial=None),
    ]


def test_a_line_for_each_dimension_below_the_teacher(make_score) -> None:
    head, *lines = student_table(leaderboard(board_records(make_score)))
    cells = [re.split(r" {2,}", line) for line in lines]
    assert re.split(r" {2,}", head.strip()) == ["Bytes", "STS average", "Kept, %", "MRR@10", "ms / 1,000", "Dev"]
    assert [row[0] for row in cells] == ["teacher", "MCR2 d=32", "MCR2 d=64"]
    # Offsets of the synthetic sets: the dev score is quality + 4, the mean of the test sets 1.5 below the quality.
    teacher, narrow, wide = (row[1:] for row in cells)
    assert (teacher[1], teacher[2], teacher[-1]) == ("78.50", "100.0", "84.00")
    assert narrow[:4] == ["128", "63.50", "80.9", "45.00"] and narrow[-1] == "69.00"
    assert wide[1] == "69.50 ± 12.71" and wide[2].startswith("88.5 ± ") and wide[-1].startswith("75.00 ± ")
    assert all(len(line) <= 120 for line in lines)


def test_trained_for_a_code_it_is_the_code_that_stands_for_the_student(make_score) -> None:
    params = {"output_dim": 64, "bits": 4}
    own = seeds(make_score, "own", [70.0], dim=64, hyperparameters=params, quantisation="int4", bytes_per_vector=32)
    whole = seeds(make_score, "whole", [80.0], dim=64, hyperparameters=params)
    other = {"output_dim": 32, "bits": 8}
    rival = seeds(make_score, "rival", [69.0], hyperparameters=other, dim=32, quantisation="int8", bytes_per_vector=32)
    assert [row.name for row in best_students(leaderboard([*own, *whole, *rival]))] == ["own"]


def test_what_to_take_says_what_it_keeps_and_how_to_export_it(make_score) -> None:
    records = board_records(make_score)
    board, lines = leaderboard(records), terminal_summary(records, Path("runs/my run"))
    best = next(row for row in board.rows if row.name == "MCR2 d=32 codes")
    assert lines[0] == "" and not any("demonstration" in line for line in lines)
    sentence = "Take MCR2 d=32 codes, int8: keeps 112.7 % of the teacher's STS average"
    assert any(line.startswith(sentence) for line in lines)
    command = f"distilbench export 'runs/my run' --student {best.anchor} --to DIR"
    assert f"    {command}" in lines
    generated = [r.model_copy(update={"demonstration": True}) for r in records]
    assert "Scores are on the demonstration corpus, no benchmark." in terminal_summary(generated, Path("r"))
