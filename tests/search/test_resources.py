"""How trials share a cluster: CPUs, fractions of GPUs, several nodes; and that a worker's memory goes with each trial."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
import torch

from distilbench.cluster import resources as module
from distilbench.cluster.nodes import Node
from distilbench.cluster.resources import trial_resources
from distilbench.errors import InputError
from distilbench.machine import limit_gpu_memory
from distilbench.search.trial import TrialTrainable
from distilbench.trials.budget import Budget

CASES: list[tuple[list[tuple[int, int]], dict[str, Any], tuple[int, float, int], str]] = [
    # CPUs and GPUs of each node, what the user says, what a trial takes and how many run, and what is told.
    ([(4, 0)], {}, (1, 0, 4), "1 CPU of 4 CPUs"),
    ([(4, 0)], {"cpus": 2}, (2, 0, 2), "2 CPUs of 4 CPUs"),
    ([(5, 0)], {"cpus": 2}, (2, 0, 2), "2 CPUs of 5 CPUs"),
    ([(4, 0)], {"at_once": 3}, (1, 0, 3), "1 CPU of 4 CPUs (4 would fit)"),
    ([(4, 0)], {"cpus": 1, "at_once": 9}, (1, 0, 4), "1 CPU of 4 CPUs"),
    ([(8, 1)], {}, (1, 0.25, 4), "1 CPU, 0.25 GPUs of 8 CPUs, 1 GPU"),
    ([(2, 1)], {}, (1, 0.5, 2), "1 CPU, 0.5 GPUs of 2 CPUs, 1 GPU"),
    ([(8, 2)], {"cpus": 1, "gpus": 1.0}, (1, 1.0, 2), "1 CPU, 1 GPU of 8 CPUs, 2 GPUs"),
    ([(8, 2)], {"cpus": 1, "gpus": 0.4}, (1, 0.4, 4), "1 CPU, 0.4 GPUs of 8 CPUs, 2 GPUs"),
    ([(8, 4)], {"cpus": 1, "gpus": 2.0}, (1, 2.0, 2), "1 CPU, 2 GPUs of 8 CPUs, 4 GPUs"),
    ([(8, 1)], {"cpus": 1, "gpus": 0.0}, (1, 0.0, 8), "1 CPU of 8 CPUs, 1 GPU"),
    # What is left over on two nodes is no place for a trial.
    ([(3, 0), (3, 0)], {"cpus": 2}, (2, 0, 2), "2 CPUs of 6 CPUs"),
    ([(4, 1), (4, 1)], {"cpus": 1, "gpus": 0.6}, (1, 0.6, 2), "1 CPU, 0.6 GPUs of 8 CPUs, 2 GPUs"),
    ([(8, 0), (3, 1)], {"cpus": 1}, (1, 0.3333, 3), "1 CPU, 0.3333 GPUs of 11 CPUs, 1 GPU"),
]


@pytest.mark.parametrize(
    ("node", "cpus", "gpu_bytes", "share", "at_once"),
    [
        ((16, 1), 1, 85e9, 0.0625, 16),  # an H100: as many as CPUs
        ((12, 1), 1, 85e9, 0.0833, 12),
        ((16, 1), 1, 23.7e9, 0.2, 5),  # an L4: as many as its memory takes
        ((24, 8), 1, 85e9, 0.3333, 24),
        ((16, 1), 4, 85e9, 0.25, 4),
        ((10, 4), 1, 85e9, 0.3333, 10),
        ((4, 8), 1, 85e9, 1.0, 4),
        ((64, 1), 1, 150e9, 0.027, 37),  # an H200
        ((8, 1), 1, 2e9, 1.0, 1),
    ],
)
def test_a_trial_takes_what_its_cpus_can_use_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, node: tuple[int, int], cpus: int, gpu_bytes: float, share: float, at_once: int
) -> None:
    given(monkeypatch, [node])
    monkeypatch.setattr(module, "_gpu_memory", lambda: gpu_bytes)
    found = trial_resources(cpus=cpus)
    assert (found.gpus, found.concurrency) == (share, at_once)


@pytest.mark.parametrize(("share", "fraction"), [(0.0625, 0.125), (0.6, 1.0), (1.0, None), (2.0, None), (0.0, None)])
def test_a_share_limits_memory(monkeypatch: pytest.MonkeyPatch, share: float, fraction: float | None) -> None:
    limits: list[float | None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    limit_gpu_memory(share)
    assert limits == ([] if fraction is None else [fraction])


def given(monkeypatch: pytest.MonkeyPatch, nodes: list[tuple[int, int]]) -> None:
    monkeypatch.setattr(module, "alive_nodes", lambda: [Node(*node) for node in nodes])
    monkeypatch.setattr(module, "possible_nodes", lambda grow_to: [Node(*node) for node in nodes] + list(grow_to))


@pytest.mark.parametrize(("nodes", "share", "wanted", "told"), CASES)
def test_trials_are_fitted_to_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[tuple[int, int]],
    share: dict[str, Any],
    wanted: tuple[int, float, int],
    told: str,
) -> None:
    given(monkeypatch, nodes)
    found = trial_resources(**share)
    assert (found.cpus, found.gpus, found.concurrency) == wanted
    assert found.explanation == f"{wanted[2]} trials at once, each on {told}"


@pytest.mark.parametrize(
    ("nodes", "share", "reason"),
    [
        ([(4, 0)], {"cpus": 5}, "a trial is to take 5 CPUs, but the cluster has 1 node of 4 CPUs; expected "),
        (
            [(4, 0)],
            {"gpus": 0.5},
            "a trial is to take 1 CPU, 0.5 GPUs, but the cluster has 1 node of 4 CPUs; expected ",
        ),
        ([(1, 0), (1, 0)], {"cpus": 2}, "2 CPUs, but the cluster has 2 nodes of 1 CPU; expected "),
        (
            [(8, 0), (1, 1)],
            {"cpus": 2, "gpus": 0.5},
            "but the cluster has 1 node of 8 CPUs; 1 node of 1 CPU, 1 GPU; expected ",
        ),
        ([(8, 1), (8, 1)], {"gpus": 2.0}, "1 CPU, 2 GPUs, but the cluster has 2 nodes of 8 CPUs, 1 GPU; expected "),
        ([(8, 4)], {"gpus": 1.5}, "--gpus-per-trial 1.5: expected a share of one GPU (at most 1), or whole ones"),
        ([], {}, "a trial is to take 1 CPU, but the cluster has none; expected "),
    ],
)
def test_a_trial_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, nodes: list[tuple[int, int]], share: dict[str, Any], reason: str
) -> None:
    given(monkeypatch, nodes)
    with pytest.raises(InputError, match=re.escape(reason)):
        trial_resources(**share)


def test_a_cluster_that_grows_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, [(2, 0)])
    found = trial_resources(grow_to=(Node(8, 1), Node(8, 1)))
    assert (found.cpus, found.gpus, found.concurrency) == (1, 0.25, 8)
    told = "8 trials at once, each on 1 CPU, 0.25 GPUs of 18 CPUs, 2 GPUs (0 fit on the nodes that are up)"
    assert found.explanation == told
    few = trial_resources(gpus=0, at_once=2, grow_to=(Node(8, 1),))
    assert few.explanation == "2 trials at once, each on 1 CPU of 10 CPUs, 1 GPU (10 would fit)"


SHARING = """
import os, sys, threading, time
import ray
from distilbench.cluster import resources as cluster
from distilbench.cluster.resources import trial_resources, wait_for_idle
from distilbench.search.trial import TrialTrainable

