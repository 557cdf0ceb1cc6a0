"""How fast a training is here, measured for seconds before a search with a time budget: what fits follows from it."""

from __future__ import annotations

import time
from typing import NamedTuple

from distilbench.cluster.place import Place
from distilbench.cluster.resources import TrialResources
from distilbench.prepare.prepared import load_prepared
from distilbench.trials.on_node import on_this_node
from distilbench.trials.training_spec import TrainingSpec

TRAINED_S = 3.0
"""How long steps are measured: tens of a small encoder's, hundreds of a head's."""
WORKERS = 4
"""Trainings that are measured side by side at most, as trials run."""
PATIENCE_S = 60.0
"""Until the measured trainings are done: their workers take 10 s to start."""


class Pace(NamedTuple):
    """Seconds of a training's parts, and its steps."""

    begin_s: float
    step_s: float
    judge_s: float
    steps: float
    """Optimiser steps of a whole training, by its budget and its own length."""


def pace_of(spec: TrainingSpec, place: Place | None, cpus: int, seconds: float = TRAINED_S) -> Pace:
    """Measure a training on this node. Of its phases the first one is measured; nothing of it is kept."""
    import torch

    from distilbench.encoders.encoder import default_device
    from distilbench.training.loop import Trainer
    from distilbench.trials.dev import dev_report
    from distilbench.trials.rung_training import build_method

    torch.set_num_threads(cpus)
    here = on_this_node(spec, place)
    prepared = load_prepared(here.prepared)
    began = time.perf_counter()
    method = build_method(here.method, here.params, prepared, here.seed, default_device())
    trainer = Trainer(method, here.seed, here.budget.steps_of(here.params), here.budget.data_shares)
    begin_s, total = time.perf_counter() - began, trainer.total_steps
    trainer.train_until(1)  # the first step allocates
    began, first = time.perf_counter(), trainer.step
    trainer.train_until(total, lambda: time.perf_counter() - began > seconds)
    step_s = (time.perf_counter() - began) / max(1, trainer.step - first)
    began = time.perf_counter()
    dev_report(method, here.prepared, prepared)
    return Pace(begin_s, step_s if trainer.step > first else 0.0, time.perf_counter() - began, total)


def measured_pace(specs: list[TrainingSpec], place: Place | None, resources: TrialResources) -> Pace | None:
    """The mean of trainings with these settings, side by side on the cluster: at most `WORKERS`, and as many as trials run at
    once. None where they cannot be measured within `PATIENCE_S`."""
    import ray
    from ray.exceptions import RayError

    remote = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0)(pace_of)
    tasks = [remote.remote(spec, place, resources.cpus) for spec in specs[: min(WORKERS, resources.concurrency)]]
    try:
        paces = ray.get(tasks, timeout=PATIENCE_S)
    except RayError:  # a setting that fails will be a trial that fails, with its reason
        for task in tasks:
            ray.cancel(task, force=True)
        return None
    return Pace(*(sum(part) / len(paces) for part in zip(*paces, strict=True)))
