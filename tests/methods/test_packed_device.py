"""Steps that a GPU can replay: the same states, gradients and trainings as step by step, tried on the CPU without graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from distilbench.encoders.encoding import padded
from distilbench.methods.method import all_on_device, fit_on_device
from distilbench.methods.parts.packed_device import DeviceTokens, filled_tokens
from distilbench.prepare.tokens import Tokens
from distilbench.training.loop import Diverged, Trainer
from distilbench.training.replay import KEPT
from tests.methods.test_packed import KNOWN, student_of

Build = Callable[..., Any]


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a GPU's way of training, in float32 and without graphs."""
    monkeypatch.setattr(Trainer, "_can_replay", lambda self: True)


def test_few_numbers_of_tokens_come() -> None:
    assert [filled_tokens(n) for n in (1, 256, 257, 2190, 8760)] == [256, 256, 512, 2304, 9216]
    assert len({filled_tokens(n) for n in range(8192, 16384)}) == 9


@pytest.mark.parametrize("kind", KNOWN)
def test_states_and_gradients_are_those_of_a_padded_batch(kind: str) -> None:
    student, rng = student_of(kind), np.random.default_rng(0)
    lengths = np.array([7, 2, 31, 3, 9, 3])
    ids = rng.integers(2, 50, lengths.sum()).astype(np.int32)
    tokens = Tokens(ids, np.concatenate([[0], lengths.cumsum()]))
    rows = [4, 2, 0, 5]
    target = torch.randn(len(rows), 16, generator=torch.Generator().manual_seed(1))

    def gradients(means: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        student.zero_grad()
        (means - target).square().mean().backward()
        return means.detach(), {n: p.grad.clone() for n, p in student.named_parameters() if p.grad is not None}

    plain = gradients(student(padded([tokens[row] for row in rows], 1, "cpu"))["sentence_embedding"])
    device = DeviceTokens(tokens, 1, "cpu")
    for filled in (50, 64, 256):  # with nothing that fills, with some, with more than a sentence may be long
        means, its_gradients = gradients(device.means(student, torch.tensor(rows), filled))
        torch.testing.assert_close(means, plain[0], atol=1e-5, rtol=0)
        for name, gradient in plain[1].items():
            torch.testing.assert_close(its_gradients[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
    both = device.means(student, torch.tensor(rows), 64, with_embeddings=True)
    assert both.shape == (4, 32)
    hidden = student[0].model(**padded([tokens[2]], 1, "cpu"), output_hidden_states=True).hidden_states[0]
    torch.testing.assert_close(both[1, :16], hidden[0].mean(dim=0), atol=1e-5, rtol=0)


METHODS: dict[str, dict[str, Any]] = {
    "hpd": {},
    "hpd nested, with similarities": {"nested": True, "similarities": 0.5},
    "hpd tuned head": {"head_steps": 4},
    "mse": {},
    "ibkd": {},
    "mcr2_distil": {},
    "contrastive": {},
}
"""CRD draws its negatives where the numbers are, and so draws others."""
HEADS: dict[str, dict[str, Any]] = {
    "mcr2": {},
    "mcr2 noisy, residual": {"pairs": "noise", "head": "residual"},
    "mcr2 more clusters than rows are wide": {"clusters": 24, "batch_size": 40},
    "neighbours": {},
    "neighbours groups, residual": {"group": 4, "head": "residual"},
}


@pytest.mark.parametrize("name", [*METHODS, *HEADS])
def test_a_training_is_the_one_step_by_step(name: str, build: Build, replaying: None) -> None:
    def trained(replay: bool) -> tuple[list[float], Any]:
        fixed = {"dropout": False, "freeze_embeddings": True} if name in METHODS else {}
        method = build(name.split()[0], **fixed | (METHODS | HEADS)[name])
        trainer = Trainer(method, 0, 24)
        if not replay:
            trainer._can_replay = lambda: False
        losses = [trainer.train_until(step) for step in (3, 11, 24)]
        assert (trainer.replay is not None) == (replay and trainer.phases[trainer.phase].shape is not None)
        return losses, method

    (losses, method), (plain, plain_method) = trained(True), trained(False)
    assert losses == pytest.approx(plain, rel=1e-4)
    rows = method.prepared.train[:20]
    atol = 1e-3 if name.startswith("mcr2") else 1e-4  # a coding rate's steps make more of what rounding differs by
    np.testing.assert_allclose(method.embed(rows), plain_method.embed(rows), atol=atol)


def test_negatives_drawn_on_the_device_train(build: Build, replaying: None) -> None:
    trainer = Trainer(build("crd", dropout=False), 0, 30)
    first = trainer.train_until(10)
    assert trainer.replay is not None and trainer.train_until(30) < first


def test_a_resumed_training_is_bit_for_bit_the_uninterrupted_one(build: Build, replaying: None, tmp_path: Path) -> None:
    def start() -> Trainer:
        return Trainer(build("hpd", dropout=False, freeze_embeddings=True), 3, 8)

    whole, first, second = start(), start(), start()
    whole.train_until(8)
    first.train_until(8, pause=lambda: first.step == 3)
    first.save(tmp_path, rung=1)
    assert second.resume(tmp_path) == 1 and second.step == 3
    second.train_until(8)
    assert second.mean_loss == whole.mean_loss
    rows = whole.method.prepared.train[:20]
    assert np.array_equal(whole.method.embed(rows), second.method.embed(rows))


def test_more_steps_than_are_kept_on_the_device(build: Build, replaying: None) -> None:
    trainer = Trainer(build("hpd", dropout=False, epochs=100), 0, KEPT + 9)
    trainer.train_until(KEPT + 9)
    assert trainer.step == KEPT + 9 and trainer._losses[1] == KEPT + 9


def test_a_loss_that_is_not_finite_leaves_the_parameters_before_it(build: Build, replaying: None) -> None:
    trainer = Trainer(build("hpd", dropout=False), 0, 8)
    trainer.train_until(2)
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.method.targets_Nd[:] = np.nan
    trainer.method._copies.clear()
    with pytest.raises(Diverged, match="at step 2"):
        trainer.train_until(8)
    assert trainer.step == 2
    assert all(torch.equal(p, q) for p, q in zip(trainer.parameters, before, strict=True))


def test_a_gpu_makes_the_targets_of_a_batch(build: Build) -> None:
    method = build("hpd", dropout=False)
    rows = method.rows[[3, 1, 4]]
    np.testing.assert_allclose(method.batch_targets(torch.from_numpy(rows)), method.targets_Nd[[3, 1, 4]], atol=1e-5)
    method.targets_Nd = None
    assert method.loss(np.arange(8)).item() == pytest.approx(build("hpd", dropout=False).loss(np.arange(8)).item())


def test_the_vectors_of_a_device_are_those_of_the_files(build: Build) -> None:
    method = build("hpd", dropout=False)
    vectors, rows = method.prepared.vectors, np.array([5, 0, 5, 9])
    np.testing.assert_array_equal(all_on_device(vectors, "cpu")[rows].float(), vectors.take(rows))
    np.testing.assert_array_equal(method.teacher_vectors(torch.from_numpy(rows)), vectors.take(rows))
    assert not fit_on_device(vectors, "cpu")


def test_what_cannot_be_replayed_is_trained_step_by_step(build: Build, replaying: None) -> None:
    dropout = Trainer(build("hpd", dropout=True), 0, 4)
    dropout.train_until(2)
    assert dropout.replay is not None and dropout.replay._made == 0
    parts = build("hpd", dropout=False)
    parts.halve_micro_batches()
    trainer = Trainer(parts, 0, 4)
    trainer.train_until(2)
    assert trainer.replay is not None and trainer.replay._made == 0


def test_a_step_that_cannot_be_captured_is_made_and_numbers_can_be_drawn(
    build: Build, replaying: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(*_: Any, **__: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    generator = Mock()
    for name, stand_in in {
        "graph": waits,
        "CUDAGraph": Mock,
        "synchronize": Mock(),
        "current_device": lambda: 0,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    trained, plain = (Trainer(build("mcr2"), 0, 8) for _ in range(2))
    plain.train_until(6)
    trained.train_until(2)
    replay = trained.replay
    assert replay is not None
    monkeypatch.setattr(replay, "step", replay._step)  # without a stream of a GPU's
    replay._captures, replay._stream, replay._pool = True, None, None  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="not replayed as CUDA graphs: operation not permitted"):
        trained.train_until(6)
    generator.graphsafe_set_state.assert_called_once_with(generator.clone_state())
    assert trained.mean_loss == plain.mean_loss
