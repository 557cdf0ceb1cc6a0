"""Memory that runs out: the batch is read in halves with the same loss and gradients, then the training fails and says so."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from distilbench.data.corpus import PairSplit, PairTask
from distilbench.methods.mcr2 import MCR2 as Mcr2
from distilbench.methods.parts import encoder_method
from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.trials.budget import Budget
from distilbench.trials.rung_training import RungTraining, build_method
from distilbench.trials.training_spec import TrainingSpec

TRAINED = {"lr": 0.003, "batch_size": 16, "dropout": True, "freeze_embeddings": False}
"""With dropout, without which training reads packed batches."""
RANDOM = {"projection_start": "random", **TRAINED}
"""From a random start, so that the student reads no more than the batch."""
METHODS: dict[str, dict[str, Any]] = {
    "contrastive": {"output_dim": 8, **RANDOM},
    "hpd": {"output_dim": 8, **RANDOM, "epochs": 9},
    "ibkd": {
        "output_dim": 8,
        "map_start": "random",
        **RANDOM,
        "epochs": 1,
        "ft_epochs": 1.0,
        "ft_batch_size": 16,
        "ft_lr": 0.003,
    },
    "dse": {"output_dim": 24, "task": "T", "pooled_layers": 2, "hidden": 16, **RANDOM, "epochs": 2},
    "mse": {"output_dim": 32, "map_start": "random", **TRAINED},
}
CASES = [(name, 0) for name in METHODS] + [("ibkd", 1)]
"""Method and phase."""


@pytest.fixture(scope="module")
def prepared(prepared_folder: Path) -> Prepared:
    plain, rng = load_prepared(prepared_folder), np.random.default_rng(3)
    sides = rng.choice(plain.train, (2, 48))
    split = PairSplit(sides[0], sides[1], rng.integers(0, 2, 48).astype(np.float64))
    task = PairTask("T", "binary", ("no", "yes"), 0.0, 1.0, {"train": split, "dev": split})
    return replace(plain, pair_task=task, logits_PC=rng.normal(size=(48, 1)).astype(np.float32))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Tokens, padding included, of each pass through the student's transformer."""
    seen: list[int] = []

    def counted(real: Callable[..., dict[str, torch.Tensor]]) -> Callable[..., dict[str, torch.Tensor]]:
        def make(*arguments: Any) -> dict[str, torch.Tensor]:
            part = real(*arguments)
            seen.append(int(part["input_ids"].numel()))
            return part

        return make

    for name in ("padded", "packed"):
        monkeypatch.setattr(encoder_method, name, counted(getattr(encoder_method, name)))
    yield seen


def make(prepared: Prepared, name: str, phase: int, halves: bool, train: bool) -> tuple[EncoderMethod, Any]:
    method = build_method(name, METHODS[name], prepared, 0, "cpu")
    assert isinstance(method, EncoderMethod)
    if halves:
        assert method.halve_micro_batches()
    own = method.phases()[phase]
    own.begin()
    method.train(train)
    return method, own


def gradients(method: EncoderMethod, phase: Any) -> tuple[float, dict[str, torch.Tensor]]:
    torch.manual_seed(5)
    loss = phase.loss(np.arange(16))
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in method.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("name", "phase"), CASES)
def test_halves_have_the_gradients_of_the_whole_batch(
    prepared: Prepared, passes: list[int], name: str, phase: int
) -> None:
    whole_loss, whole = gradients(*make(prepared, name, phase, halves=False, train=False))
    at_once = passes.copy()
    passes.clear()
    loss, halves = gradients(*make(prepared, name, phase, halves=True, train=False))
    assert len(passes) > len(at_once) and max(passes) <= max(max(at_once) / 2, 16)
    assert loss == pytest.approx(whole_loss, rel=1e-5)
    assert halves.keys() == whole.keys() and any("student" in n for n in whole)
    largest = max(float(gradient.abs().max()) for gradient in whole.values())
    for key, gradient in whole.items():
        assert torch.allclose(halves[key], gradient, rtol=1e-3, atol=1e-5 * largest), key


class Device:
    """A device on which a pass of more than `tokens` padded tokens takes too much memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tokens: int, when: Callable[[bool], bool]) -> None:
        self.failed: list[int] = []
        self.held: list[weakref.ref[torch.Tensor]] = []
        real = SentenceTransformer.forward

        def forward(model: SentenceTransformer, part: dict[str, torch.Tensor], **named: Any) -> Any:
            assert all(tensor() is None for tensor in self.held), "the failed pass still holds its memory"
            count = int(part["input_ids"].numel())
            if count > tokens and when(torch.is_inference_mode_enabled()):
                state = torch.zeros(9)
                self.held.append(weakref.ref(state))
                self.failed.append(count)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee the documentation")
            return real(model, part, **named)

        monkeypatch.setattr(SentenceTransformer, "forward", forward)


def spec_of(tmp_path: Path, prepared_folder: Path, method: str, **params: Any) -> TrainingSpec:
    budget = Budget.model_validate({"trials": 1, "steps": 18, "rungs": 3, "eta": 3, "start": False})
    return TrainingSpec(method, params, 0, budget, prepared_folder, tmp_path / "trial", tmp_path / "hang.txt")


def train(spec: TrainingSpec) -> RungTraining:
    training = RungTraining(spec, "cpu")
    while not training.done:
        training.advance()
    return training


def test_memory_that_runs_out_in_training(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, prepared_folder, "hpd", **METHODS["hpd"])
    first = RungTraining(spec, "cpu")
    first.advance()
    device = Device(monkeypatch, 130, lambda judging: not judging)
    training = train(spec)
    assert training.failed == "" and [r.step for r in training.rungs] == [2, 6, 18]
    assert len(device.failed) == 1 and device.failed[0] > 130
    assert [r.metrics.get("micro_batches") for r in training.rungs] == [None, 2.0, 2.0]
    assert training.rungs[0] == first.rungs[0]
    whole = train(replace(spec, folder=tmp_path / "other"))
    assert len(device.failed) == 2
    assert whole.rungs[-1].metrics["loss"] == pytest.approx(training.rungs[-1].metrics["loss"], rel=0.2)


def test_memory_that_runs_out_with_halves_too(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch, 30, lambda judging: not judging)
    training = train(spec_of(tmp_path, prepared_folder, "hpd", **METHODS["hpd"]))
    assert len(device.failed) == 2
    assert training.failed == (
        "out of memory on the device, also with half the micro-batch: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "See the documentation"
    )
    assert not training.loaded  # what it had is free for the next trial


def test_a_method_whose_batch_is_read_at_once_fails_at_once(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}
    calls = []

    def embed(self: Mcr2, rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Mcr2, "embed", embed)
    training = train(spec_of(tmp_path, prepared_folder, "mcr2", **params))
    assert len(calls) == 1
    assert training.failed == (
        "out of memory on the device; this method's batch cannot be read in parts, so batch_size has to be smaller: "
        "CUDA out of memory."
    )
