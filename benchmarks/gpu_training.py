"""What benchmarks/gpu.py measures of training: every method, the peer, and many processes on one card."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from gpu_bench import (
    Bench,
    gpu_processes,
    seconds,
    sync,
    used_mb,
)

BATCHES = (128, 64, 512)
PROCESSES = (1, 16, 4, 8)


# --- methods

SMALL: dict[str, dict[str, Any]] = {
    "contrastive": {"output_dim": 16},
    "crd": {"output_dim": 0, "negatives": 24, "critic_dim": 6},
    "hpd": {"output_dim": 16, "epochs": 1.0},
    "ibkd": {"output_dim": 16, "epochs": 0.5, "ft_batch_size": 8, "ft_epochs": 1.0, "ft_lr": 0.001},
    "matryoshka": {"output_dim": 16},
    "mcr2": {"output_dim": 8, "lambda": 50.0, "clusters": 4},
    "mcr2_distil": {
        "output_dim": 8,
        "lambda": 50.0,
        "clusters": 4,
        "steps": 20,
        "distil_epochs": 1.0,
        "distil_batch_size": 16,
        "distil_lr": 0.001,
    },
    "mse": {"output_dim": 0},
    "neighbours": {"output_dim": 8, "steps": 20},
    "pca": {"output_dim": 16},
    "random_projection": {"output_dim": 16},
    "whitening": {"output_dim": 16},
}
"""Of each method but DSE, which needs a cross-encoder; output_dim 0 is the teacher's width."""
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "hpd": {
        "nested": {"nested": True},
        "cosine, regression start": {"loss": "cosine", "projection_start": "regression"},
        "fine-tuned": {"ft_epochs": 1.0, "ft_batch_size": 8, "ft_lr": 0.001},
        "tuned head": {"head_steps": 10},
        "whitened": {"whiten_from": 32},
        "embeddings trained, dropout": {"freeze_embeddings": False, "dropout": True},
    },
}


def methods(bench: Bench) -> None:
    """The loss of the first step and of 20 on CPU and card, by the same draws, and the export of what the card trained."""
    from distilbench.methods import get_method
    from distilbench.prepare.prepared import load_prepared

    folder, texts = small_corpus(bench)
    prepared = load_prepared(folder)
    width = prepared.vectors.width
    for name, params in SMALL.items():
        params = params | ({} if params["output_dim"] else {"output_dim": width})
        if "lr" in get_method(name).params_type.model_fields:
            params = params | {"lr": 0.001, "batch_size": 16}
        for variant, more in {"": {}, **VARIANTS.get(name, {})}.items():
            label = " ".join([name, variant]).strip()
            with bench.attempt(label):
                one_method(bench, label, params | more, prepared, texts)


def small_corpus(bench: Bench, count: int = 200) -> tuple[Path, Sequence[str]]:
    """Some of the demonstration prepared with the encoder in this process, and its sentences."""
    from distilbench.data.about import DEMONSTRATION
    from distilbench.data.folder import Limits, folder_corpus
    from distilbench.data.requirements import Requirements
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.prepare.encode import CorpusEncoding
    from distilbench.prepare.pca import pca_artifact
    from distilbench.prepare.prepared import Artifacts, StudentArtifacts
    from distilbench.prepare.tokens import tokens_artifact
    from distilbench.storage.store import ArtifactStore

    limits = Limits(pairs=count, sentences=2 * count)
    corpus = folder_corpus(DEMONSTRATION, limits, Requirements(triplets=True))
    teacher, store = EncoderSpec(str(bench.encoder_folder())), ArtifactStore(bench.work / "store")
    vectors, _ = CorpusEncoding(teacher, store, "methods", in_process=True).vectors(corpus.text)
    pca, tokens = pca_artifact(vectors, corpus.train, store), tokens_artifact(corpus.text, teacher, store)
    student = StudentArtifacts("layers:0,2", tokens=tokens)
    folder = bench.work / f"prepared-{count}"
    Artifacts(corpus, teacher, vectors, pca, student).save(folder)
    return folder, corpus.sentences


