"""Random projection: a random orthonormal basis. What a learned compression has to beat before PCA."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from distilbench.methods.parts.heads import HeadMethod, linear_head
from distilbench.prepare.prepared import Prepared
from distilbench.training import params


class RandomProjectionParams(params.CodedParams, params.Params):
    """Its one choice beside the dimension."""

    centre: bool = False
    """Whether the mean of the training sentences is taken away before the projection."""


class RandomProjection(HeadMethod):
    """d random orthonormal directions (QR of a Gaussian matrix), drawn from the trial's seed.

    Trains nothing: a head of random orthonormal axes. Reads nothing. Source: a baseline.
    """

    params_type = RandomProjectionParams
    title: ClassVar[str] = "Random projection"

    def __init__(self, params: RandomProjectionParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        d = params.output_dim
        basis_Dd, _ = torch.linalg.qr(torch.randn(prepared.vectors.width, d, dtype=torch.float64))
        basis = basis_Dd.float().numpy()
        bias_d = -(prepared.pca.mean_D @ basis) if params.centre else np.zeros(d, dtype=np.float32)
        self.set_head(linear_head(basis, bias_d))
