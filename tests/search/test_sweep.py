"""Sweeps end to end on a small data folder, and what is left of them when something is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from driver import kill_driver
from run_command import LONG, SPACE, Command, make_sweep, scored, told, wait_for, workers

from distilbench.commands.status import run_statuses

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
    out = sweep.done()
    assert "not found  sts/STS13" in out and "sts/STS12.OnWN.tsv: 30 pairs (test)" in out
    assert out.rstrip().endswith(str(tmp_path / "reports" / "r" / "index.html"))
    assert_whole(sweep, 6)
    states = {r.state for r in sweep.trials()}
    assert "COMPLETE" in states and "PRUNED" in states
    paper = sorted((r for r in sweep.trials() if r.number < 2), key=lambda r: r.number)
    assert [(r.dim, r.params["lambda"]) for r in paper] == [(4, 1), (8, 1)]
    assert "confirmed with 2 seeds" in (sweep.folder / "reports" / "r" / "leaderboard.csv").read_text()

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


@contextmanager
def running(sweep: Command, status: int = 0) -> Iterator[subprocess.Popen[str]]:
    """The command from its start to its end with that exit status, after which no process of it is left."""
    driver = sweep.start()
    family: dict[int, psutil.Process] = {}
    try:
        yield driver
        if driver.poll() is None:
            family |= {p.pid: p for p in psutil.Process(driver.pid).children(recursive=True)}
        assert driver.wait() == status, sweep.log()
    finally:
        driver.kill()
        _, left = psutil.wait_procs(list(family.values()), timeout=30)
        assert [p.cmdline() for p in left if p.status() != psutil.STATUS_ZOMBIE] == []


def wait_while(driver: subprocess.Popen[str], sweep: Command, condition: object) -> None:
    wait_for(lambda: driver.poll() is not None or condition())  # type: ignore[operator]
    assert driver.poll() is None, sweep.log()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_driver_that_is_interrupted_or_killed_changes_nothing(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, whole: Command
) -> None:
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, LONG)

    def interrupt(stage: str, sent: signal.Signals) -> None:
        def reached() -> bool:
            (run,) = run_statuses(sweep.run) if (sweep.run / "config.json").exists() else [None]
            at = run is not None and run.progress is not None and run.progress.stage == stage
            return at and (sweep.run / "trials.jsonl").exists() and bool(sweep.trials())

        with running(sweep, status=128 + sent) as driver:
            wait_while(driver, sweep, reached)
            before = sweep.scores()
            driver.send_signal(sent)
        [last] = [line for line in sweep.log().splitlines() if line.startswith("interrupted")][-1:]
        assert last.startswith("interrupted; to go on: python -m platform.sweep --method mcr2 --space ")
        assert sweep.scores() == before
        (status,) = run_statuses(sweep.run)
        first, *_ = map(str, status.lines())
        assert first.endswith("ago; the same command goes on") and "interrupted" in first

    interrupt("search", signal.SIGTERM)
    driver = sweep.start()
    try:
        wait_while(driver, sweep, lambda: len(sweep.trials()) >= 2)
        # in the middle of a trial that has a checkpoint
        wait_while(driver, sweep, lambda: list(sweep.run.glob("trials/*/rung-1.safetensors")))
        kill_driver(driver)
    finally:
        driver.kill()
    finished = {r.number: r for r in sweep.trials()}
    unfinished = [t.number for t in sweep.study().trials if t.state.name == "RUNNING"]
    assert 2 <= len(finished) < 6 and unfinished
    interrupt("confirm", signal.SIGINT)
    assert len(sweep.trials()) == 6 and len(sweep.confirmations()) <= 2
    assert not (sweep.run / "confirmed.json").exists() and "Traceback" not in sweep.log()
    sweep.done()
    assert_whole(sweep, 6)
    now = {r.number: r for r in sweep.trials()}
    assert all(now[number] == record for number, record in finished.items())
    assert told(sweep.trials()) == told(whole.trials())
    assert told(sweep.confirmations()) == told(whole.confirmations())
    assert scored(sweep.scores()) == scored(whole.scores())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_and_then_a_node_are_killed(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path
) -> None:
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = machines.add_node(num_cpus=1)
        sweep = make_sweep(
            tmp_path, data_folder, encoder_folder, store, 1000, "--address", machines.address, "--trials", "4"
        )
        [raylet] = machines.head_node.all_processes["raylet"]
        with running(sweep) as driver:
            wait_while(driver, sweep, lambda: list(sweep.run.glob("trials/*/rungs.json")))
            wait_while(driver, sweep, lambda: workers(raylet.process.pid, "ray::MCR2"))
            workers(raylet.process.pid, "ray::MCR2")[0].kill()
            wait_while(driver, sweep, lambda: (sweep.run / "trials.jsonl").exists() and sweep.trials())
            machines.remove_node(second, allow_graceful=False)
    finally:
        machines.shutdown()
    assert_whole(sweep, 4)
    assert {r.state for r in sweep.trials()} <= {"COMPLETE", "PRUNED"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_changed_space_is_refused_and_another_run_begins_with_the_best_settings(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, whole: Command
) -> None:
    text = SPACE.format(steps=LONG).replace("high: 0.01, log", "high: 0.02, log")
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, whole.store, LONG, space=text)
    shutil.copytree(whole.run, sweep.run)
    message = sweep.refused()
    differences = [line for line in message.splitlines() if line.startswith("  ")]
    assert differences == ["  parameters.lr.high: 0.01 there, 0.02 now"]
    assert f"--warm-start {sweep.run}" in message
    assert told(sweep.trials()) == told(whole.trials())  # nothing is touched
    assert "it is the run itself" in sweep.refused("--warm-start", str(sweep.run))
    short = text.replace(f"steps: {LONG}", "steps: 40")
    other = make_sweep(tmp_path / "other", data_folder, encoder_folder, sweep.store, 0, space=short)
    assert "2 settings of" in other.done("--warm-start", str(whole.run), "--trials", "3")
    best = {int(size): own[0]["trial"] for size, own in json.loads((whole.run / "confirmed.json").read_text()).items()}
    old = {r.number: r.params for r in whole.trials()}
    tried = [r.params for r in sorted(other.trials(), key=lambda r: r.number)]
    assert tried[:2] == [old[best[16]], old[best[32]]] and len(tried) == 3
    before = other.files()
    other.done("--warm-start", str(whole.run), "--trials", "3")
    assert other.files() == before
