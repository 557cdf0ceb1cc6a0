"""The optimiser of matrices and of rows, clipped gradients, the precision of the forward pass, and what ends a training."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from toy_learner import FIRST, SECOND, Toy

from distilbench.training.clipping import clip_gradients
from distilbench.training.loop import Diverged, Trainer, decay_groups
from distilbench.trials.rung_training import describe_error


def test_decay_spares_vectors_unless_it_is_for_all() -> None:
    toy = Toy(decay_all=False, weight_decay=0.5)
    groups = decay_groups(list(toy.parameters()), toy.params)
    assert [g["weight_decay"] for g in groups] == [0.5, 0.0]
    assert {q.ndim for q in groups[0]["params"]} == {2} and {q.ndim for q in groups[1]["params"]} == {1}
    (alone,) = decay_groups(list(toy.parameters()), Toy(decay_all=True, weight_decay=0.5).params)
    assert alone["weight_decay"] == 0.5 and len(alone["params"]) == 4


def test_clip_0_leaves_gradients_as_they_are() -> None:
    def moved(clip: float) -> float:
        toy = Toy(clip=clip, factor=50.0)
        Trainer(toy, 0, 12).train_until(1)
        return math.sqrt(sum(q.grad.square().sum().item() for q in toy.first.parameters() if q.grad is not None))

    assert moved(1.0) == pytest.approx(1.0, rel=1e-3) and moved(0.0) > 10


# Gradients of rows


def table() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(7, 3, generator=torch.Generator().manual_seed(0)))


def loss(parameter: torch.Tensor, step: int) -> torch.Tensor:
    rows = torch.tensor([[0, 2, 2], [5, 0, 6], [2, 5, 5]][step % 3])
    return functional.embedding(rows, parameter, sparse=True).sin().sum()


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_sparse_and_dense_gradients_are_clipped_together(limit: float) -> None:
    sparse, dense, other = table(), torch.nn.Parameter(torch.ones(4)), table()
    (loss(sparse, 0) + dense.square().sum()).backward()
    (functional.embedding(torch.tensor([0, 2, 2]), other).sin().sum()).backward()
    assert other.grad is not None and sparse.grad is not None and dense.grad is not None
    expected = torch.sqrt(other.grad.square().sum() + dense.grad.square().sum())
    norm = clip_gradients([sparse, dense], limit)
    torch.testing.assert_close(norm, expected)
    after = torch.sqrt(sparse.grad.to_dense().square().sum() + dense.grad.square().sum())
    torch.testing.assert_close(after, torch.minimum(expected, torch.tensor(limit)), rtol=1e-4, atol=0)


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
