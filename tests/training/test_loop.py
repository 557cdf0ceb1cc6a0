"""The loop: batches, schedule, bit-for-bit resume, and the guard against non-finite losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.methods.method import Method
from distilbench.prepare.prepared import load_prepared
from distilbench.search.trial import build_method
from distilbench.training.checkpoint import load_checkpoint
from distilbench.training.loop import Diverged, Trainer, epoch_batches

MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.01, "batch_size": 16, "pairs": "noise"}
HPD = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 3}


def build(prepared_folder: Path, name: str, params: dict[str, Any]) -> Method:
    return build_method(name, params, load_prepared(prepared_folder), 0, "cpu")


def weights(method: Method) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in method.named_parameters()}


@pytest.mark.parametrize("lengths", [None, np.arange(100) % 17])
def test_an_epoch_draws_every_example_at_most_once(lengths: np.ndarray | None) -> None:
    batches = epoch_batches(100, 8, lengths, seed=0, epoch=0)
    assert len(batches) == 12 and all(len(b) == 8 for b in batches)
    drawn = np.concatenate(batches)
    assert len(np.unique(drawn)) == 96
    assert not np.array_equal(drawn, np.concatenate(epoch_batches(100, 8, lengths, seed=0, epoch=1)))
    assert np.array_equal(drawn, np.concatenate(epoch_batches(100, 8, lengths, seed=0, epoch=0)))


def test_batches_are_of_similar_length() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, size=4096)

    def padded(batches: list[np.ndarray]) -> int:
        return sum(len(b) * lengths[b].max() for b in batches)

    assert padded(epoch_batches(4096, 32, lengths, 0, 0)) < 0.7 * padded(epoch_batches(4096, 32, None, 0, 0))


@pytest.mark.parametrize(("name", "params"), [("mcr2", MCR2), ("hpd", HPD)])  # noise and Gumbel draws; dropout
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(
    prepared_folder: Path, tmp_path: Path, name: str, params: dict[str, Any]
) -> None:
    whole = Trainer(build(prepared_folder, name, params), seed=3, total_steps=9)
    whole.train_until(9)
    first = Trainer(build(prepared_folder, name, params), seed=3, total_steps=9)
    first.train_until(4)
    first.save(tmp_path, rung=1)
    second = Trainer(build(prepared_folder, name, params), seed=3, total_steps=9)
    assert second.resume(tmp_path) == 1 and second.step == 4
    second.train_until(9)
    for key, tensor in weights(whole.method).items():
        assert torch.equal(tensor, weights(second.method)[key]), key


def test_another_seed_is_another_run(prepared_folder: Path) -> None:
    runs = []
    for seed in (0, 1):
        trainer = Trainer(build(prepared_folder, "mcr2", MCR2), seed, 3)
        trainer.train_until(3)
        runs.append(weights(trainer.method)["features.linear.weight"])
    assert not torch.equal(*runs)


def test_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over(prepared_folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(build(prepared_folder, "mcr2", MCR2), 0, 9)
    for rung, step in enumerate((1, 3, 9), start=1):
        trainer.train_until(step)
        trainer.save(tmp_path, rung)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rung-2.safetensors", "rung-3.safetensors"]
    newest = tmp_path / "rung-3.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    assert load_checkpoint(tmp_path, build(prepared_folder, "mcr2", MCR2), None) == (2, 3)


def test_learning_rate_rises_then_falls(prepared_folder: Path) -> None:
    trainer = Trainer(build(prepared_folder, "hpd", {**HPD, "warmup": 0.2, "lr": 1.0}), 0, 10)
    rates = [trainer.learning_rate(step) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[2:] == sorted(rates[2:], reverse=True) and rates[-1] == pytest.approx(1 / 8)


def test_a_loss_that_is_not_finite_stops_the_trial_with_its_step(
    prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build(prepared_folder, "mcr2", MCR2)
    real, calls = method.loss, iter(range(100))
    monkeypatch.setattr(method, "loss", lambda index: real(index) * (float("nan") if next(calls) == 2 else 1))
    trainer = Trainer(method, 0, 9)
    with pytest.raises(Diverged, match="at step 2"):
        trainer.train_until(9)
    assert all(torch.isfinite(w).all() for w in weights(method).values())
