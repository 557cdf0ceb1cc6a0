"""Several runs' records as one list."""

from __future__ import annotations

import json

import pytest

from distilbench.errors import InputError
from distilbench.records import append_records
from distilbench.reporting.runs import latest_scores, read_runs, run_folders


def test_every_seed_quantisation_and_configuration_of_a_run_is_read(make_seeded, tmp_path):
    records = make_seeded()
    append_records(tmp_path / "scores.jsonl", [r for r in records if r.kind == "score"])
    append_records(tmp_path / "trials.jsonl", [r for r in records if r.kind == "trial"])
    assert read_runs([tmp_path]) == records


def test_a_student_chosen_anew_replaces_the_ones_before(make_score, tmp_path):
    old = [make_score("s", 70.0, seed=seed, record_id=f"old {seed}", trial=1) for seed in (0, 1)]
    # more trials: another choice, with other hyper-parameters and maybe another label
    new = make_score("s (noise)", 72.0, record_id="new", trial=5, hyperparameters={"lr": 2e-4})
    # the same trial, when it was not finished yet
    early = make_score("s", 60.0, record_id="early", trial=5, configuration="trial 5, interrupted after step 50")
    teacher = make_score("t", 80.0, role="teacher", trial=None, record_id="t")
    append_records(tmp_path / "scores.jsonl", [teacher, *old, early, new])

    def write_chosen(*trials: int, configuration: str = "") -> None:
        chosen = [{"trial": t, "configuration": configuration} for t in trials]
        (tmp_path / "confirmed.json").write_text(json.dumps({"64": chosen}))

    assert len(latest_scores(tmp_path)) == 5  # killed before the choice was written
    write_chosen(5)
    assert [r.record_id for r in latest_scores(tmp_path)] == ["t", "new"]
    write_chosen(5, configuration=early.configuration)
    assert [r.record_id for r in latest_scores(tmp_path)] == ["t", "early"]
    write_chosen(1, 5)
    assert [r.record_id for r in latest_scores(tmp_path)] == ["t", "old 0", "old 1", "new"]
    (tmp_path / "confirmed.json").write_text('{"64": [')
    with pytest.raises(InputError, match=r"confirmed\.json: not JSON .*the run's command, repeated, writes it again"):
        latest_scores(tmp_path)


def test_a_folder_of_several_runs_stands_for_them(make_score, tmp_path):
    for method in ("mcr2", "hpd"):
        append_records(tmp_path / "all" / method / "scores.jsonl", [make_score("s", run=f"all/{method}")])
    (tmp_path / "all" / "notes").mkdir()
    (tmp_path / "other").mkdir()
    folders = [tmp_path / "all" / "hpd", tmp_path / "all" / "mcr2"]
    assert run_folders([tmp_path / "all"]) == folders
    assert run_folders([tmp_path / "all", folders[0], tmp_path / "other"]) == [*folders, tmp_path / "other"]
    assert [r.run for r in read_runs([tmp_path / "all"])] == ["all/hpd", "all/mcr2"]
    # A run that was extended has the run before it inside, which is no part of it.
    append_records(folders[0] / "before-1" / "scores.jsonl", [make_score("s", run="all/hpd")])
    assert run_folders([folders[0]]) == [folders[0]]


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


def test_a_teacher_among_other_documents_is_another(make_score, tmp_path):
    """Shares of its score would be of another search."""
    for run in ("few", "all", "again"):
        documents = "all" if run == "again" else run
        sets = {"STS12/test": "a", "retrieval/quora/test": documents}
        append_records(
            tmp_path / run / "scores.jsonl", [make_score("t", record_id=run, run=run, role="teacher", sets=sets)]
        )
    read = read_runs([tmp_path / "few", tmp_path / "all", tmp_path / "again"])
    assert [r.record_id for r in read] == ["few", "all"]


def test_a_folder_without_scores_is_named(tmp_path):
    with pytest.raises(InputError, match=str(tmp_path)):
        read_runs([tmp_path])
