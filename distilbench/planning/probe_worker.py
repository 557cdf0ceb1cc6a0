"""What each worker of a probe measures, beside the others: encoding, augmentation, the training of each method."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distilbench.encoders.encoder import EncoderSpec
from distilbench.prepare.augment import Copies, Operation
from distilbench.trials.budget import Budget

READY_S = 120.0
"""How long a worker waits for the others."""
CHUNK = 256
"""Sentences encoded at a time."""
ENCODE_S, AUGMENT_S, TRAIN_S = 5.0, 3.0, 12.0
"""How long each is measured; training in all phases and settings of a method together."""
WARM = 2
"""Steps of a phase that are not measured."""


@dataclass(frozen=True)
class ProbeJob:
    """What a worker measures; all workers have the same but `number`."""

    number: int
    workers: int
    asked_at: float
    """Seconds since the epoch."""
    folder: Path
    """Where workers tell each other that they are ready, and save students."""
    prepared: Path
    sentences: Sequence[str]
    teacher: EncoderSpec
    graph: Path | None
    """For ONNX Runtime; None is PyTorch."""
    bf16: bool
    """Whether the teacher encodes in bfloat16 on a CPU too."""
    operations: Sequence[Operation]
    methods: Sequence[tuple[str, str, Budget, Sequence[dict[str, Any]]]]
    """The name of a rate, the method, its budget, and hyper-parameters to measure it with."""
    threads: int


def probe_worker(job: ProbeJob) -> dict[str, Any]:
    """Seconds and rates of one worker: `worker_s`, `encode_per_s`, `augment_per_s`, `training` by method."""
    import torch

    from distilbench.encoders.encoder import default_device, encode
    from distilbench.methods import get_method
    from distilbench.prepare.onnx import load_onnx

    torch.set_num_threads(1)
    device = default_device()
    for _, name, _, _ in job.methods:
        get_method(name)
    given = job.teacher.vectors is not None
    model: Any = None
    if not given:
        model = job.teacher.load(device) if job.graph is None else load_onnx(job.teacher, job.graph)
    read: Any = partial(encode, model, prompt=job.teacher.prompt_before(), bf16=job.bf16)
    worker_s = time.time() - job.asked_at
    _wait_for_all(job)
    texts = list(job.sentences)
    if not given:
        read(texts[:16])
    rates: dict[str, Any] = {
        "worker_s": worker_s,
        "encode_per_s": None if given else per_second(texts, CHUNK, ENCODE_S, read),
        "augment_per_s": {},
        "training": {},
    }
    model = read = None  # its memory goes before a student takes some
    for operation in job.operations:
        copies = operation.load()
        copies(texts[:4], 0)
        rates["augment_per_s"][operation.name] = per_second(texts, 64, AUGMENT_S, partial(_copies, copies))
    torch.set_num_threads(job.threads)
    parts = Counter(name for _, name, _, _ in job.methods)
    for rate, name, budget, settings in job.methods:
        each_s = TRAIN_S / parts[name] / len(settings)
        rates["training"][rate] = _mean([_training(job, name, budget, params, each_s, device) for params in settings])
    return rates


def per_second(texts: Sequence[str], chunk: int, seconds: float, work: Callable[[list[str]], Any]) -> float:
    """Sentences in a second: chunk after chunk, from the first again after the last, until `seconds` are over."""
    began, done = time.perf_counter(), 0
    while True:
        start = done % len(texts)
        part = list(texts[start : start + chunk])
        work(part)
        done += len(part)
        spent = time.perf_counter() - began
        if spent >= seconds:
            return done / spent


def _copies(make: Copies, part: list[str]) -> list[str]:
    return make(part, 0)


def _is_over(until: float) -> bool:
    return time.perf_counter() > until


def _wait_for_all(job: ProbeJob) -> None:
    (job.folder / f"ready-{job.number}").touch()
    until = time.monotonic() + READY_S
    while len(list(job.folder.glob("ready-*"))) < job.workers and time.monotonic() < until:
        time.sleep(0.05)


def _training(
    job: ProbeJob, name: str, budget: Budget, params: dict[str, Any], seconds: float, device: str
) -> dict[str, Any]:
    from distilbench.prepare.prepared import load_prepared
    from distilbench.training.loop import Trainer
    from distilbench.trials.dev import dev_pca_score, dev_report, dev_rows
    from distilbench.trials.rung_training import build_method

    prepared = load_prepared(job.prepared)
    build_method(name, params, prepared, 0, device)  # what only the first one reads
    began = time.perf_counter()
    method = build_method(name, params, prepared, 0, device)
    trainer = Trainer(method, 0, budget.steps_of(params))
    begin_s = time.perf_counter() - began
    phases: dict[str, tuple[int, float]] = {}
    for number, phase in enumerate(trainer.phases):
        start, stop = trainer.starts[number : number + 2]
        trainer.step = start
        trainer.train_until(min(start + WARM, stop - 1))
        at, until = trainer.step, time.perf_counter() + seconds / len(trainer.phases)
        began = time.perf_counter()
        trainer.train_until(stop, partial(_is_over, until))
        phases[phase.name] = (phase.batch_size, (time.perf_counter() - began) / (trainer.step - at))
    dev_pca_score(job.prepared, int(params["output_dim"]))
    folder = job.folder / f"worker-{job.number}" / name
    began = time.perf_counter()
    dev_report(method, job.prepared, prepared)
    if trainer.phases:
        trainer.save(folder / "checkpoint", 1)
    judge_s = time.perf_counter() - began
    rows = dev_rows(prepared)[:1024]
    began = time.perf_counter()
    method.embed(rows)
    embed_s = time.perf_counter() - began
    began = time.perf_counter()
    method.export(folder / f"student-{time.monotonic_ns()}")
    finish_s = time.perf_counter() - began
    return {
        "phases": phases,
        "begin_s": begin_s,
        "judge_s": judge_s,
        "embed_per_s": len(rows) / max(embed_s, 1e-9),
        "finish_s": finish_s,
    }


def _mean(measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean over several settings of one method."""
    names = list(dict.fromkeys(name for training in measured for name in training["phases"]))
    steps = {name: [training["phases"][name] for training in measured if name in training["phases"]] for name in names}
    return {
        # As a step of the first one's batch: what another batch takes is in proportion to it.
        "phases": {
            name: (batches[0][0], float(np.mean([s * batches[0][0] / b for b, s in batches])))
            for name, batches in steps.items()
        },
        **{key: statistics.fmean(training[key] for training in measured) for key in ("begin_s", "judge_s", "finish_s")},
        "embed_per_s": statistics.harmonic_mean([training["embed_per_s"] for training in measured]),
    }
