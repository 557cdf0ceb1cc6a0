"""A student's cosines within a batch are those of its targets: similarity matching, as a term beside a method's own loss.

Passalis and Tefas (2018) and RKD (Park et al. 2019, section 3.2) match pairs of a batch too. B batch, d output dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from distilbench.methods.parts.losses import full_precision
from distilbench.training.params import ParamsPart


class SimilarityTermParams(ParamsPart):
    """The weight of the term."""

    similarities: float = Field(default=0.0, ge=0)
    """Weight of the mean squared difference of the cosines of all pairs of a batch, student's and targets'; 0: without."""


def with_similarities(
    params: SimilarityTermParams, loss: Tensor, student_Bd: Tensor, target_Bd: Tensor, widths: Sequence[int]
) -> Tensor:
    """A method's own loss of a batch, and the mean of the term over nested widths where the parameters give it a weight."""
    if not params.similarities:
        return loss
    terms = [similarity_loss(student_Bd[:, :w], target_Bd[:, :w]) for w in widths]
    return loss + params.similarities * torch.stack(terms).mean()


def similarity_loss(student_Bd: Tensor, target_Bd: Tensor) -> Tensor:
    """The mean over all pairs of (cos(s_i, s_j) - cos(t_i, t_j))^2; the two may have different widths."""
    with full_precision(student_Bd):
        student_Bd, target_Bd = (functional.normalize(x.float(), dim=-1) for x in (student_Bd, target_Bd))
        return (student_Bd @ student_Bd.T - target_Bd @ target_Bd.T).square().mean()
