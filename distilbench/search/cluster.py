"""Ray on this machine or elsewhere: starting it quietly, and how trials share what it has."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

GPU_SHARE = 0.25
"""Of a GPU for each trial: a head or a 6-layer student leaves most of a GPU idle."""

IDLE_TIMEOUT_S = 60


@contextmanager
def ray_cluster(address: str | None, cpus: int | None, dashboard: bool) -> Iterator[None]:
    """Connect to `address`, or start Ray here with `cpus` CPUs (None: all); left running only where it was before."""
    # Tune's own files per trial cost more than a small trial, and ours hold the same.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # verbose=0 prints a banner otherwise
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data's own actors log an ERROR that is none
    import ray

    if ray.is_initialized():
        yield
        return
    local = {} if address else {"num_cpus": cpus, "include_dashboard": dashboard}
    context = ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    for name in ("ray.data", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if context.dashboard_url:
        print(f"Ray dashboard: http://{context.dashboard_url} (it asks for what `ray get-auth-token` prints)")  # noqa: T201
    try:
        yield
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class TrialResources:
    """What one trial takes, and how many run at once."""

    cpus: int
    gpus: float
    concurrency: int
    explanation: str


def trial_resources(gpus_per_trial: float | None) -> TrialResources:
    """Fit trials to the cluster: one CPU each, and on GPUs `gpus_per_trial` (None: a quarter) each."""
    import ray

    total = ray.cluster_resources()
    cpus, gpus = int(total.get("CPU", 1)), total.get("GPU", 0.0)
    share = (GPU_SHARE if gpus_per_trial is None else gpus_per_trial) if gpus else 0.0
    concurrency = max(1, min(cpus, int(gpus / share)) if share else cpus)
    shares = f"1 of {cpus} CPUs" + (f" and {share:g} of {gpus:g} GPUs" if share else "")
    return TrialResources(1, share, concurrency, f"{concurrency} trials at once, each on {shares}")


def wait_for_idle(resources: TrialResources) -> None:
    """Wait until one trial fits: workers of the stage before may still hold CPUs, on which Tune would wait in silence.

    Raises:
        RuntimeError: nothing became free in a minute.
    """
    import ray

    deadline = time.monotonic() + IDLE_TIMEOUT_S
    while time.monotonic() < deadline:
        free = ray.available_resources()
        if free.get("CPU", 0) >= resources.cpus and free.get("GPU", 0) >= resources.gpus:
            return
        time.sleep(0.2)
    raise RuntimeError(
        f"no trial can start: it needs {resources.cpus} CPUs and {resources.gpus:g} GPUs, free are "
        f"{free.get('CPU', 0):g} and {free.get('GPU', 0):g}; other work holds the cluster"
    )
