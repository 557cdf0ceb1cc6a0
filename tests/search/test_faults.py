"""Sweeps end to end while something fails: trials that hang or freeze, a node that dies, storage that goes, a full disk."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from optuna.trial import TrialState
from run_command import Command, slow, wait_for, workers

from distilbench.commands.status import run_statuses, status_lines
from distilbench.search.trial import hang_log
from distilbench.trials.watchdog import MARK

MCR2 = """
method: mcr2
budget: {trials: 5, steps: 900, rungs: 3, eta: 2}
parameters:
  lambda: {low: 0.1, high: 2, log: true}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {output_dim: 8, batch_size: 16, clusters: 4}
enqueue: [{lambda: 1}]
"""
MSE = """
method: mse
budget: {trials: 3, steps: 600, rungs: 3, eta: 8, stopping: none}
parameters: {lr: {low: 0.0001, high: 0.001, log: true}}
fixed: {output_dim: 32, batch_size: 8, epochs: 200}
"""


def make(folder: Path, data: Path, encoder: Path, store: Path, space: str, *arguments: str) -> Command:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(space)
    method = space.split()[1]
    given = ("--method", method, "--space", str(folder / "space.yaml"), "--confirm-seeds", "1", *arguments)
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
        assert driver.wait(timeout=400) == status, sweep.log()
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


def marks(sweep: Command, trial: int) -> int:
    log = hang_log(sweep.run, trial)
    return log.read_text().count(MARK) if log.exists() else 0


def suspended_at_work(driver: subprocess.Popen[str], log: Path) -> bool:
    """Stop the trial's worker within a slice: while its watchdog has its log open. Between two, it goes on."""
    suspended = workers(driver.pid, "ray::MSE")
    for process in suspended:
        process.suspend()
    if suspended and log.exists():
        return True
    for process in suspended:
        process.resume()
    return False


@slow
@pytest.mark.timeout(600)
def test_trials_that_hang_or_freeze(tmp_path: Path, data_folder: Path, encoder_folder: Path, fault_store: Path) -> None:
    """The teacher's vectors become a pipe that nobody writes to: whoever opens it waits for ever, in the middle of a step."""
    limits = ("--stall-timeout", "10", "--trials-at-once", "1")
    sweep = make(tmp_path, data_folder, encoder_folder, fault_store, MSE, *limits)

    def at_rung(trial: int) -> bool:
        file = sweep.run / "trials" / f"{trial:05d}" / "rungs.json"
        return file.exists() and '"rung": 1' in file.read_text()  # after the start, which is rung 0

    with running(sweep) as driver:
        wait_while(driver, sweep, lambda: at_rung(0))
        [shard] = fault_store.glob("embeddings-*/shard-00000.npy")
        aside = shard.with_name("aside")
        shard.rename(aside)
        os.mkfifo(shard)
        try:
            wait_while(driver, sweep, lambda: marks(sweep, 0) == 2)
        finally:
            aside.replace(shard)
        wait_while(driver, sweep, lambda: at_rung(1))
        wait_while(driver, sweep, lambda: suspended_at_work(driver, hang_log(sweep.run, 1)))
    assert_whole(sweep, 3)
    hung, frozen, other = sorted(sweep.trials(), key=lambda r: r.number)
    reason = "no progress for 10 s, 2 times; where it was stuck is in 00000-hang.txt"
    assert (hung.state, hung.reason) == ("FAIL", reason) and [r.rung for r in hung.rungs] == [0, 1]
    assert "in take" in hang_log(sweep.run, 0).read_text()
    assert (frozen.state, other.state) == ("COMPLETE", "COMPLETE")
    assert (marks(sweep, 1), marks(sweep, 2)) == (1, 0)  # it was ended, and continued
    assert "stood still" in hang_log(sweep.run, 1).read_text()


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
    assert_whole(sweep, 5)
    assert {r.state for r in sweep.trials()} <= {"COMPLETE", "PRUNED"}