def one_method(bench: Bench, label: str, params: dict[str, Any], prepared: Any, texts: Sequence[str]) -> None:
    """Train a method on the CPU, on the card in float32 and in its own precision, and export the last."""
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.encoders.encoding import encode
    from distilbench.methods import get_method
    from distilbench.training.loop import Trainer
    from distilbench.trials.rung_training import build_method

    losses: dict[str, tuple[float, float]] = {}
    method, fields = None, get_method(label.split()[0]).params_type.model_fields
    ways = {"cpu": ("cpu", "fp32"), "fp32": (bench.device, "fp32"), "own": (bench.device, "auto")}
    for way, (device, precision) in ways.items():
        trained = params | ({"precision": precision} if "lr" in params else {})
        if precision == "fp32" and "dropout" in fields:
            trained["dropout"] = False
        method = build_method(label.split()[0], trained, prepared, 0, device)
        trainer = Trainer(method, 0, 20)
        with same_draws() if precision == "fp32" else contextlib.nullcontext():
            losses[way] = trainer.train_until(1), trainer.train_until(20)
    assert method is not None
    rows = prepared.train[:64]
    own = method.embed(rows)
    with tempfile.TemporaryDirectory(dir=bench.work) as folder:
        method.export(Path(folder) / "student")
        read = encode(EncoderSpec(f"{folder}/student").load("cpu"), [texts[i] for i in rows])
    norms = np.linalg.norm(own, axis=1) * np.linalg.norm(read, axis=1)
    cosine = float(((own * read).sum(axis=1) / norms).min())

    def apart(way: str, of: int) -> float:
        wanted = losses["cpu"][of]
        return abs(losses[way][of] / wanted - 1) if wanted and wanted == wanted else 0.0

    more = {"apart_of_20": apart("fp32", 1), "own_precision_apart": apart("own", 1)}
    more |= {"losses": losses, "export_cosine": cosine, "passes": apart("fp32", 0) < 1e-3 and cosine > 0.9999}
    bench.note(label, apart("fp32", 0), "of the first loss apart in fp32", **more)


@contextlib.contextmanager
def same_draws() -> Iterator[None]:
    """Random numbers are drawn on the CPU wherever they are asked for, so that both devices have the same."""
    with contextlib.ExitStack() as stack:
        for name in ("randn", "rand", "randint", "randperm"):
            stack.enter_context(mock.patch.object(torch, name, drawn_on_cpu(getattr(torch, name))))

        def randn_like(tensor: torch.Tensor) -> torch.Tensor:
            return torch.randn(tensor.shape, dtype=tensor.dtype, device=tensor.device)

        stack.enter_context(mock.patch.object(torch, "randn_like", randn_like))
        yield


