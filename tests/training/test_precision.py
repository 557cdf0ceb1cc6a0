"""Precision of the forward pass, clipped gradients, and what ends a training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from toy_learner import FIRST, SECOND, Toy

from distilbench.training.loop import Diverged, Trainer
from distilbench.trials.rung_training import describe_error

TOTAL = FIRST + SECOND


def weights(toy: Toy) -> list[Tensor]:
    return [p.detach().clone() for p in toy.parameters()]


def norm(toy: Toy) -> float:
    grads = [p.grad for p in toy.parameters() if p.grad is not None]
    return torch.cat([g.flatten() for g in grads]).norm().item()


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("fp32", torch.float32), ("bf16", torch.bfloat16)],
)
def test_the_forward_pass_has_the_precision_asked_for(precision: str, dtype: torch.dtype) -> None:
    toy = Toy(precision=precision, first=60, second=60)
    trainer = Trainer(toy, 0, 1000)
    early = trainer.train_until(10)
    assert trainer.train_until(60) < early
    first = trainer.train_until(70)
    assert trainer.train_until(120) < first
    assert toy.dtypes == {dtype}
    assert {p.dtype for p in toy.parameters()} == {torch.float32}  # the parameters stay whole


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("step", [2, FIRST + 1])
def test_a_loss_that_is_not_finite_ends_the_training(
    precision: str, bad: float, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(precision=precision)
    name = "one" if step < FIRST else "two"
    real, calls = getattr(toy, name), iter(range(100))
    monkeypatch.setattr(toy, name, lambda b: real(b) * (bad if next(calls) == (step if step < FIRST else 1) else 1))
    trainer = Trainer(toy, 0, 1000)
    trainer.train_until(step)
    before = weights(toy)
    with pytest.raises(Diverged) as error:
        trainer.train_until(TOTAL)
    assert trainer.step == step
    assert str(error.value).startswith(f"loss {bad}, gradient norm ") and str(error.value).endswith(f" at step {step}")
    assert describe_error(error.value) == str(error.value)  # the reason of the trial: no type, no place in our code
    assert all(torch.equal(a, b) for a, b in zip(before, weights(toy), strict=True))


@pytest.mark.parametrize("clip", [0.01, 1.0])
def test_gradients_are_clipped_to_the_norm_asked_for(clip: float) -> None:
    toy = Toy(clip=clip, factor=10.0)
    trainer = Trainer(toy, 0, 1000)
    for step in range(TOTAL):
        trainer.train_until(step + 1)
        assert norm(toy) == pytest.approx(clip, rel=1e-3)
