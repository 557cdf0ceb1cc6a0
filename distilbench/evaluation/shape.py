"""The geometry of an embedding space on scored pairs: alignment, uniformity, effective rank, isotropy.

Axes in names: N vectors, D dimensions, R distinct rows that the pairs use, P pairs, B rows of a block, C directions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Rows
from distilbench.evaluation.geometry import geometry

POSITIVE = 4.0
"""A pair is positive above this gold score of 0 to 5, as in the script of SimCSE (Gao et al. 2021)."""
LIMIT, SEED = 5_000, 0
"""Distinct rows that uniformity is computed on at most, drawn with this seed: 12.5 million pairs."""
BLOCK = 512
"""Rows whose distances to all others are held at once: 20 MB for 5,000."""


class Shape(NamedTuple):
    """The shape of the distinct rows that the pairs use, every row counted once.

    Alignment, uniformity, isotropy and the mean cosine are of the vectors at norm 1; the effective rank is of the vectors
    as they are.
    """

    alignment: float
    """Mean squared distance of the positive pairs, 0 to 4; lower is better (Wang and Isola 2020, alpha = 2)."""
    uniformity: float
    """log of the mean of exp(-2 |x - y|^2) over all pairs of distinct rows, -8 to 0; lower is better (the same, t = 2)."""
    effective_rank: float
    """1 to D; 0 where all vectors are equal (`geometry.Geometry`)."""
    isotropy: float
    """min / max of Z(c) = sum over x of exp(c . x), exp(-2) to 1, c the eigenvectors of X'X (Mu and Viswanath 2018, eq. 7).

    An eigenvector has no sign, so that both are taken. At norm 1, for otherwise it would fall with the length of the vectors.
    """
    mean_cosine: float
    """Over all pairs of distinct rows, -1 to 1: high in a narrow cone ("anisotropy", Ethayarajh 2019)."""
    positives: int
    """Pairs that alignment is of."""
    rows: int
    """R."""
    uniformity_rows: int
    """Rows that uniformity is of: R, at most `LIMIT`."""


def shape(vectors_ND: NDArray[Any], left_P: Rows, right_P: Rows, score_P: NDArray[np.float64]) -> Shape:
    """The shape of the vectors that pairs with a gold score of 0 to 5 use (STS-B); the pairs are rows of `vectors_ND`."""
    if vectors_ND.ndim != 2 or not vectors_ND.shape[1]:
        raise ValueError(f"vectors of shape {vectors_ND.shape}, expected rows and columns")
    if not len(left_P) == len(right_P) == len(score_P):
        raise ValueError(f"{len(left_P)} left rows, {len(right_P)} right rows, {len(score_P)} scores, expected as many")
    rows_R = np.unique(np.concatenate([left_P, right_P]))
    if len(rows_R) < 2:
        raise ValueError(f"pairs of {len(rows_R)} distinct rows, expected at least 2")
    if rows_R[0] < 0 or rows_R[-1] >= len(vectors_ND):
        bad = rows_R[0] if rows_R[0] < 0 else rows_R[-1]
        raise ValueError(f"a pair names row {bad}, expected 0 to {len(vectors_ND) - 1}")
    if np.isnan(score_P).any():
        raise ValueError(f"the score of pair {int(np.isnan(score_P).argmax())} is nan, expected a number")
    positive_P = score_P > POSITIVE
    if not positive_P.any():
        raise ValueError(f"no pair has a score above {POSITIVE:g}, the highest is {score_P.max():g}")
    vectors_RD = vectors_ND[rows_R]
    bad_R = ~np.isfinite(vectors_RD).all(axis=1) | ~vectors_RD.any(axis=1)
    if bad_R.any():
        raise ValueError(f"vector {rows_R[bad_R.argmax()]} is zero or not finite, expected a direction")
    float64_RD = vectors_RD.astype(np.float64)
    unit_RD = float64_RD / np.linalg.norm(float64_RD, axis=1, keepdims=True)
    positions_P2 = np.searchsorted(rows_R, np.stack([left_P, right_P], axis=1)[positive_P])
    difference_PD = unit_RD[positions_P2[:, 0]] - unit_RD[positions_P2[:, 1]]
    count = len(rows_R)
    sampled_RD = unit_RD
    if count > LIMIT:
        sampled_RD = unit_RD[np.sort(np.random.default_rng(SEED).choice(count, LIMIT, replace=False))]
    return Shape(
        alignment=float(np.square(difference_PD).sum(axis=1).mean()),
        uniformity=uniformity(sampled_RD),
        effective_rank=geometry(vectors_RD).effective_rank,
        isotropy=isotropy(unit_RD),
        # All pairs at once: |sum of x|^2 is the sum of all cosines, each vector's own with itself included.
        mean_cosine=float((np.square(unit_RD.sum(axis=0)).sum() - count) / (count * (count - 1))),
        positives=int(positive_P.sum()),
        rows=count,
        uniformity_rows=len(sampled_RD),
    )


def uniformity(unit_RD: NDArray[np.float64]) -> float:
    """log of the mean of exp(-2 |x - y|^2) over all pairs of at least 2 rows of norm 1 (Wang and Isola 2020, section 4.1.2).

    Only `BLOCK` x R distances are held at once. No exponent is below -8, so that the sum needs no shift.
    """
    count, total = len(unit_RD), 0.0
    for start in range(0, count, BLOCK):
        block_BD, later_RD = unit_RD[start : start + BLOCK], unit_RD[start:]
        squared_BR = np.clip(2 - 2 * block_BD @ later_RD.T, 0, 4)
        total += float(np.triu(np.exp(-2 * squared_BR), k=1).sum())
    return float(np.log(total / (count * (count - 1) / 2)))


def isotropy(unit_RD: NDArray[np.float64]) -> float:
    """min / max of the partition function over the eigenvectors of X'X and their opposites; 1 where all are alike."""
    _, directions_DC = np.linalg.eigh(unit_RD.T @ unit_RD)
    along_RC = unit_RD @ directions_DC
    partition = np.concatenate([np.exp(along_RC).sum(axis=0), np.exp(-along_RC).sum(axis=0)])
    return float(partition.min() / partition.max())
