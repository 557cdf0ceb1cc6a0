"""Clipping of gradients, sparse ones among them."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def clip_gradients(parameters: Iterable[torch.nn.Parameter], limit: float) -> torch.Tensor:
    """The norm of all gradients, which are scaled down where it is above `limit`.

    torch's `clip_grad_norm_` takes dense gradients alone, so it is given the rows of a sparse one.
    """
    tensors: list[torch.Tensor] = list(parameters)
    for place, tensor in enumerate(tensors):
        if tensor.grad is not None and tensor.grad.is_sparse:
            tensor.grad = tensor.grad.coalesce()
            tensors[place] = torch.empty_like(tensor.grad.values())
            tensors[place].grad = tensor.grad.values()
    return torch.nn.utils.clip_grad_norm_(tensors, limit)
