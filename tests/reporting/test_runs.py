"""Several runs' records as one list."""

from __future__ import annotations

import pytest

from distilbench.errors import InputError
from distilbench.records import append_records
from distilbench.reporting.runs import latest_scores, read_runs


def test_every_seed_quantisation_and_configuration_of_a_run_is_read(make_seeded, tmp_path):
    records = make_seeded()
    append_records(tmp_path / "scores.jsonl", [r for r in records if r.kind == "score"])
    append_records(tmp_path / "trials.jsonl", [r for r in records if r.kind == "trial"])
    assert read_runs([tmp_path]) == records


def test_a_student_chosen_anew_replaces_its_own_seed_only(make_score, tmp_path):
    old = [make_score("s", 70.0, seed=seed, record_id=f"old {seed}", trial=1) for seed in (0, 1)]
    # more trials: another choice, with other hyper-parameters and maybe another label
    new = make_score("s (noise)", 72.0, record_id="new", trial=5, hyperparameters={"lr": 2e-4})
    append_records(tmp_path / "scores.jsonl", [*old, new])
    assert [r.record_id for r in latest_scores(tmp_path)] == ["new", "old 1"]


def test_a_baseline_of_several_runs_is_the_first_runs_with_all_its_seeds(make_score, tmp_path):
    for run in ("a", "b"):
        records = [
            make_score("Random", seed=seed, record_id=f"{run}{seed}", run=run, role="baseline", method="random")
            for seed in (0, 1)
        ]
        append_records(
            tmp_path / run / "scores.jsonl", [*records, make_score("s", record_id=f"{run} student", run=run)]
        )
    read = read_runs([tmp_path / "a", tmp_path / "b"])
    assert [r.record_id for r in read] == ["a0", "a1", "a student", "b student"]


def test_a_folder_without_scores_is_named(tmp_path):
    with pytest.raises(InputError, match=str(tmp_path)):
        read_runs([tmp_path])
