"""Sweeps end to end on a small data folder, and what is left of them when something is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driver import kill_driver
from run_command import LONG, Command, make_sweep, scored, told, wait_for

KINDS = {"float32", "int8", "int4", "binary"}


def assert_whole(sweep: Command, trials: int) -> None:
    """Exactly `trials` finished trials, study and records agreeing, one row per encoder, nothing half-written."""
    study = sweep.study()
    assert [t.number for t in study.trials] == list(range(trials))
    assert all(t.state.is_finished() for t in study.trials)
    records = sweep.trials()
    assert sorted(r.number for r in records) == list(range(trials))
    for record in records:
        trial = study.trials[record.number]
        assert record.state == trial.state.name and not record.confirms
        assert record.params == trial.user_attrs["params"]
        assert {k: v for k, v in record.params.items() if k in trial.params} == trial.params
        assert [r.rung for r in record.rungs] == [0, *sorted(trial.intermediate_values)]
    chosen = json.loads((sweep.run / "confirmed.json").read_text())
    best = {
        d: max((r for r in records if r.dim == d and r.state == "COMPLETE"), key=lambda r: (r.objective, -r.number))
        for d in (4, 8)
    }
    assert {int(size): [item["trial"] for item in own] for size, own in chosen.items()} == {
        4 * d: [r.number] for d, r in best.items()
    }
    # Each chosen one was trained again with the second seed, of the same settings.
    confirmations = {(r.number, r.seed): r for r in sweep.confirmations()}
    assert len(confirmations) == len(sweep.confirmations())
    for record in best.values():
        again = confirmations[record.number, 1]
        assert again.confirms and (again.params, again.state) == (record.params, "COMPLETE")
    # Teacher; PCA, random projection and student at two dimensions, the student with two seeds; each also quantised.
    rows = [(s.label, s.quantisation, s.seed) for s in sweep.scores() if (s.trial, s.role) in shown(best)]
    assert len(rows) == len(set(rows)) == 9 * 4
    assert {kind for _, kind, _ in rows} == KINDS
    assert len({s.record_id for s in sweep.scores()}) == len(sweep.scores())
    for record in sweep.scores():
        assert record.role != "student" or (sweep.run / record.model / "modules.json").exists()
    assert sweep.leftovers() == []
    assert len(sweep.page()) > 10_000


def shown(best: dict[int, object]) -> set[tuple[int | None, str]]:
    return {(None, "teacher"), (None, "baseline"), *((r.number, "student") for r in best.values())}  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sweep_repeats_resumes_and_grows(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> None:
    from samples import sts_scores
    from sentence_transformers import SentenceTransformer

    from distilbench.data.folder import Limits, folder_corpus

    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 40)
    out = sweep.finish()
    assert "not found  sts/STS13" in out and "sts/STS12.OnWN.tsv: 30 pairs (test)" in out
    assert out.rstrip().endswith(str(tmp_path / "reports" / "r" / "index.html"))
    assert_whole(sweep, 6)
    states = {r.state for r in sweep.trials()}
    assert "COMPLETE" in states and "PRUNED" in states
    paper = sorted((r for r in sweep.trials() if r.number < 2), key=lambda r: r.number)
    assert [(r.dim, r.params["lambda"]) for r in paper] == [(4, 1), (8, 1)]
    assert "confirmed with 2 seeds" in sweep.page()

    # The saved student reproduces the reported score with sentence-transformers alone.
    corpus = folder_corpus(data_folder, Limits())
    for record in sweep.scores():
        if record.role == "student" and record.quantisation == "float32":
            model = SentenceTransformer(str(sweep.run / record.model), device="cpu")
            outside = sts_scores(lambda rows, m=model: m.encode([corpus.sentences[i] for i in rows]), corpus.sts)
            inside = [s for s in record.scores if s.task == "sts"]
            assert [s.value for s in outside] == pytest.approx([s.value for s in inside], abs=0.6)

    before = sweep.files()
    again = sweep.done()
    assert ": 0 of " in again and "encoded now" in again
    assert sweep.files() == before

    sweep.done("--trials", "8")
    assert_whole(sweep, 8)
    assert all(sweep.files()[name].startswith(content) for name, content in before.items())

    assert "seed: 0 there, 1 now" in sweep.refused("--seed", "1")
    assert len(sweep.trials()) == 8


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_driver_killed_in_the_search_and_in_the_confirmation_changes_nothing(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, whole: Command
) -> None:
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, LONG)
    driver = sweep.start()
    try:
        wait_for(
            lambda: ((sweep.run / "trials.jsonl").exists() and len(sweep.trials()) >= 2) or driver.poll() is not None
        )
        # in the middle of a trial that has a checkpoint
        wait_for(lambda: list(sweep.run.glob("trials/*/rung-1.safetensors")) or driver.poll() is not None)
        assert driver.poll() is None, sweep.log()
        kill_driver(driver)
    finally:
        driver.kill()
    finished = {r.number: r for r in sweep.trials()}
    running = [t.number for t in sweep.study().trials if t.state.name == "RUNNING"]
    assert 2 <= len(finished) < 6 and running
    driver = sweep.start()
    try:
        wait_for(lambda: (sweep.run / "confirmations.jsonl").exists() or driver.poll() is not None)
        assert driver.poll() is None, sweep.log()
        kill_driver(driver)
    finally:
        driver.kill()
    assert len(sweep.trials()) == 6 and 1 <= len(sweep.confirmations()) <= 2
    assert not (sweep.run / "confirmed.json").exists()
    sweep.done()
    assert_whole(sweep, 6)
    now = {r.number: r for r in sweep.trials()}
    assert all(now[number] == record for number, record in finished.items())
    assert told(sweep.trials()) == told(whole.trials())
    assert told(sweep.confirmations()) == told(whole.confirmations())
    assert scored(sweep.scores()) == scored(whole.scores())