os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
ray.init(address="local", num_cpus=5, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
found = trial_resources()
print(found.explanation)
wait_for_idle(found)

from ray import tune

class Busy(TrialTrainable):
    def setup(self, config):
        pass
    def step(self):
        # Until all have begun.
        folder = self.config["folder"]
        open(f"{folder}/{os.getpid()}", "w").close()
        while len(os.listdir(folder)) < 4:
            time.sleep(0.05)
        together = len(os.listdir(folder))
        return {"done": True, "together": together, "gpu": str(ray.get_gpu_ids())}

space = {"cpus": found.cpus, "gpus": found.gpus, "folder": sys.argv[1], "n": tune.grid_search(range(4))}
results = tune.Tuner(Busy, param_space=space, run_config=tune.RunConfig(storage_path=sys.argv[2], verbose=0)).fit()
print(sorted(r.metrics["together"] for r in results), {r.metrics["gpu"] for r in results})

@ray.remote(num_cpus=2, num_gpus=1)
class Holder:
    def ready(self):
        return True

holder = Holder.remote()
ray.get(holder.ready.remote())
cluster.IDLE_S = 1
threading.Timer(2.5, lambda: ray.kill(holder)).start()
wait_for_idle(found)
print("idle")
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_four_trials_share_a_gpu(tmp_path: Path) -> None:
    """In a process and a cluster of its own, whose GPU is made up."""
    (tmp_path / "here").mkdir()
    command = [sys.executable, "-c", SHARING, str(tmp_path / "here"), str(tmp_path / "tune")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(("4 trials", "[", "Trials", "idle"))]
    assert list(dict.fromkeys(lines)) == [
        "4 trials at once, each on 1 CPU, 0.25 GPUs of 5 CPUs, 1 GPU",
        "[4, 4, 4, 4] {'[0]'}",
        "Trials: other work holds the nodes that are up; waiting for 1 CPU, 0.25 GPUs",
        "idle",
    ]


def tensors() -> int:
    gc.collect()
    return sum(1 for o in gc.get_objects() if issubclass(type(o), torch.Tensor))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_reused_worker_does_not_grow(tmp_path: Path, prepared_folder: Path) -> None:
    """30 trials one after the other in one trainable, every fifth of which fails; after 10 it has what it needs."""
    budget = Budget(trials=30, steps=4, rungs=2, eta=2)
    run = tmp_path / "r"
    run.mkdir()

    def config(number: int) -> dict[str, Any]:
        params = {"output_dim": 8, "lr": 0.001 * (1 + number % 3), "batch_size": 16, "epochs": 1}
        if number % 5 == 4:
            params["weight_decay"] = -1
        own = {"number": number, "params": params, "method": "hpd", "seed": 0, "budget": budget.model_dump()}
        shared = {"cpus": 1, "gpus": 0, "costs": {}, "deadline": 1e18}
        return {"run": str(run), "prepared": str(prepared_folder), **own, **shared}

    threads = torch.get_num_threads()
    trainable = TrialTrainable(config(0))
    process, sizes, counts, failed = psutil.Process(), [], [], 0
    for number in range(30):
        if number:
            assert trainable.reset_config(config(number))
        result: dict[str, Any] = {"done": False}
        while not result["done"]:
            result = trainable.step()
        failed += bool(result["failed"])
        assert (result["failed"] == "") == (number % 5 != 4), result["failed"]
        counts.append(tensors())
        sizes.append(process.memory_info().rss)
    torch.set_num_threads(threads)
    assert failed == 6
    good = [count for number, count in enumerate(counts) if number >= 10 and number % 5 != 4]
    assert max(good) == min(good), good
    assert max(counts[10:]) <= max(good)
    # The last ten beside the first ten after the warm-up: the allocator moves by some megabytes, not by a model a trial.
    growth = max(sizes[20:]) - max(sizes[10:20])
    assert growth < 8e6, [round(size / 1e6) for size in sizes]
    assert len(process.children()) <= 1 + len([c for c in process.children() if "ray" in " ".join(c.cmdline())])


def test_a_cluster_that_runs_here_has_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "When connecting to an existing cluster, num_cpus and num_gpus must not be provided."
    asked: list[int | None] = []

    def init(**given: Any) -> None:
        asked.append(given["num_gpus"])
        raise ValueError(told) if given["num_gpus"] else KeyboardInterrupt

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(KeyboardInterrupt), module.ray_cluster(None, None, dashboard=False):
        pass
    assert asked == [3, None]


def test_ray_has_a_shorter_folder_where_that_of_temporary_files_is_too_long_for_sockets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        module, "_started", lambda **settings: given.append(settings) or SimpleNamespace(dashboard_url="")
    )
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for folder in ("/scratch", "/scratch/" + "long/" * 20):
        monkeypatch.setenv("TMPDIR", folder)
        with module.ray_cluster(None, 1, dashboard=False):
            pass
    short, long = given
    assert "_temp_dir" not in short and len(long["_temp_dir"]) <= module.LONGEST_FOLDER
    assert folder in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "environment", "message"),
    [
        ("127.0.0.1:1", "", r"^--address 127.0.0.1:1: no Ray cluster answers there \(.*refused\)$"),
        ("nonsense", "", r"^--address nonsense: no Ray cluster answers there \(Invalid address format: nonsense\)$"),
        (
            None,
            "nonsense",
            r"^RAY_ADDRESS=nonsense: no Ray cluster answers there \(Invalid address format: nonsense\)$",
        ),
        (None, "127.0.0.1:1", r"^RAY_ADDRESS=127.0.0.1:1: no Ray cluster answers there \(.*refused\)$"),
    ],
)
def test_a_cluster_that_does_not_answer_is_bad_input(
    address: str | None, environment: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    if environment:
        monkeypatch.setenv("RAY_ADDRESS", environment)
    with pytest.raises(InputError, match=message), module.ray_cluster(address, None, dashboard=False):
        pass


@pytest.mark.parametrize("slow", [1, 3])
def test_ray_is_started_again_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """Ray gives its own processes 30 s; only when they are late again and again is that the user's to know."""
    starts: list[dict[str, Any]] = []
    ended: list[None] = []

    class Context:
        dashboard_url = ""

    def init(**settings: Any) -> Context:
        starts.append(settings)
        if len(starts) <= slow:
            raise Exception("The current node timed out during startup. This could happen because ...")
        return Context()

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(None))
    if slow == module.STARTS:
        with pytest.raises(InputError, match="Ray did not start on this machine"), module.ray_cluster(None, 2, False):
            pass
    else:
        with module.ray_cluster(None, 2, False):
            assert len(starts) == slow + 1 and len(ended) == slow
    assert all(start == starts[0] for start in starts)
