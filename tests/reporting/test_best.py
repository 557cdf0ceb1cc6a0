"""The best student under a budget: chosen on dev, one definition for the page's table and for the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.records import append_records
from distilbench.reporting import page
from distilbench.reporting.budget import ServingBudget, best_under, budget_rows
from distilbench.reporting.table import leaderboard


def with_dev(record, value):
    """The same record with another dev score."""
    scores = [s.model_copy(update={"value": value}) if s.split == "dev" else s for s in record.scores]
    return record.model_copy(update={"scores": scores})


@pytest.fixture
def records(make_score):
    """Students of 8 to 300 bytes; "lucky" and the baseline are better on test than any that dev prefers."""
    return [
        make_score("teacher", 82.0, role="teacher", dim=384, model=""),
        with_dev(make_score("bits", 60.0, dim=64, bytes_per_vector=8, quantisation="binary"), 60.0),
        with_dev(make_score("lucky", 90.0, dim=32, bytes_per_vector=32, quantisation="int8"), 65.0),
        with_dev(make_score("sound", 70.0, dim=24, bytes_per_vector=24, quantisation="int8", latency_ms=0.5), 70.0),
        with_dev(make_score("large", 75.0, dim=75, bytes_per_vector=300, latency_ms=0.25), 75.0),
        with_dev(make_score("baseline", 99.0, dim=8, bytes_per_vector=8, role="baseline"), 99.0),
    ]


def test_dev_chooses_within_every_limit(records):
    board = leaderboard(records)

    def chosen(**limits):
        row = best_under(board, ServingBudget(**limits))
        return row and row.name

    assert chosen() == "large"
    assert chosen(bytes_per_vector=300) == "large" and chosen(bytes_per_vector=299) == "sound"
    assert chosen(bytes_per_vector=23) == "bits" and chosen(bytes_per_vector=7) is None
    assert chosen(dim=32) == "sound" and chosen(dim=23) is None
    assert chosen(latency_ms=0.25) == "large" and chosen(latency_ms=0.2) is None
    assert chosen(latency_ms=0.5, bytes_per_vector=64) == "sound"  # those that were not timed are over every limit


def test_of_equal_dev_scores_the_smaller_is_taken(make_score):
    rows = [with_dev(make_score(name, dim=dim), 70.0) for name, dim in (("b", 64), ("a", 64), ("small", 32))]
    assert best_under(leaderboard(rows), ServingBudget()).name == "small"
    assert best_under(leaderboard(rows[:2]), ServingBudget()).name == "a"


def test_dev_is_the_mean_over_seeds(make_score):
    steady = [with_dev(make_score("steady", seed=s, record_id=f"s{s}"), 70.0) for s in (0, 1)]
    wild = [with_dev(make_score("wild", seed=s, record_id=f"w{s}"), dev) for s, dev in ((0, 90.0), (1, 40.0))]
    assert best_under(leaderboard([*steady, *wild]), ServingBudget()).name == "steady"


def test_budgets_are_powers_of_two_and_a_choice_is_named_once(records):
    board = leaderboard(records)
    rows = budget_rows(board)
    assert [(found.bytes, found.row.name) for found in rows] == [(8, "bits"), (32, "sound"), (512, "large")]
    assert rows[1].dev.value == 70.0 and rows[1].test.value == pytest.approx(68.5)
    assert rows[1].test.retention == pytest.approx(100 * 68.5 / 80.5) and rows[1].latency_ms == 0.5
    assert [(row.bytes, best_under(board, ServingBudget(row.bytes)).name) for row in rows] == [
        (row.bytes, row.row.name) for row in rows
    ]
    assert budget_rows(leaderboard([r for r in records if r.role != "student"])) == ()


def test_budgets_are_within_each_corpus(records, make_score):
    other = make_score("elsewhere", 99.0, dim=4, corpus_fingerprint="e" * 64, corpus="another")
    rows = budget_rows(leaderboard([*records, other]))
    assert sorted((row.bytes, row.row.name) for row in rows) == [
        (8, "bits"),
        (16, "elsewhere"),
        (32, "sound"),
        (512, "large"),
    ]


def test_the_page_has_the_table(records):
    text = page.render_page(records, leaderboard(records), title="Synthetic")
    (table,) = re.findall(r'<table id="budgets".*?</table>', text, re.S)
    rows = [
        " ".join(re.sub("<[^>]+>", " ", row).split())
        for row in re.findall(r'<tr class="student">.*?</tr>', table, re.S)
    ]
    assert rows == [
        "bits 8 8 64 binary — 60.00 58.50 72.7",
        "sound 32 24 24 int8 0.5 70.00 68.50 85.1",
        "large 512 300 75 float32 0.25 75.00 73.50 91.3",
    ]
    assert "Best student under a budget" not in page.render_page([], leaderboard([]), title="Empty")


@pytest.fixture
def run(make_seeded, tmp_path):
    """A run of three seeds; students of 4 to 512 bytes, and a record of each seed's model."""
    append_records(tmp_path / "run" / "scores.jsonl", make_seeded()[:-3])
    return tmp_path / "run"


def best(*arguments):
    return CliRunner().invoke(app, ["best", *map(str, arguments)])


