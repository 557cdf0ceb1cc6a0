"""Clipping of gradients, sparse ones among them."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def clip_gradients(parameters: Iterable[torch.nn.Parameter], limit: float) -> torch.Tensor:
    """The norm of all gradients, which are scaled down where it is above `limit`.

    torch's `clip_grad_norm_` does the same for dense gradients alone.
    """
    parameters = list(parameters)
    if not any(p.grad is not None and p.grad.is_sparse for p in parameters):
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad.values())
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    norm = torch.nn.utils.get_total_norm(gradients)
    share = (limit / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(share)
    return norm