def drawn_on_cpu(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same function of torch, which draws on the CPU."""
    return lambda *given, device=None, **named: draw(*given, **named).to(device or "cpu")


# --- train


@dataclass(frozen=True)
class Task:
    """A training: what it reads, its sentences, its batch, the steps before the clock runs, and those under it."""

    prepared: Any
    texts: Sequence[str]
    batch: int
    warm: int
    steps: int
    device: str

    @property
    def params(self) -> dict[str, Any]:
        """HPD of two layers at d=128 (or less, where the encoder is small), with a sweep's defaults."""
        width = min(128, self.prepared.vectors.width)
        fixed = {"epochs": 100_000, "decay": False, "decay_all": False, "dropout": False, "freeze_embeddings": True}
        return {"output_dim": width, "lr": 1e-4, "batch_size": self.batch, **fixed}


def training_task(bench: Bench) -> Task:
    """Real sentences with random targets: what is timed does not depend on their values."""
    from training import prepared_inputs

    from distilbench.encoders.encoder import EncoderSpec

    texts = bench.sentences(bench.size(20_000, 300))
    folder = bench.work / f"{bench.step}-vectors"
    folder.mkdir(exist_ok=True)
    spec = EncoderSpec(str(bench.encoder_folder()))
    prepared = prepared_inputs(folder, texts, spec, "layers:0,2")
    return Task(prepared, texts, 128, bench.size(20, 2), bench.size(200, 4), bench.device)


def our_trainer(task: Task) -> Any:
    """The product's training, warm."""
    from distilbench.training.loop import Trainer
    from distilbench.trials.rung_training import build_method

    method = build_method("hpd", task.params, task.prepared, 0, task.device)
    trainer = Trainer(method, 0, 10**9)
    trainer.train_until(task.warm)
    return trainer


def our_training(task: Task) -> tuple[float, float]:
    """Seconds and mean loss of the steps."""
    trainer = our_trainer(task)
    losses: list[float] = []
    took = seconds(lambda: losses.append(trainer.train_until(task.warm + task.steps)))
    return took, losses[0]


def their_data(task: Task) -> Any:
    """The sentences with their targets as the peer reads them."""
    from datasets import Dataset

    from distilbench.trials.rung_training import build_method

    method = build_method("hpd", task.params, task.prepared, 0, "cpu")
    return Dataset.from_dict({"sentence": list(task.texts), "label": list(method.targets_Nd)})


def their_training(task: Task, data: Any, by_length: bool, workers: int) -> tuple[float, float]:
    """The same student, targets, optimiser and clipping with SentenceTransformerTrainer and its MSELoss."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.sentence_transformer.losses import MSELoss
    from transformers import TrainerCallback
    from transformers.trainer_pt_utils import LengthGroupedSampler

    from distilbench.trials.rung_training import build_method

    method = build_method("hpd", task.params, task.prepared, 0, task.device)
    model = method.student
    model.append(method.projection)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    lengths = task.prepared.tokens.lengths_of(task.prepared.train).tolist()
    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step in (task.warm, task.warm + task.steps):
                sync()
                marks.append(time.perf_counter())

    class LengthGroups(DefaultBatchSampler):
        def __init__(self, dataset: Any, batch_size: int, drop_last: bool, **more: Any) -> None:
            grouped = LengthGroupedSampler(batch_size, lengths=lengths, generator=more["generator"])
            super().__init__(grouped, batch_size=batch_size, drop_last=drop_last)

    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=task.warm + task.steps,
            per_device_train_batch_size=task.batch,
            learning_rate=1e-4,
            lr_scheduler_type="constant",
            weight_decay=0.01,
            max_grad_norm=1.0,
            bf16=task.device == "cuda",
            optim="adamw_torch_fused",
            save_strategy="no",
            logging_steps=task.warm + task.steps,
            report_to=[],
            disable_tqdm=True,
            use_cpu=task.device == "cpu",
            dataloader_num_workers=workers,
            **({"batch_sampler": LengthGroups} if by_length else {}),
        )
        trainer = SentenceTransformerTrainer(
            model=model, args=args, train_dataset=data, loss=MSELoss(model), callbacks=[Clock()]
        )
        loss = trainer.train().training_loss * task.params["output_dim"]
    return marks[1] - marks[0], float(loss)


def train(bench: Bench) -> None:
    """Steps a second of ours and of the peer, batch by batch; the kernels of one of our steps first."""
    task = training_task(bench)
    with bench.attempt("kernels of a step"):
        kernels(bench, task)
    ways: dict[str, Callable[[Task], tuple[float, float]]] = {"distilbench": our_training}
    with bench.attempt("the peer's data"):
        theirs, peer = partial(their_training, data=their_data(task)), "SentenceTransformerTrainer"
        ways[peer] = partial(theirs, by_length=False, workers=0)
        ways[f"{peer} by length"] = partial(theirs, by_length=True, workers=0)
        ways[f"{peer} by length, 4 loaders"] = partial(theirs, by_length=True, workers=4)
    for batch in bench.size(BATCHES, (16,)):
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(bench.size(3 if batch == 128 else 1, 1)):
            for name, run in ways.items():
                with bench.attempt(f"{name}, batch {batch}"):
                    runs[name].append(run(replace(task, batch=batch)))
        ours = statistics.median(s for s, _ in runs["distilbench"]) if runs["distilbench"] else float("nan")
        for name, done in runs.items():
            if done:
                took = statistics.median(s for s, _ in done)
                more = {"sentences_per_s": task.steps * batch / took, "times_ours": took / ours}
                more |= {"seconds": [s for s, _ in done], "loss": done[0][1]}
                bench.note(f"{name}, batch {batch}", task.steps / took, "steps/s", **more)


def kernels(bench: Bench, task: Task) -> None:
    """What the card and the host do in a step, by torch's profiler."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    trainer, steps = our_trainer(task), 5
    kinds = [ProfilerActivity.CPU] if bench.cpu else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=kinds) as profiler:
        trainer.train_until(task.warm + steps)
        sync()
    rows = profiler.key_averages()
    on_card = [r for r in rows if r.device_type == DeviceType.CUDA and not getattr(r, "is_user_annotation", False)]
    copies = [r for r in on_card if r.key.startswith(("Memcpy", "Memset"))]
    ran = [r for r in on_card if r not in copies and "#" not in r.key and not r.key.startswith("Activity Buffer")]
    host = {r.key: r.count / steps for r in rows if r.key.startswith(("cudaLaunch", "cuLaunch", "cudaStreamSync"))}
    busy = sum(r.self_device_time_total for r in [*ran, *copies]) / steps / 1000
    longest = sorted(ran, key=lambda r: -r.self_device_time_total)[:12]
    top = {r.key[:80]: [r.count / steps, r.self_device_time_total / steps] for r in longest}
    count = sum(r.count for r in ran) / steps
    bench.note(
        "kernels of a step", count, "", busy_ms=busy, copies=sum(r.count for r in copies) / steps, host=host, top=top
    )


