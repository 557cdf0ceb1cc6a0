"""What fits on the nodes of a cluster, which ones may come, and that lost ones are waited for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.cluster import nodes as module
from distilbench.cluster.nodes import Node, described, nodes_line, parse_growth, places_on, possible_nodes, waiting_told
from distilbench.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
PATIENT = {**os.environ, "RAY_raylet_start_wait_time_s": "200"}
"""A node takes longer than Ray's 30 s to start where tests share two cores."""


@pytest.mark.parametrize(
    ("node", "cpus", "gpus", "fits"),
    [
        (Node(8), 1, 0, 8),
        (Node(8), 3, 0, 2),
        (Node(8, 1), 1, 0.25, 4),
        (Node(2, 1), 1, 0.25, 2),
        (Node(8, 2), 1, 0.4, 4),  # 0.2 of each GPU is no place for a third one
        (Node(8, 2), 1, 0.6, 2),
        (Node(8, 3), 1, 2, 1),
        (Node(8), 1, 0.25, 0),
        (Node(0, 4), 1, 0.25, 0),
        (Node(64, 1), 1, 0.1, 10),
    ],
)
def test_what_fits_on_a_node(node: Node, cpus: int, gpus: float, fits: int) -> None:
    assert node.fits(cpus, gpus) == fits


def test_shares_do_not_add_up_over_nodes() -> None:
    assert places_on([Node(3), Node(3)], 2, 0) == 2
    assert places_on([Node(8, 1), Node(8, 1)], 1, 0.6) == 2
    assert places_on([], 1, 0) == 0


# What may come


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", ()),
        ("2x16:1", (Node(16, 1),) * 2),
        ("1x4,2x8:2", (Node(4), Node(8, 2), Node(8, 2))),
        (" 1x4 , ", (Node(4),)),
    ],
)
def test_grow_to(text: str, nodes: tuple[Node, ...]) -> None:
    assert parse_growth(text) == nodes


@pytest.mark.parametrize("part", ["8", "8*16", "0x4", "4x0:1", "x4", "-1x4", "2x4:", "2x4:0.5", "2 x 4", "9999999x1"])
def test_grow_to_refused(part: str) -> None:
    message = (
        f"--grow-to 1x2,{part}: {part!r} is no kind of node; expected COUNTxCPUS or COUNTxCPUS:GPUS, several with commas "
        "between, such as 8x16:1,4x32"
    )
    with pytest.raises(InputError, match=re.escape(message)):
        parse_growth(f"1x2,{part}")


def test_grow_to_is_refused_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["sweep", "--method", "mcr2"], env={"DISTILBENCH_GROW_TO": "many"})
    assert done.exit_code == 2 and done.stderr.startswith("error: --grow-to many: 'many' is no kind of node; expected")


def test_workers_that_are_there_are_some_of_those_that_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    there, grow_to = [Node(16, 1)], (Node(16, 1),) * 3 + (Node(32),)
    monkeypatch.setattr(module, "alive_nodes", lambda: there)
    assert nodes_line() == "" and possible_nodes(grow_to) == [Node(16, 1), *grow_to]
    there += [Node(16, 1), Node(4)]
    assert possible_nodes(grow_to) == [Node(16, 1), Node(16, 1), Node(4), Node(16, 1), Node(16, 1), Node(32)]
    assert possible_nodes() == [Node(16, 1), Node(16, 1), Node(4)]
    assert nodes_line((Node(16, 1),) * 2) == (
        "Nodes: 2 nodes of 16 CPUs, 1 GPU; 1 node of 4 CPUs; may come: 1 node of 16 CPUs, 1 GPU"
    )


def test_words() -> None:
    assert described([]) == "none"
    nodes = [Node(1), Node(16, 1, 64 * 2**30), Node(16, 1, 64 * 2**30 + 5), Node(8, 0.25)]
    assert described(nodes) == "1 node of 1 CPU; 2 nodes of 16 CPUs, 1 GPU, 64 GiB; 1 node of 8 CPUs, 0.25 GPUs"


