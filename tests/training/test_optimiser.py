"""Weight decay of matrices alone, no clipping; Adam over rows is torch's SparseAdam, and sparse gradients are clipped too."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional
from toy_learner import Toy

from distilbench.training.loop import Trainer, decay_groups
from distilbench.training.row_adam import RowAdam, clip_gradients


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


# Adam over rows


def table() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(7, 3, generator=torch.Generator().manual_seed(0)))


def loss(parameter: torch.Tensor, step: int) -> torch.Tensor:
    rows = torch.tensor([[0, 2, 2], [5, 0, 6], [2, 5, 5]][step % 3])
    return functional.embedding(rows, parameter, sparse=True).sin().sum()


def test_steps_are_those_of_sparse_adam() -> None:
    ours, theirs = table(), table()
    start = ours.detach().clone()
    optimizers = RowAdam([ours], 0.1, (0.8, 0.95)), torch.optim.SparseAdam([theirs], 0.1, (0.8, 0.95))
    for step in range(7):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            loss(parameter, step).backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(ours[[1, 3, 4]], start[[1, 3, 4]])


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