@slow
@pytest.mark.timeout(600)
def test_storage_goes_and_comes_back(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, fault_store: Path
) -> None:
    sweep = make(tmp_path, data_folder, encoder_folder, fault_store, MCR2)
    aside = sweep.run.with_name("aside")
    with running(sweep) as driver:
        wait_while(driver, sweep, lambda: list(sweep.run.glob("trials/*/rung-1.safetensors")))
        sweep.run.rename(aside)
        time.sleep(6)
        assert not sweep.run.exists(), sorted(sweep.run.rglob("*"))
        aside.rename(sweep.run)
        assert driver.poll() is None, sweep.log()
        database = sqlite3.connect(sweep.run / "study.db", timeout=30)
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(7)
        database.rollback()
        database.close()
    assert_whole(sweep, 5)
    assert {r.state for r in sweep.trials()} <= {"COMPLETE", "PRUNED"}


FULL = """
import subprocess, sys, time
from pathlib import Path

disk, log, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk)], check=True)

def fill():
    for size in (1 << 16, 1):
        with (disk / f"fill-{size}").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                pass

with log.open("w") as out:
    driver = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    while not list(disk.glob("runs/r/trials/*/rung-1.safetensors")) and driver.poll() is None:
        time.sleep(0.05)
    fill()
    code = driver.wait(timeout=300)
print("first", code)
import optuna
from distilbench.search.study import sqlite_url
for path in disk.glob("fill-*"):
    path.unlink()
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="r", storage=sqlite_url(disk / "runs/r/study.db"))
print("states", *(t.state.name for t in study.trials))
with log.with_suffix(".second").open("w") as out:
    print("second", subprocess.run(command, stdout=out, stderr=subprocess.STDOUT).returncode)
subprocess.run(["cp", "-r", str(disk / "runs"), str(log.parent / "kept")], check=True)
"""


@slow
@pytest.mark.timeout(900)
def test_a_full_disk_in_a_sweep(tmp_path: Path, data_folder: Path, encoder_folder: Path, fault_store: Path) -> None:
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    disk, log = tmp_path / "disk", tmp_path / "log.txt"
    disk.mkdir()
    try:
        possible = subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no `unshare` here to mount a small disk with")
    if possible.returncode:
        pytest.skip(f"no small disk can be mounted here: {possible.stderr.decode().strip()}")
    sweep = make(tmp_path, data_folder, encoder_folder, fault_store, MCR2)
    command = [part.replace(str(tmp_path / "runs"), str(disk / "runs")) for part in sweep.command]
    done = subprocess.run(
        [*private, sys.executable, "-c", FULL, str(disk), str(log), *command],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr + log.read_text()
    first, states, second = done.stdout.splitlines()
    said = log.read_text()
    assert first == "first 2", said
    message = " ".join(said.splitlines()[-8:])
    assert message.count("make room, then repeat the command") == 1 and "Traceback" not in said, said
    assert str(disk / "runs" / "r") in message.replace(" ", "")
    assert "RUNNING" in states and "FAIL" not in states
    assert second == "second 0", log.with_suffix(".second").read_text()
    sweep.run = tmp_path / "kept" / "r"
    assert_whole(sweep, 5)
    assert {t.state for t in sweep.study().trials} <= {TrialState.COMPLETE, TrialState.PRUNED}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_and_sigterm_are_heard_in_every_stage(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, fault_store: Path
) -> None:
    sweep = make(tmp_path, data_folder, encoder_folder, fault_store, MCR2, "--confirm-seeds", "3")

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
            began = time.monotonic()
            driver.wait(timeout=60)
            assert time.monotonic() - began < 20
        [last] = [line for line in sweep.log().splitlines() if line.startswith("interrupted")][-1:]
        assert last.startswith("interrupted; to go on: python -m platform.sweep --method mcr2 --space ")
        assert sweep.scores() == before
        (status,) = run_statuses(sweep.run)
        told = [str(line) for line in status_lines(status, time.time())]
        assert told[0].endswith("ago; the same command goes on") and "interrupted" in told[0]
    assert "Traceback" not in sweep.log()
    with running(sweep):
        pass
    assert len(sweep.trials()) == 5 and sum(s.role == "student" for s in sweep.scores()) == 12
