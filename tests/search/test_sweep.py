"""Sweeps end to end on a small data folder, and what is left of them when something is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from run_command import ROOT, Command, kill_driver, wait_for, workers

SPACE = """
method: mcr2
budget: {{trials: 6, steps: {steps}, rungs: 3, eta: 2}}
parameters:
  output_dim: {{choices: [4, 8]}}
  lambda: {{low: 0.1, high: 2, log: true, paper: 1}}
  lr: {{low: 0.0001, high: 0.01, log: true}}
fixed: {{batch_size: 16, clusters: 4}}
"""

HPD_SPACE = """
method: hpd
budget: {trials: 4, steps: 30, rungs: 2, eta: 2}
parameters:
  lr: {low: 0.0001, high: 0.01, log: true, paper: 0.001}
  activation: {choices: [identity, tanh]}
fixed: {output_dim: 8, batch_size: 16, epochs: 3}
"""


def make_sweep(folder: Path, data: Path, encoder: Path, store: Path, steps: int) -> Command:
    """The command of a sweep of mcr2 over six trials."""
    (folder / "space.yaml").write_text(SPACE.format(steps=steps))
    return Command("sweep", folder, data, encoder, store, "--method", "mcr2", "--space", str(folder / "space.yaml"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact store for all these sweeps: they use the same teacher on the same corpus."""
    return tmp_path_factory.mktemp("store")


def assert_whole(sweep: Command, trials: int) -> None:
    """Exactly `trials` finished trials, study and records agreeing, one row per encoder, nothing half-written."""
    study = sweep.study()
    assert [t.number for t in study.trials] == list(range(trials))
    assert all(t.state.is_finished() for t in study.trials)
    records = sweep.trials()
    assert sorted(r.number for r in records) == list(range(trials))
    for record in records:
        trial = study.trials[record.number]
        assert record.state == trial.state.name
        assert {k: v for k, v in record.params.items() if k in trial.params} == trial.params
        assert [r.rung for r in record.rungs] == sorted(trial.intermediate_values)
    # Teacher; PCA, random projection and student at two dimensions; each also quantised.
    rows = [(s.label, s.quantisation) for s in sweep.scores()]
    assert len(rows) == len(set(rows)) == 7 * 3
    assert {kind for _, kind in rows} == {"float32", "int8", "binary"}
    assert sweep.leftovers() == []
    assert (sweep.folder / "reports" / "r" / "index.html").stat().st_size > 10_000


@pytest.mark.timeout(1200)
def test_a_sweep_repeats_resumes_and_grows(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    from distilbench.data.folder import Limits, folder_corpus
    from distilbench.evaluation.sts import sts_scores

    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, steps=40)
    out = sweep.finish()
    assert "not found  sts/STS13" in out and "sts/STS12.OnWN.tsv: 30 pairs (test)" in out
    assert out.rstrip().endswith(str(tmp_path / "reports" / "r" / "index.html"))
    assert_whole(sweep, 6)
    states = {r.state for r in sweep.trials()}
    assert "COMPLETE" in states and "PRUNED" in states
    paper = [r for r in sweep.trials() if r.number < 2]
    assert [(r.dim, r.params["lambda"]) for r in paper] == [(4, 1), (8, 1)]

    # The saved student reproduces the reported score with sentence-transformers alone.
    corpus = folder_corpus(data_folder, Limits())
    for record in sweep.scores():
        if record.role == "student" and record.quantisation == "float32":
            model = SentenceTransformer(str(sweep.run / record.model), device="cpu")
            outside = sts_scores(lambda rows, m=model: m.encode([corpus.sentences[i] for i in rows]), corpus.sts)
            inside = [s for s in record.scores if s.task == "sts"]
            assert [s.value for s in outside] == pytest.approx([s.value for s in inside], abs=0.6)

    before = sweep.files()
    again = sweep.finish()
    assert ": 0 of " in again and "encoded now" in again
    assert sweep.files() == before

    sweep.finish("--trials", "8")
    assert len(sweep.trials()) == 8 and len(sweep.study().trials) == 8

    other = subprocess.run([*sweep.command, "--seed", "1"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert other.returncode == 2
    assert "seed: 0 there, 1 now" in other.stderr
    assert len(sweep.trials()) == 8


@pytest.mark.timeout(1200)
def test_a_killed_driver_loses_and_repeats_nothing(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path
) -> None:
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, steps=900)
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
    sweep.finish()
    assert_whole(sweep, 6)
    now = {r.number: r for r in sweep.trials()}
    assert all(now[number] == record for number, record in finished.items())


@pytest.mark.timeout(1200)
def test_a_killed_worker_is_retried_from_its_checkpoint(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path
) -> None:
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, steps=900)
    driver = sweep.start()
    try:
        wait_for(lambda: list(sweep.run.glob("trials/*/rung-1.safetensors")) or driver.poll() is not None)
        victims = workers(driver.pid, "MCR2")
        assert victims, sweep.log()
        os.kill(victims[0].pid, signal.SIGKILL)
        assert driver.wait(timeout=600) == 0, sweep.log()
    finally:
        driver.kill()
    assert_whole(sweep, 6)
    assert {r.state for r in sweep.trials()} <= {"COMPLETE", "PRUNED"}


@pytest.mark.timeout(1200)
def test_the_same_sweep_twice_at_once_is_refused(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path
) -> None:
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, steps=40)
    driver = sweep.start()
    try:
        wait_for(lambda: (sweep.run / "config.json").exists() or driver.poll() is not None)
        second = subprocess.run(sweep.command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert second.returncode == 2 and "another process is running this sweep" in second.stderr
        assert driver.wait(timeout=600) == 0, sweep.log()
    finally:
        driver.kill()
    assert_whole(sweep, 6)
    assert json.loads((sweep.run / "config.json").read_text())["trials"] == 6


@pytest.mark.timeout(1200)
def test_hpd_trains_an_encoder_of_its_own(tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from distilbench.data.folder import Limits, folder_corpus
    from distilbench.evaluation.sts import sts_scores

    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, steps=30)
    (tmp_path / "space.yaml").write_text(HPD_SPACE)
    sweep.command[sweep.command.index("mcr2")] = "hpd"
    sweep.finish("--student", "layers:0,3")
    assert len(sweep.trials()) == 4
    best, *quantised = [s for s in sweep.scores() if s.role == "student"]
    assert [s.quantisation for s in (best, *quantised)] == ["float32", "int8", "binary"]
    assert best.start == f"{encoder_folder.name} layers:0,3" and best.dim == 8
    model = SentenceTransformer(str(sweep.run / best.model), device="cpu")
    assert best.parameters == sum(p.numel() for p in model.parameters())
    corpus = folder_corpus(data_folder, Limits())
    outside = sts_scores(lambda rows: model.encode([corpus.sentences[i] for i in rows]), corpus.sts)
    inside = [s.value for s in best.scores if s.task == "sts"]
    assert [s.value for s in outside] == pytest.approx(inside, abs=0.6)  # stored vectors are float16; 30 pairs a set
