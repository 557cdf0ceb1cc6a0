"""What benchmarks/gpu.py does to a training: memory that another process holds, and an error after which the GPU is lost."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from gpu_bench import Bench
from gpu_training import small_corpus

from distilbench.machine import release_memory
from distilbench.trials.budget import Budget
from distilbench.trials.rung_training import RUNGS, RungTraining
from distilbench.trials.training_spec import TrainingSpec

HOLD = """
import sys, torch
torch.cuda.init()
free = torch.cuda.mem_get_info()[0]
held = torch.empty(max(1, free - int(float(sys.argv[1]))), dtype=torch.uint8, device="cuda")
print("held", flush=True)
input()
"""


def spec_of(
    bench: Bench,
    prepared: Path,
    name: str,
    batch: int,
    steps: int,
    method: str = "hpd",
    params: dict[str, Any] | None = None,
) -> TrainingSpec:
    """A training from its start, judged once."""
    folder = bench.work / bench.step / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    budget = Budget.model_validate({"trials": 1, "steps": steps, "rungs": 1, "eta": 3, "start": False})
    chosen = {"output_dim": 16, "lr": 0.001, "batch_size": batch, **(params or {"epochs": 100_000})}
    return TrainingSpec(method, chosen, 0, budget, prepared, folder, folder.with_suffix(".txt"))


def trained(spec: TrainingSpec, device: str) -> RungTraining:
    """The training at its end."""
    training = RungTraining(spec, device)
    while not training.done:
        training.advance()
    return training


@contextlib.contextmanager
def held(bench: Bench, left: float) -> Iterator[None]:
    """Another process holds all of the card's memory but `left` bytes; on a CPU one pass, or all of them, fail instead."""
    if bench.cpu:
        from sentence_transformers import SentenceTransformer

        real, calls = SentenceTransformer.forward, [0]

        def forward(model: Any, *given: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] == 1 or left < 1e9:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return real(model, *given, **named)

        with mock.patch.object(SentenceTransformer, "forward", forward):
            yield
        return
    release_memory()
    code = [sys.executable, "-c", HOLD, str(left)]
    other = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin and other.stdout
    try:
        if other.stdout.readline().strip() != "held":
            raise RuntimeError("the other process could not hold the card's memory")
        yield
    finally:
        other.communicate("\n")


def oom(bench: Bench) -> None:
    """A training alone, beside a process that leaves it 70 % of what it took, beside one that leaves little, and after."""
    prepared, _ = small_corpus(bench, bench.size(100_000, 200))
    batch, steps = bench.size(2048, 16), bench.size(30, 4)

    def one(name: str) -> tuple[str, dict[str, Any]]:
        training = trained(spec_of(bench, prepared, name, batch, steps), bench.device)
        metrics = training.rungs[-1].metrics if training.rungs else {}
        return training.failed, dict(metrics)

    release_memory()
    failed, alone = one("alone")
    peak = 2e9 if bench.cpu else float(torch.cuda.max_memory_reserved())
    bench.note("alone", alone.get("loss"), "loss", peak_mb=peak / 1e6, failed=failed, batch=batch)
    with held(bench, max(1e9, 0.7 * peak)):
        failed, halved = one("halved")
    apart = abs(halved["loss"] / alone["loss"] - 1) if halved and alone.get("loss") else None
    parts = halved.get("micro_batches")
    bench.note("with 70 % of the memory", apart, "of the loss apart", micro_batches=parts, failed=failed)
    with held(bench, min(9e8, 0.1 * peak)):
        failed, _ = one("failed")
    bench.note("with little memory", failed or "it did not fail")
    failed, after = one("after")
    same = after.get("loss") == alone.get("loss")
    bench.note("after it", after.get("loss"), "loss", failed=failed, same_as_alone=same)


def lose_the_gpu(self: Any, index_B: Any) -> Any:
    """A loss that asks the card for a row that is not there."""
    if self.device == "cuda":
        torch.zeros(3, device="cuda")[torch.tensor([7], device="cuda")].sum().item()
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def sticky_worker(pipe: Any, spec: TrainingSpec, device: str, broken: bool) -> None:
    """A worker's process: it ends by itself, or says how the training ended."""
    from distilbench.methods.hpd import HPD

    with mock.patch.object(HPD, "loss", lose_the_gpu) if broken else contextlib.nullcontext():
        training = trained(spec, device)
    pipe.send((training.failed, len(training.rungs)))


def sticky(bench: Bench) -> None:
    """The card is lost to a worker once, to the next one not; of another training twice."""
    prepared, _ = small_corpus(bench)
    context = multiprocessing.get_context("spawn")
    for name, errors in {"once": [True, False], "twice": [True, True, True]}.items():
        spec = spec_of(bench, prepared, name, 16, 4)
        for number, broken in enumerate(errors, 1):
            began = time.perf_counter()
            ours, its = context.Pipe()
            worker = context.Process(target=sticky_worker, args=(its, spec, bench.device, broken))
            worker.start()
            its.close()
            try:
                failed, rungs = ours.recv()
            except EOFError:
                failed, rungs = "the process ended", 0
            worker.join(60)
            noted = json.loads((spec.folder / RUNGS).read_text()).get("device_errors", [])
            more = {"exit": worker.exitcode, "rungs": rungs, "noted": [said[:200] for said in noted]}
            said = (failed or "it ended well").splitlines()[0][:120]
            bench.note(f"{name}, process {number}", said, "", seconds=time.perf_counter() - began, **more)
