"""Codes in training: what is stored goes forward, and the gradient goes to the vector as if nothing had been rounded.

The straight-through estimator of Bengio et al. 2013.

Axes: B batch, d output dimension, M codebooks of K centroids, w = d / M.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HALF_RANGE = 2.68
"""Of 16 levels, in standard deviations: least squared error for a normal distribution (Max 1960)."""


def coded(vectors_Bd: Tensor, bits: int | None) -> Tensor:
    """The unit vectors as `bits` bits a dimension store them (None and 32: as they are), with their own gradient.

    Ranges and thresholds are those of the batch, without a gradient; at the end they are calibrated on training sentences.
    """
    unit_Bd = functional.normalize(vectors_Bd, dim=-1)
    if bits is None or bits == 32:
        return unit_Bd
    with torch.no_grad():
        mean_d = unit_Bd.mean(dim=0)
        if bits == 1:
            stored_Bd = torch.where(unit_Bd > mean_d, 1.0, -1.0) / unit_Bd.shape[-1] ** 0.5
        else:
            levels = 2**bits - 1
            if bits == 8:
                low_d, high_d = unit_Bd.amin(dim=0), unit_Bd.amax(dim=0)
            else:
                half_d = HALF_RANGE * unit_Bd.std(dim=0)
                low_d, high_d = mean_d - half_d, mean_d + half_d
            step_d = ((high_d - low_d) / levels).clamp_min(1e-12)
            stored_Bd = low_d + ((unit_Bd - low_d) / step_d).round().clamp(0, levels) * step_d
    return functional.normalize(unit_Bd + (stored_Bd - unit_Bd).detach(), dim=-1)


class Codebooks(nn.Module):
    """A product code whose centroids are trained: each part of a unit vector is the nearest of its codebook.

    As in JPQ and RepCONC (Zhan et al. 2021, 2022) the assignment is hard, the chosen centroids get their gradient, and the
    vector gets that of its stored form.
    """

    def __init__(self, centroids_MKw: Tensor) -> None:
        super().__init__()
        self.centroids = nn.Parameter(centroids_MKw)

    def nearest(self, unit_Bd: Tensor) -> Tensor:
        """The number of the nearest centroid of each part, B x M."""
        parts, _, width = self.centroids.shape
        part_MBw = unit_Bd.reshape(len(unit_Bd), parts, width).transpose(0, 1)
        distance_MBK = self.centroids.square().sum(-1)[:, None] - 2 * part_MBw @ self.centroids.transpose(1, 2)
        return distance_MBK.argmin(dim=-1).T

    def forward(self, vectors_Bd: Tensor) -> Tensor:
        """The unit vectors as they are stored, B x d, of unit norm."""
        unit_Bd = functional.normalize(vectors_Bd, dim=-1)
        with torch.no_grad():
            nearest_BM = self.nearest(unit_Bd)
        parts = torch.arange(self.centroids.shape[0], device=nearest_BM.device)
        stored_Bd = self.centroids[parts, nearest_BM].flatten(1)
        return functional.normalize(stored_Bd + unit_Bd - unit_Bd.detach(), dim=-1)
