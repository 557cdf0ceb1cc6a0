"""Adam over rows: the formulas of torch's SparseAdam, and the norm of sparse gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from distilbench.training.row_adam import RowAdam, clip_gradients


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
