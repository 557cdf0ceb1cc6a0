"""Random projection: a random orthonormal basis. What a learned compression has to beat before PCA."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from distilbench.methods.parts.heads import HeadMethod, HeadParams, linear_head
from distilbench.prepare.prepared import Prepared


class RandomProjection(HeadMethod):
    """d random orthonormal directions (QR of a Gaussian matrix), drawn from the trial's seed.

    Trains nothing: a head of random orthonormal axes. Reads nothing. Source: a baseline.
    """

    params_type = HeadParams
    title: ClassVar[str] = "Random projection"

    def __init__(self, params: HeadParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        d = params.output_dim
        basis_Dd, _ = torch.linalg.qr(torch.randn(prepared.vectors.width, d, dtype=torch.float64))
        self.set_head(linear_head(basis_Dd.float().numpy(), np.zeros(d, dtype=np.float32)))
