"""Adam over the rows of a table that a batch touches: the other rows, and their moments, stand still ("lazy Adam").

A batch of sentences touches some thousand rows of a vocabulary of tens of thousands. torch's SparseAdam is the same rule; it
makes sparse tensors of the moments at every step. Axes: V rows, U rows that are touched, d width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

EPS = 1e-8


class RowAdam(torch.optim.Optimizer):
    """Adam for parameters with sparse gradients, V x d, by the formulas of `torch.optim.SparseAdam`.

    There is no weight decay: it would draw on the rows that are touched, and so on frequent tokens more than on others.
    """

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], lr: float, betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step on the rows of each parameter that its sparse gradient names."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad.coalesce(), group["lr"], group["betas"])

    def _step(self, parameter: torch.Tensor, gradient: torch.Tensor, lr: float, betas: tuple[float, float]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        step, (beta1, beta2) = state["step"].item(), betas
        row_U, gradient_Ud = gradient.indices()[0], gradient.values()
        first_Ud = state["exp_avg"].index_select(0, row_U).lerp_(gradient_Ud, 1 - beta1)
        second_Ud = state["exp_avg_sq"].index_select(0, row_U).mul_(beta2)
        second_Ud.addcmul_(gradient_Ud, gradient_Ud, value=1 - beta2)
        state["exp_avg"].index_copy_(0, row_U, first_Ud)
        state["exp_avg_sq"].index_copy_(0, row_U, second_Ud)
        scale_Ud = second_Ud.div_(1 - beta2**step).sqrt_().add_(EPS)
        row_Ud = parameter.index_select(0, row_U).addcdiv_(first_Ud, scale_Ud, value=-lr / (1 - beta1**step))
        parameter.index_copy_(0, row_U, row_Ud)


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
