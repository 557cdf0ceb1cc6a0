"""Ray on this machine or elsewhere: starting it quietly, and how trials share what it has."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import rich

from distilbench.cluster.nodes import Node, alive_nodes, described, places_on, possible_nodes, waiting_told
from distilbench.errors import InputError
from distilbench.machine import torch_threads

TRIAL_GPU_BYTES = 4e9
"""What a trial is given of a GPU's memory by default: 16 trials of two-layer students in batches up to 512 took 3.2 GB each,
half a gigabyte for the context of each included."""
UNKNOWN_GPU_BYTES = 16e9
"""A GPU's memory where this machine has none of its own to ask."""

IDLE_S = 60
"""Between two lines that say that other work holds the cluster."""
LONGEST_FOLDER = 107 - len("/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")
"""Bytes of the folder that Ray makes its own in: the path of a Unix socket has at most 107."""
STARTS = 3
TOO_SLOW = "timed out during startup"
"""Ray's words when its own processes have not come up within its 30 s, which cannot be set."""


@contextmanager
def ray_cluster(address: str | None, cpus: int | None, dashboard: bool) -> Iterator[None]:
    """Connect to `address`, or start Ray here with `cpus` CPUs; left running only where it was before.

    With `cpus` what the command computes itself has no more threads either.
    With neither, the cluster that `RAY_ADDRESS` names or that runs on this machine (on a cluster's head, in a Ray job) is
    used, and where there is none, Ray is started here with all CPUs.
    """
    # Tune's own files per trial cost more than a small trial, and ours hold the same.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # verbose=0 prints a banner otherwise
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data's own actors log an ERROR that is none
    import ray
    import torch

    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a page of traceback for every worker that is continued
    logging.getLogger("ray.widgets.util").setLevel(logging.ERROR)  # in a notebook: that ipywidgets is not there
    if ray.is_initialized():  # by a notebook, for one
        yield
        return
    cluster = address or (os.environ.get("RAY_ADDRESS") if cpus is None else None)
    target = cluster or (None if cpus is None else "local")
    if cpus is not None and not cluster:
        os.environ.setdefault("RAYON_NUM_THREADS", str(cpus))  # the threads of tokenizers
    # Ray itself asks NVML alone, and counts no GPU in silence where that does not answer.
    local: dict[str, Any] = {"num_cpus": cpus, "num_gpus": torch.cuda.device_count() or None}
    local = {} if cluster else {**local, "include_dashboard": dashboard, **_short_folder()}
    try:
        _knock(cluster or "")
        with _level_line_left_out():
            context = _started(address=target, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, ValueError) as error:  # also a ConnectionError of Ray's
        if not cluster:
            raise
        named = f"--address {address}" if address else f"RAY_ADDRESS={cluster}"
        raise InputError(f"{named}: no Ray cluster answers there ({str(error).splitlines()[0]:.200})") from None
    if context.dashboard_url:
        print(f"Ray dashboard: http://{context.dashboard_url} (it asks for what `ray get-auth-token` prints)")  # noqa: T201
    try:
        # Threads that share a product of matrices wait for each other: beside another process on one of two cores a
        # cross-encoder took 4.5 times as long on two threads as on one.
        with torch_threads(None if cluster else cpus, most=True):
            yield
    finally:
        ray.shutdown()


def _short_folder() -> dict[str, str]:
    """Where Ray's files go instead, if the folder for temporary files is too long for its sockets, as SLURM's may be."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or ""
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        return {}
    short = f"/tmp/ray-{os.getuid()}"
    print(f"Ray's files are in {short}: {folder} is too long for its sockets (at most {LONGEST_FOLDER} bytes)")  # noqa: T201
    return {"_temp_dir": short}


def _started(**settings: Any) -> Any:
    """`ray.init`, tried again where a busy machine takes longer than Ray waits for its own processes.

    Ray also takes SIGTERM over, and aborts at it; it does again what it did before, if Python knows what that was.
    """
    import ray

    before = signal.getsignal(signal.SIGTERM)
    for _ in range(STARTS):
        try:
            return ray.init(**settings)
        except Exception as error:  # of no class of its own
            if settings.get("num_gpus") and "num_gpus must not be provided" in str(error):
                settings["num_gpus"] = None  # a cluster runs here already
                continue
            if TOO_SLOW not in str(error):
                raise
            ray.shutdown()
        finally:
            if before is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
    raise InputError(
        f"Ray did not start on this machine, {STARTS} times 30 s. Is it busy? The same command tries again"
    )


@contextmanager
def _level_line_left_out() -> Iterator[None]:
    """Leaves out the line in which Ray's core says that it has read RAY_BACKEND_LOG_LEVEL; what else is said comes after."""
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held:
                if b"Set ray log level" not in line:
                    os.write(2, line)


