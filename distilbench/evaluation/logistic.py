"""Logistic regressions on the same features, all folds and penalties of a cross-validation at once.

Minimised for each problem p, with its training rows and its C: C sum_i loss(x_i . w + b, y_i) + |w|^2 / 2, as scikit-learn's
`LogisticRegression` has it (b is free; softmax over the classes where there are more than two).

The Hessian is at most s C X'X + I, with s = 1/4 for two classes and 1/2 for more (Boehning, 1992). In the basis of the
eigenvectors of X'X, which all problems share, that bound is diagonal: each step divides the gradient by it, with Nesterov's
momentum, restarted where it leads upwards (O'Donoghue and Candes, 2015). A step of all problems is two matrix products.
Rows that a problem does not train on have a part in the basis and the bound only, not in its minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distilbench.encoders.encoder import default_device

TOLERANCE = 1e-7
"""The largest distance to the minimum of the loss per training row, estimated by half the squared Newton-like decrement."""
MOST_STEPS = 500
SLACK = 1.05
"""On the bound: the rows of a problem are not exactly centred, which couples its intercept with its weights a little."""
VALUES = 40_000_000
"""Logits that are held at once, in float32: further problems are solved after these."""


class Problem(NamedTuple):
    """One regression: on the rows where `train_N` is true, with scikit-learn's C."""

    train_N: NDArray[np.bool_]
    c: float


class Logistic:
    """The features N x D of all rows and their classes 0 ... K-1, for as many problems as are asked for; on a GPU if there is
    one.
    """

    def __init__(self, features_ND: NDArray[np.float32], classes_N: NDArray[np.int64]) -> None:
        device = default_device()
        centred_ND = torch.as_tensor(features_ND - features_ND.mean(axis=0), dtype=torch.float32, device=device)
        eigenvalues_D, basis_DD = torch.linalg.eigh((centred_ND.T @ centred_ND).double())
        self.features_ND = centred_ND @ basis_DD.float()
        self.eigenvalues_D = eigenvalues_D.clamp(min=0).float()
        self.count = int(classes_N.max()) + 1
        targets = torch.as_tensor(classes_N, device=device)
        self.binary = self.count == 2
        one_hot_NK = torch.nn.functional.one_hot(targets, self.count).float()
        self.targets_NK = one_hot_NK[:, 1:] if self.binary else one_hot_NK

    def predict(self, problems: Sequence[Problem]) -> NDArray[np.int64]:
        """The class of every row, in and out of training, by each problem's regression: problems x N."""
        columns = self.targets_NK.shape[1]
        at_once = max(1, VALUES // (len(self.features_ND) * columns))
        parts = [self._predict(problems[i : i + at_once]) for i in range(0, len(problems), at_once)]
        return np.concatenate(parts)

    def _predict(self, problems: Sequence[Problem]) -> NDArray[np.int64]:
        device, columns = self.features_ND.device, self.targets_NK.shape[1]
        train_NP = torch.as_tensor(np.stack([p.train_N for p in problems], axis=1), device=device).float()
        c_P = torch.tensor([p.c for p in problems], device=device)
        logits_NPK = self._solve(train_NP, c_P, columns)
        classes_NP = (logits_NPK[..., 0] > 0).long() if self.binary else logits_NPK.argmax(dim=2)
        return classes_NP.T.cpu().numpy()

    def _solve(self, train_NP: Tensor, c_P: Tensor, columns: int) -> Tensor:
        """The logits of all rows at each problem's minimum, N x P x K."""
        rows, problems = train_NP.shape
        width = self.features_ND.shape[1]
        bound = SLACK * (0.25 if self.binary else 0.5)
        sizes_P = train_NP.sum(dim=0)
        step_DP = 1 / (1 + c_P * bound * self.eigenvalues_D[:, None])
        step_P = 1 / (c_P * bound * sizes_P)
        weights = torch.zeros(width, problems, columns, device=train_NP.device)
        bias = torch.zeros(problems, columns, device=train_NP.device)
        ahead, bias_ahead, momentum_P = weights, bias, torch.ones(problems, device=train_NP.device)
        for _ in range(MOST_STEPS):
            logits = self._logits(ahead, bias_ahead)
            predicted = torch.sigmoid(logits) if self.binary else logits.softmax(dim=2)
            residual = (predicted - self.targets_NK[:, None, :]) * (train_NP * c_P)[:, :, None]
            gradient = (self.features_ND.T @ residual.reshape(rows, -1)).reshape(width, problems, columns) + ahead
            bias_gradient = residual.sum(dim=0)
            new = ahead - step_DP[:, :, None] * gradient
            new_bias = bias_ahead - step_P[:, None] * bias_gradient
            step, bias_step = ahead - new, bias_ahead - new_bias
            decrement_P = (gradient * step).sum(dim=(0, 2)) + (bias_gradient * bias_step).sum(dim=1)
            rise_P = (gradient * (new - weights)).sum(dim=(0, 2)) + (bias_gradient * (new_bias - bias)).sum(dim=1)
            uphill_P = rise_P > 0
            momentum_P = torch.where(uphill_P, torch.ones_like(momentum_P), momentum_P)
            following_P = (1 + (1 + 4 * momentum_P**2).sqrt()) / 2
            pace_P = torch.where(uphill_P, torch.zeros_like(momentum_P), (momentum_P - 1) / following_P)
            ahead, bias_ahead = new + pace_P[:, None] * (new - weights), new_bias + pace_P[:, None] * (new_bias - bias)
            weights, bias, momentum_P = new, new_bias, following_P
            if bool((decrement_P / 2 < TOLERANCE * c_P * sizes_P).all()):
                break
        return self._logits(weights, bias)

    def _logits(self, weights: Tensor, bias: Tensor) -> Tensor:
        width, problems, columns = weights.shape
        return (self.features_ND @ weights.reshape(width, -1)).reshape(-1, problems, columns) + bias