def test_it_is_said_when_no_node_has_room_and_when_one_has_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = [Node(2)]
    monkeypatch.setattr(module, "alive_nodes", lambda: list(there))
    for name in ("LOOK_S", "PATIENCE_S"):
        monkeypatch.setattr(module, name, 0.05)
    with waiting_told(1, 0.5, "Trials"):
        time.sleep(0.5)
        there.append(Node(8, 1))
        time.sleep(0.3)
        there.clear()
        time.sleep(0.3)
    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        "Trials: waiting for a node with 1 CPU, 0.5 GPUs; there is now: 1 node of 2 CPUs "
        "Trials: goes on; nodes now: 1 node of 2 CPUs; 1 node of 8 CPUs, 1 GPU "
        "Trials: waiting for a node with 1 CPU, 0.5 GPUs; there is now: none"
    )
    assert not [t for t in threading.enumerate() if t.name == "_watch"]


# On real nodes: processes of their own, since this one has a cluster already


PLACES = """
import sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from distilbench.cluster import nodes
from distilbench.errors import InputError
from distilbench.cluster.nodes import Node, alive_nodes, gpus_elsewhere, nodes_line, on_gpu_node
from distilbench.cluster.nodes import possible_nodes, working_device
from distilbench.prepare.pool import PoolSize, ShardTask, run_pool
from distilbench.cluster.resources import ray_cluster, trial_resources

class Where(ShardTask):
    def __init__(self, folder):
        self.folder = folder

    def load(self):
        def make(shard, start, stop):
            node = ray.get_runtime_context().get_node_id()
            (self.folder / f"{shard}").write_text(f"{node} {ray.get_gpu_ids()}")
        return make

def where():
    return ray.get_runtime_context().get_node_id(), [int(i) for i in ray.get_gpu_ids()]

def refuse():
    raise InputError("no")

machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
cpu = machines.add_node(num_cpus=1)
folder = Path(sys.argv[1])
with ray_cluster(machines.address, None, False):
    print("alone", [tuple(n)[:2] for n in alive_nodes()], gpus_elsewhere(), gpus_elsewhere((Node(4, 1),)))
    # More workers wait for nodes than there is room for; one does all of the work.
    (folder / "cpu").mkdir()
    shards = [(i, i, i + 1) for i in range(4)]
    run_pool(Where(folder / "cpu"), shards, "Work", size=PoolSize(grow_to=(Node(2), Node(2))))
    print("pool", {p.read_text() == f"{cpu.node_id} []" for p in (folder / "cpu").iterdir()})
    found = trial_resources(grow_to=(Node(2), Node(2)))
    print("trials", found.concurrency)
    gpu = machines.add_node(num_cpus=1, num_gpus=1)
    print(nodes_line((Node(1, 1), Node(1, 1))).split(" GiB")[0].split(",")[0])
    print("elsewhere", gpus_elsewhere(), working_device())  # Ray's GPU is made up: torch sees none there
    node, ids = on_gpu_node(where, what="A look")
    print("task", node == gpu.node_id, ids)
    try:
        on_gpu_node(refuse, what="A look")
    except InputError as error:
        print("refused", error)
    (folder / "gpu").mkdir()
    run_pool(Where(folder / "gpu"), shards, "Work", size=PoolSize(2), gpu=True)
    print("gpu pool", {p.read_text() for p in (folder / "gpu").iterdir()} == {f"{gpu.node_id} [0]"})
machines.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_work_goes_to_the_nodes_that_it_is_for(tmp_path: Path) -> None:
    lines = run(PLACES, tmp_path)
    found = [line for line in lines if line.split()[0] in "alone pool trials Nodes: elsewhere task refused gpu".split()]
    assert found == [
        "alone [(0, 0), (1, 0)] False True",
        "pool {True}",
        "trials 5",
        "Nodes: 1 node of 0 CPUs",
        "elsewhere True cpu",
        "task True [0]",
        "refused no",
        "gpu pool True",
    ]


def run(program: str, folder: Path, *arguments: str) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run(
        [sys.executable, "-u", "-c", program, str(folder), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=270,
        env=PATIENT,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return [line for line in done.stdout.splitlines() if line.strip()]