def quiet_data_log() -> None:
    """Keep what Ray Data says of its plans and progress bars off the console; its own log file has it.

    Its logger is set up anew when `ray.data` is imported, so this comes after that.
    """
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.ERROR)


def _knock(address: str) -> None:
    """Raise OSError where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@dataclass(frozen=True)
class TrialResources:
    """The share of one trial, and how many run at once."""

    cpus: int
    gpus: float
    concurrency: int
    explanation: str


def trial_resources(
    cpus: int | None = None, gpus: float | None = None, at_once: int | None = None, grow_to: Sequence[Node] = ()
) -> TrialResources:
    """Fit trials to the cluster, and say why so.

    `cpus`, `gpus` and `at_once` (trials at once, at most) are what the user sets; None: as fits the cluster. `grow_to` are
    nodes that an autoscaler may have.

    By itself a trial takes one CPU (small heads and students gain little from a second thread, another trial a whole
    core), and where there are GPUs such a share of one that all CPUs are at work, and its memory is enough: a small trial
    waits for its CPU more than for the GPU. On a cluster that grows, so many run at once as fit when it has grown: those
    that wait for a place make the nodes come.
    """
    up, nodes = alive_nodes(), possible_nodes(grow_to)
    total = Node(sum(node.cpus for node in nodes), sum(node.gpus for node in nodes))
    cpus = cpus or 1
    gpus = _gpu_share(nodes, cpus) if gpus is None and total.gpus else gpus or 0.0
    if gpus > 1 and gpus % 1:
        raise InputError(f"--gpus-per-trial {gpus:g}: expected a share of one GPU (at most 1), or whole ones")
    fits, now, needed = places_on(nodes, cpus, gpus), places_on(up, cpus, gpus), Node(cpus, gpus)
    if not fits:
        raise InputError(
            f"a trial is to take {needed}, but the cluster has {described(nodes)}; expected --cpus-per-trial and "
            "--gpus-per-trial that fit on one of them"
        )
    concurrency = min(fits, at_once or fits)
    why = [f"{fits} would fit"] if concurrency < fits else []
    if now < concurrency:
        why.append(f"{now} fit on the nodes that are up")
    because = f" ({'; '.join(why)})" if why else ""
    explanation = f"{concurrency} trials at once, each on {needed} of {total}{because}"
    return TrialResources(cpus, gpus, concurrency, explanation)


def _gpu_share(nodes: Sequence[Node], cpus: int) -> float:
    """The share of a GPU with which trials of `cpus` CPUs fill a node's CPUs, as far as the GPU's memory allows.

    Rounded down to Ray's ten thousandths: of a third that is rounded up only two fit.
    """
    wanted = max(-(-(node.cpus // cpus) // node.gpus) for node in nodes if node.gpus)
    return math.floor(1e4 / max(1, min(wanted, int(_gpu_memory() // TRIAL_GPU_BYTES)))) / 1e4


def _gpu_memory() -> float:
    import torch

    sizes = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
    return min(sizes, default=UNKNOWN_GPU_BYTES)


def wait_for_idle(resources: TrialResources) -> None:
    """Wait until one trial fits, and say so; Tune would wait in silence.

    Workers of the stage before, or other work, may still hold the nodes that are up.
    """
    from ray.util import placement_group, remove_placement_group

    # Ray itself is asked: free resources are told of the cluster as a whole, and what is free on two nodes fits on neither.
    probe = placement_group([{"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})}])
    try:
        with waiting_told(resources.cpus, resources.gpus, "Trials"):
            while not probe.wait(IDLE_S):
                if places_on(alive_nodes(), resources.cpus, resources.gpus):
                    needed = Node(resources.cpus, resources.gpus)
                    rich.print(f"Trials: other work holds the nodes that are up; waiting for {needed}")
    finally:
        remove_placement_group(probe)
