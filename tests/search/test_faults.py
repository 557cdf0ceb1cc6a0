"""Sweeps end to end while something fails: trials that hang or freeze, a node that dies, storage that goes, a full disk."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from run_command import Command, wait_for, workers

from distilbench.commands.status import run_statuses

MCR2 = """
method: mcr2
budget: {trials: 4, steps: 900, rungs: 3, eta: 2, confirm: {seeds: 1}}
parameters:
  lambda: {low: 0.1, high: 2, log: true}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {output_dim: 8, batch_size: 16, clusters: 4}
enqueue: [{lambda: 1}]
"""


def make(folder: Path, data: Path, encoder: Path, store: Path, space: str, *arguments: str) -> Command:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(space)
    method = space.split()[1]
    given = ("--method", method, "--space", str(folder / "space.yaml"), *arguments)
    return Command("sweep", folder, data, encoder, store, *given)


@pytest.fixture(scope="module")
def fault_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


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


def assert_whole(sweep: Command, trials: int) -> None:
    """Exactly `trials` finished trials, study and records agreeing, a student with its scores, nothing half-written."""
    study = sweep.study()
    assert [t.number for t in study.trials] == list(range(trials))
    assert all(t.state.is_finished() for t in study.trials)
    records = sweep.trials()
    assert sorted(r.number for r in records) == list(range(trials))
    for record in records:
        trial = study.trials[record.number]
        assert (record.state, record.reason) == (trial.state.name, trial.user_attrs["reason"])
        assert [r.rung for r in record.rungs] == [0, *sorted(trial.intermediate_values)]
    assert sum(s.role == "student" for s in sweep.scores()) == 4  # in float32, int8, int4, binary
    assert sweep.leftovers() == []
    assert (sweep.folder / "reports" / "r" / "index.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_and_then_a_node_are_killed(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, fault_store: Path
) -> None:
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = machines.add_node(num_cpus=1)
        space = MCR2.replace("900", "3000")
        sweep = make(tmp_path, data_folder, encoder_folder, fault_store, space, "--address", machines.address)
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
def test_ctrl_c_and_sigterm_are_heard_in_every_stage(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, fault_store: Path, request: pytest.FixtureRequest
) -> None:
    sweep = make(tmp_path, data_folder, encoder_folder, fault_store, MCR2.replace("seeds: 1", "seeds: 2"))

    def at(stage: str) -> bool:
        (run,) = run_statuses(sweep.run) if (sweep.run / "config.json").exists() else [None]
        return run is not None and run.progress is not None and run.progress.stage == stage

    stages = (
        (lambda: at("search") and (sweep.run / "trials.jsonl").exists(), signal.SIGTERM),
        (lambda: at("confirm"), signal.SIGINT),
    )
    for reached, sent in stages:
        with running(sweep, status=128 + sent) as driver:
            wait_while(driver, sweep, reached)
            before = sweep.scores()
            driver.send_signal(sent)
        [last] = [line for line in sweep.log().splitlines() if line.startswith("interrupted")][-1:]
        assert last.startswith("interrupted; to go on: python -m platform.sweep --method mcr2 --space ")
        assert sweep.scores() == before
        (status,) = run_statuses(sweep.run)
        told = [str(line) for line in status.lines()]
        assert told[0].endswith("ago; the same command goes on") and "interrupted" in told[0]
    assert "Traceback" not in sweep.log()
    request.getfixturevalue("cluster")  # only now: the commands before have a cluster each
    sweep.done()
    assert len(sweep.trials()) == 4 and sum(s.role == "student" for s in sweep.scores()) == 8
