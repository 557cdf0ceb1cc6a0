"""The loop on real methods: batches, schedule, bit-for-bit resume, and the guard against non-finite losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoding import encode_ids
from distilbench.methods.method import Method
from distilbench.prepare.prepared import load_prepared
from distilbench.training.checkpoint import load_checkpoint
from distilbench.training.loop import Trainer, epoch_batches
from distilbench.trials.rung_training import build_method

MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.01, "batch_size": 16, "pairs": "noise"}
HPD = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 3}
# Two phases: the second learns from the head that the first has trained; from pairs, through a layer that it adds.
DISTIL = {**MCR2, "steps": 100, "distil_epochs": 8, "distil_batch_size": 16}
IBKD = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 8, "labelled": "pairs"}
IBKD |= {"ft_epochs": 25, "ft_batch_size": 16, "ft_lr": 0.001}


def build(prepared_folder: Path, name: str, params: dict[str, Any]) -> Method:
    return build_method(name, params, load_prepared(prepared_folder), 0, "cpu")


def weights(method: Method) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in method.named_parameters()}


@pytest.mark.parametrize(("examples", "size", "batches"), [(100, 8, 12), (16, 16, 1), (17, 16, 1), (5, 2, 2)])
def test_an_epoch_draws_every_example_at_most_once(examples: int, size: int, batches: int) -> None:
    drawn = epoch_batches(examples, size, [0, 0, 0])
    assert drawn.shape == (batches, size)
    assert len(np.unique(drawn)) == batches * size and 0 <= drawn.min() and drawn.max() < examples
    assert np.array_equal(drawn, epoch_batches(examples, size, [0, 0, 0]))


@pytest.mark.parametrize(
    ("name", "params"),
    [("mcr2", MCR2), ("hpd", HPD), ("mcr2_distil", DISTIL), ("ibkd", IBKD)],  # noise, Gumbel draws, dropout, two phases
)
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(
    prepared_folder: Path, tmp_path: Path, name: str, params: dict[str, Any]
) -> None:
    def trainer() -> Trainer:
        return Trainer(build(prepared_folder, name, params), seed=3, budget=9)

    whole, embedded = trainer(), {}
    rows = load_prepared(prepared_folder).train[:9]
    boundary = whole.starts[1] if len(whole.phases) > 1 else 4
    killed = range(boundary - 1, boundary + 2)  # before, at and after the begin of a second phase
    for step in killed:
        whole.train_until(step)
        whole.save(tmp_path / str(step), rung=1)
        embedded[step] = whole.method.embed(rows)
    whole.train_until(9)
    for step in killed:
        second = trainer()
        assert second.resume(tmp_path / str(step)) == 1 and second.step == step
        assert np.array_equal(second.method.embed(rows), embedded[step])
        second.train_until(9)
        for key, tensor in weights(whole.method).items():
            assert torch.equal(tensor, weights(second.method)[key]), (step, key)
        assert np.array_equal(second.method.embed(rows), whole.method.embed(rows))


def test_two_checkpoints_are_kept_and_a_damaged_one_is_passed_over(prepared_folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(build(prepared_folder, "mcr2", MCR2), 0, 9)
    for rung, step in enumerate((1, 3, 9), start=1):
        trainer.train_until(step)
        trainer.save(tmp_path, rung)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rung-2.safetensors", "rung-3.safetensors"]
    newest = tmp_path / "rung-3.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    found = load_checkpoint(tmp_path, build(prepared_folder, "mcr2", MCR2))
    assert found is not None and (found.rung, found.state["step"], found.state["phase"]) == (2, 3, 0)


def test_what_is_frozen_is_neither_trained_nor_saved(prepared_folder: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    method = build(prepared_folder, "mcr2", MCR2)
    assert isinstance(method.compression, torch.nn.Module)
    method.compression.trunk.requires_grad_(False)
    before = weights(method)
    trainer = Trainer(method, 0, 9)
    trainer.train_until(2)
    trainer.save(tmp_path, 1)
    changed = {name for name, w in weights(method).items() if not torch.equal(w, before[name])}
    assert changed == {name for name, p in method.named_parameters() if p.requires_grad} != before.keys()
    with safe_open(tmp_path / "rung-1.safetensors", framework="pt") as file:
        assert {k.removeprefix("parameter/") for k in file.keys() if k.startswith("parameter/")} == changed


@pytest.mark.parametrize(("name", "params"), [("mcr2", MCR2), ("hpd", HPD)])
def test_methods_train_in_half_precision(prepared_folder: Path, name: str, params: dict[str, Any]) -> None:
    method = build(prepared_folder, name, {**params, "precision": "bf16"})
    before = weights(method)
    trainer = Trainer(method, 0, 30)
    loss = trainer.train_until(30)
    assert trainer.step == 30 and np.isfinite(loss)
    assert all(torch.isfinite(w).all() for w in weights(method).values())
    assert any(not torch.equal(w, before[key]) for key, w in weights(method).items())
    assert method.embed(method.prepared.train[:5]).dtype == np.float32


def test_a_student_in_half_precision_embeds_in_it(prepared_folder: Path, tmp_path: Path) -> None:
    whole, half = (build(prepared_folder, "hpd", {**HPD, "precision": precision}) for precision in ("fp32", "bf16"))
    half.load_state_dict(whole.state_dict())
    rows = whole.prepared.train[:20]
    exact_Nd, near_Nd = whole.embed(rows), half.embed(rows)
    assert not np.array_equal(near_Nd, exact_Nd)
    whole.export(tmp_path / "student")
    model = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    # How near it is to the exact one depends on the processor.
    rounded_Nd = encode_ids(model, [whole.tokens[row] for row in rows], bf16=True)
    np.testing.assert_allclose(near_Nd, rounded_Nd, atol=0.05 * float(np.abs(exact_Nd).max()))