# --- share


def worker(pipe: Any, task: Task) -> None:
    """A process that, each time it is told to, builds and warms a training, says so, and trains when it is told again."""
    torch.set_num_threads(1)
    if task.device == "cuda":
        torch.zeros(1, device="cuda")
    pipe.send("up")
    while pipe.recv():
        try:
            began = time.perf_counter()
            trainer = our_trainer(task)
            sync()
            pipe.send(time.perf_counter() - began)
            pipe.recv()
            began = time.perf_counter()
            trainer.train_until(task.warm + task.steps)
            sync()
            reserved = torch.cuda.max_memory_reserved() / 1e6 if task.device == "cuda" else 0.0
            pipe.send((began, time.perf_counter(), reserved))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def answer(pipe: Any, patience_s: float = 600.0) -> Any:
    """What a worker says."""
    if not pipe.poll(patience_s):
        raise TimeoutError(f"a worker said nothing in {patience_s:g} s")
    said = pipe.recv()
    if isinstance(said, str) and said != "up":
        raise RuntimeError(said)
    return said


def together(pipes: Sequence[Any], task: Task) -> tuple[float, float, list[float]]:
    """Steps a second of all these workers at once, mean seconds of a build, MB reserved by each."""
    for pipe in pipes:
        pipe.send(True)
    builds = [answer(pipe) for pipe in pipes]
    for pipe in pipes:
        pipe.send(True)
    done = [answer(pipe) for pipe in pipes]
    wall = max(end for _, end, _ in done) - min(begin for begin, _, _ in done)
    return len(pipes) * task.steps / wall, statistics.mean(builds), [mb for _, _, mb in done]


def share(bench: Bench) -> None:
    """Plain processes, then the same under MPS where there is its program. The card's settings stay as they are."""
    task = replace(training_task(bench), device=bench.device)
    at_once(bench, task, bench.size(PROCESSES, (1, 2)), "")
    if shutil.which("nvidia-cuda-mps-control") is None or bench.cpu:
        return
    with bench.attempt("MPS"):
        folder = os.environ.setdefault("CUDA_MPS_PIPE_DIRECTORY", "/tmp/gpu-mps")
        os.environ.setdefault("CUDA_MPS_LOG_DIRECTORY", folder)
        Path(folder).mkdir(exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, timeout=20)
        try:
            at_once(bench, task, (16, 1), ", MPS")
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=30, check=False)


def at_once(bench: Bench, task: Task, counts: Sequence[int], how: str) -> None:
    """Start the most workers; let the first 1, 4, ... of them train at once, three times each."""
    context = multiprocessing.get_context("spawn")
    before = 0.0 if bench.cpu else used_mb()
    began, pipes, started = time.perf_counter(), [], []
    try:
        for _ in range(max(counts)):
            ours, its = context.Pipe()
            process = context.Process(target=worker, args=(its, task), daemon=True)
            process.start()
            pipes.append(ours)
            started.append(process)
        for pipe in pipes:
            answer(pipe)
        bench.note(f"start of {max(counts)} processes{how}", time.perf_counter() - began, "s")
        for count in counts:
            name = f"{count} process{'es' * (count > 1)}{how}"
            with bench.attempt(name):
                rounds = [together(pipes[:count], task) for _ in range(bench.size(3, 1))]
                rate, reserved = statistics.median(r for r, _, _ in rounds), rounds[-1][2]
                more = {"rounds": [r for r, _, _ in rounds], "build_s": [b for _, b, _ in rounds]}
                bench.note(name, rate, "steps/s", **more, reserved_mb=max(reserved))
        if not bench.cpu:
            bench.note(f"a process of {max(counts)}{how}", (used_mb() - before) / max(counts), "MB on the card")
            with bench.attempt("processes by NVML"):
                bench.note(f"NVML{how}", len(gpu_processes()), "processes", mb=list(gpu_processes().values()))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(10)
