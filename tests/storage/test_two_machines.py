"""Whole sweeps without a shared disk: a node that cannot see the driver's folders, a driver's machine that is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from bucket import Bucket, make_bucket
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.cluster import owner
from distilbench.storage.remote import Remote

sys.path.append(str(Path(__file__).resolve().parents[1] / "search"))
from run_command import ROOT, Command, scored, slow, told, wait_for

QUICK = """
import runpy, sys
from distilbench.cluster import owner, run_copy
owner.DEAD_S, owner.BEAT_S, owner.LOOK_S, run_copy.EVERY_S = 20.0, 3.0, 1.0, 2.0
sys.argv = ["distilbench", *sys.argv[1:]]
runpy.run_module("distilbench", run_name="__main__")
"""
"""The command with shorter times."""


SPACE = """
method: mcr2
budget: {trials: 5, steps: 900, rungs: 3, eta: 2, confirm: {seeds: 2}}
parameters:
  lambda: {low: 0.1, high: 2, log: true}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {output_dim: 8, batch_size: 16, clusters: 4}
enqueue: [{lambda: 1}]
"""


class Machine:
    """A driver's machine: folders of its own, all below `root`, which can be lost at once."""

    def __init__(self, root: Path, data: Path, encoder: Path, address: str, *more: str) -> None:
        root.mkdir(parents=True)
        self.root = root
        shutil.copytree(data, root / "data")
        shutil.copytree(encoder, root / "encoder")
        (root / "space.yaml").write_text(SPACE)
        given = ["--method", "mcr2", "--space", str(root / "space.yaml"), "--address", address, "--quantise", "none"]
        self.sweep = Command("sweep", root, root / "data", root / "encoder", root / "store", *given, *more)

    def start(self) -> subprocess.Popen[str]:
        """As a process that can be killed."""
        env = {**os.environ, "DISTILBENCH_SCRATCH": str(self.root / "scratch"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", QUICK, "sweep", *self.sweep.command[3:]]
        with (self.root / "log.txt").open("a") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, text=True, env=env)


@contextmanager
def blind_node(address: str, hidden: Path, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Ray node in a mount namespace where `hidden` is an empty disk."""
    start = f"mount -t tmpfs tmpfs {hidden} && exec {sys.executable} -m ray.scripts.scripts start --address {address} "
    start += "--num-cpus 1 --block --disable-usage-stats"
    env = {**os.environ, "DISTILBENCH_SCRATCH": str(scratch), "PYTHONPATH": str(ROOT)}
    node = subprocess.Popen(
        ["unshare", "--mount", "bash", "-c", start], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield node
    finally:
        family = [node, *psutil.Process(node.pid).children(recursive=True)] if node.poll() is None else []
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        node.wait(timeout=60)


def may_hide() -> bool:
    """Whether this user may have a mount namespace."""
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = make_bucket()
    for name, value in bucket.environment().items():
        monkeypatch.setenv(name, value)
    yield bucket
    bucket.stop()


@slow
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not may_hide(), reason="needs mount namespaces (root): a node must not see the driver's folders")
def test_a_head_is_lost_in_the_search_and_another_machine_ends_the_sweep(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, s3_server: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setattr(owner, "DEAD_S", 20.0)
    storage, drivers = Remote("s3://bench/project"), tmp_path / "drivers"
    drivers.mkdir()
    run = storage / "runs" / "r"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(cluster.address, log_to_driver=False)  # the sweeps in this process are drivers on the head
        whole = Machine(tmp_path / "whole", data_folder, encoder_folder, cluster.address)
        whole.sweep.done()
        with blind_node(cluster.address, drivers, tmp_path / "node") as node:
            wait_for(lambda: len([n for n in ray.nodes() if n["Alive"]]) == 2 or node.poll() is not None)
            assert node.poll() is None
            one = Machine(drivers / "one", data_folder, encoder_folder, cluster.address, "--storage", storage.uri)
            driver = one.start()
            try:
                wait_for(lambda: driver.poll() is not None or (run.read("trials.jsonl") or b"").count(b"\n"), 500)
                # A trial is under way, and its checkpoint is in the storage.
                wait_for(lambda: driver.poll() is not None or any(n.endswith("tensors") for n in run.list()))
                assert driver.poll() is None, (one.root / "log.txt").read_text()
            finally:
                driver.send_signal(signal.SIGKILL)
                driver.wait()
            assert 1 <= (run.read("trials.jsonl") or b"").count(b"\n") < 5
            shutil.rmtree(one.root)

            two = Machine(drivers / "two", data_folder, encoder_folder, cluster.address, "--storage", storage.uri)
            monkeypatch.setenv("DISTILBENCH_SCRATCH", str(two.root / "scratch"))
            said = two.sweep.done()
            assert "is gone; this one goes on" in said and "the run is fetched from s3://bench/project/runs/r" in said
            assert ": 0 of " in said and "sentences encoded now" in said  # the vectors came from the storage
    finally:
        ray.shutdown()
        cluster.shutdown()

    assert sorted(t.number for t in two.sweep.trials()) == list(range(5))
    assert told(two.sweep.trials()) == told(whole.sweep.trials())
    assert told(two.sweep.confirmations()) == told(whole.sweep.confirmations())
    assert scored(two.sweep.scores()) == scored(whole.sweep.scores())
    # The blind node has worked: it has artifacts and prepared inputs of its own.
    kept = {p.name.partition("-")[0] for p in (tmp_path / "node" / "store").iterdir() if p.is_dir()}
    assert {"embeddings", "pca", "folder"} <= kept
    assert list((tmp_path / "node" / "prepared").glob("*/prepared.json"))
    # What the run came to is in the storage, for any machine.
    assert any(n.startswith("students/") and n.endswith("modules.json") for n in run.list())
    assert (storage / "reports" / "r").entry("index.html") is not None
    shutil.rmtree(two.root)
    monkeypatch.setenv("DISTILBENCH_SCRATCH", str(tmp_path / "laptop"))
    for command in (
        ["report", str(run), "--out", "s3://bench/project/reports/again"],
        ["status", str(run)],
        ["best", str(run)],
        ["export", str(run), "--to", str(tmp_path / "export"), "--dim", "8"],
        ["reproduce", str(run), "0"],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, (command, done.output, done.exception)
    assert (storage / "reports" / "again").entry("index.html") is not None
    assert (tmp_path / "export" / "modules.json").exists()