def test_the_command_names_the_student_its_models_and_the_teacher(run, tmp_path):
    result = best(run, "--bytes", 64, "--json", tmp_path / "best.json")
    assert result.exit_code == 0, result.output
    text = result.output
    assert text.startswith("MCR2-32-int8, int8 (chosen on dev)\n")
    assert "bytes per vector  32\n" in text and "dimensions        32\n" in text
    # quality 69, minus 1.5 in the mean of the test sets, plus 4 in dev; seeds are one apart
    assert "dev               73.00\n" in text
    assert "test average      67.50 ± 2.48 (3 seeds), 84.9 % of the teacher's: STS12, STS13, STS14, STSB\n" in text
    assert "Teacher teacher d=384\n  bytes per vector  1,536\n" in text and "test average      79.50 (1 seed): " in text
    assert "latency" not in text
    for seed in range(3):
        assert f"MCR2-32-int8-seed{seed}\n" in text and str(run / f"students/MCR2-32-int8-seed{seed}") in text

    found = json.loads((tmp_path / "best.json").read_text())
    assert found["budget"] == {"bytes_per_vector": 64, "latency_ms": None, "dim": None}
    assert found["student"]["test_average"] == pytest.approx(67.5) and found["student"]["test_seeds"] == 3
    assert [seed["dev"] for seed in found["student"]["seeds"]] == [72.0, 73.0, 74.0]
    assert found["teacher"]["bytes_per_vector"] == 1536
    assert found["model"] == str(run / "students/MCR2-32-int8-seed2")  # the seed with the highest dev score


def test_what_it_says_of_loading_works(make_score, tmp_path, encoder_folder):
    """A student of several widths, of which the first 8 numbers are kept as bits."""
    from distilbench.evaluation.quantisation import Binary

    student = tmp_path / "run" / "students" / 'a "quoted" name'
    shutil.copytree(encoder_folder, student)
    calibration = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    Binary.calibrate(calibration).save(student / "d8")
    record = make_score(
        "nested", dim=8, bytes_per_vector=1, quantisation="binary", hyperparameters={"output_dim": 32, "halvings": 2}
    )
    record = record.model_copy(update={"model": f"students/{student.name}"})
    append_records(tmp_path / "run" / "scores.jsonl", [record])
    result = best(tmp_path / "run", "--json", tmp_path / "best.json")
    assert result.exit_code == 0, result.output
    names: dict = {}
    exec(json.loads((tmp_path / "best.json").read_text())["load"], names)
    assert names["vectors"].shape == (2, 8) and names["codes"].shape == (2, 1)
    assert "truncate_dim=8" in result.output


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            ("--bytes", 3),
            "at most 3 bytes per vector: no student is within it; the smallest has 4 bytes (MCR2-32-binary, binary)",
        ),
        (("--dim", 16), "at most 16 dimensions: no student is within it; "),
        (
            ("--bytes", 4, "--latency", 0.5),
            "at most 4 bytes per vector and 0.5 ms per sentence: no student is within it; ",
        ),
    ],
)
def test_nothing_within_the_budget(run, limits, message):
    result = best(run, *limits)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"error: {message}") and result.stderr.count("\n") == 1
    assert "the narrowest 32 dimensions" in result.stderr and "no latency was measured" in result.stderr


def test_the_fastest_is_told_where_latency_was_measured(records, tmp_path):
    append_records(tmp_path / "scores.jsonl", records)
    assert "latency           0.25 ms per sentence\n" in best(tmp_path, "--latency", 0.3).output
    assert "the fastest takes 0.25 ms (large)" in best(tmp_path, "--latency", 0.1).stderr


def test_the_best_of_several_runs_is_found_in_its_own_folder(make_score, tmp_path):
    for name, quality in (("a", 70.0), ("b", 75.0)):
        record = make_score("s", quality, run="one name", record_id=name, trial=None)
        append_records(tmp_path / name / "scores.jsonl", [record.model_copy(update={"label": name})])
    found = best(tmp_path / "a", tmp_path / "b").output
    assert found.startswith("b (chosen on dev)") and str(tmp_path / "b" / "students/s") in found


def test_runs_of_several_corpora_or_without_students_are_refused(make_score, tmp_path):
    append_records(tmp_path / "a" / "scores.jsonl", [make_score("s")])
    other = make_score("s", record_id="other", corpus_fingerprint="e" * 64, corpus="another")
    append_records(tmp_path / "b" / "scores.jsonl", [other])
    append_records(tmp_path / "c" / "scores.jsonl", [make_score("t", role="teacher")])
    mixed = best(tmp_path / "a", tmp_path / "b")
    assert mixed.exit_code == 2 and "are of 2 corpora" in mixed.stderr and "another of synthetic" in mixed.stderr
    assert "no student with a dev score" in best(tmp_path / "c").stderr
    assert "no scores.jsonl" in best(tmp_path / "d").stderr


def test_a_student_without_a_model_is_still_named(make_score, tmp_path):
    append_records(tmp_path / "scores.jsonl", [make_score("s", model="")])
    result = best(tmp_path)
    assert result.exit_code == 0 and "no model is kept" in result.output and "To load it" not in result.output


def test_choosing_needs_no_torch(run):
    """Importing it takes seconds."""
    code = "import sys; from distilbench.cli import app; app(sys.argv[1:], standalone_mode=False); "
    code += "sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "best", str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
