"""The shape of a cloud of embeddings: how many directions it really uses, and whether it has collapsed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.faiss_codes import unit

LEAST_RANK = 1.5
LEAST_SHARE = 0.005
"""The least share of the teacher's variance: below it, cosines are above 0.995. MCR2 heads without a centre have, as MRR@10
in float32 and int8, 92.7 and 92.6 at a share of 0.008, 48 and 2.5 at 0.002, 76 and 76 at 0.001; at 1e-7 float32 itself rounds
the cosines to ties (1.4 for 60)."""


class Geometry(NamedTuple):
    """`effective_rank`: exp of the entropy of the normalised singular values of the centred embeddings (Roy & Vetterli 2007),
    from 1 to d. `variance`: total variance of the embeddings brought to unit norm, from 0 (all alike) to 1."""

    effective_rank: float
    variance: float

    def collapsed(self, d: int, teacher_variance: float) -> str:
        """Why these embeddings of width `d` are of no use beside a teacher of that variance; "" when they are of use.

        A student is judged as it is exported: one whose mean is taken away cannot be crowded, but still lie on one line.
        """
        share = self.variance / teacher_variance if teacher_variance > 0 else 1.0
        if share < LEAST_SHARE:
            return (
                f"collapsed: the unit vectors have {share:.2g} of the teacher's variance, below {LEAST_SHARE:g}: "
                "all cosines are nearly 1"
            )
        if d > 2 and self.effective_rank < LEAST_RANK:
            return f"collapsed: effective rank {self.effective_rank:.2f} of {d} dimensions, below {LEAST_RANK}"
        return ""


def geometry(vectors_ND: NDArray[np.float32]) -> Geometry:
    """Effective rank and variance of N embeddings; a zero rank where all are equal."""
    unit_ND = unit(vectors_ND).astype(np.float64)
    variance = float((unit_ND - unit_ND.mean(axis=0)).var(axis=0).sum())
    centred_ND = vectors_ND.astype(np.float64) - vectors_ND.mean(axis=0, dtype=np.float64)
    # Singular values from the d x d covariance: N is thousands, d at most the teacher's width.
    values = np.sqrt(np.clip(np.linalg.eigvalsh(centred_ND.T @ centred_ND), 0, None))
    if not values.sum() > 0:
        return Geometry(0.0, variance)
    share = values[values > 0] / values.sum()
    return Geometry(float(np.exp(-(share * np.log(share)).sum())), variance)
