"""Losses that several methods share, and vectors as a loss sees them where a code stores them.

B examples, C candidates, D width, d output dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from distilbench.evaluation.faiss_codes import levels
from distilbench.training.params import ParamsPart

HALF_RANGE = 2.68
"""Of 16 levels, in standard deviations: least squared error for a normal distribution (Max 1960)."""


def full_precision(x: Tensor) -> torch.autocast:
    """Autocast off, on the device of `x`: a cosine in bfloat16 is off by up to 0.004, over a temperature of 0.01 by 0.4."""
    return torch.autocast(x.device.type, enabled=False)


def info_nce(query_BD: Tensor, candidate_CD: Tensor, temperature: float) -> Tensor:
    """-mean_i log softmax_j(cos(q_i, c_j) / temperature) at j = i (SimCSE; IBKD, equation 5).

    The first B candidates are the positives in order; those after them are hard negatives, shared by the batch.
    """
    if len(candidate_CD) < max(2, len(query_BD)):
        raise ValueError(f"{len(candidate_CD)} candidates for {len(query_BD)} queries: too few for in-batch negatives")
    query, candidate = functional.normalize(query_BD, dim=-1), functional.normalize(candidate_CD, dim=-1)
    with full_precision(query):
        logits = query @ candidate.T / temperature
    return functional.cross_entropy(logits, torch.arange(len(query), device=query.device))


def supervised_info_nce(query_BD: Tensor, positive_BD: Tensor, negative_BKD: Tensor, temperature: float) -> Tensor:
    """-mean_i log softmax at i's own positive, over the batch's positives and i's own K negatives (IBKD, equation 10)."""
    query, positive = functional.normalize(query_BD, dim=-1), functional.normalize(positive_BD, dim=-1)
    negative = functional.normalize(negative_BKD, dim=-1)
    if len(query) + negative.shape[1] < 2:
        raise ValueError("one query and no negatives: too few for in-batch negatives")
    with full_precision(query):
        logits = torch.cat([query @ positive.T, torch.einsum("bd,bkd->bk", query, negative)], dim=1) / temperature
    return functional.cross_entropy(logits, torch.arange(len(query), device=query.device))


def squared_distance(left_BD: Tensor, right_BD: Tensor) -> Tensor:
    """Mean over the batch of ||l - r||^2 (HPD, equation 2)."""
    return (left_BD - right_BD).square().sum(dim=-1).mean()


def cosine_distance(left_BD: Tensor, right_BD: Tensor) -> Tensor:
    """Mean over the batch of 1 - cos(l, r)."""
    return (1 - functional.cosine_similarity(left_BD, right_BD, dim=-1)).mean()


def similarity_loss(student_Bd: Tensor, target_Bd: Tensor) -> Tensor:
    """The mean over all pairs of a batch of (cos(s_i, s_j) - cos(t_i, t_j))^2; the two may have different widths.

    Passalis and Tefas (2018) and RKD (Park et al. 2019, section 3.2) match pairs of a batch too.
    """
    with full_precision(student_Bd):
        student_Bd, target_Bd = (functional.normalize(x.float(), dim=-1) for x in (student_Bd, target_Bd))
        return (student_Bd @ student_Bd.T - target_Bd @ target_Bd.T).square().mean()


class SimilarityTermParams(ParamsPart):
    """The weight of `similarity_loss` beside a method's own loss."""

    similarities: float = Field(default=0.0, ge=0)
    """Weight of the mean squared difference of the cosines of all pairs of a batch, student's and targets'; 0: without."""


DISTANCES = {"squared": squared_distance, "cosine": cosine_distance}
Distance = Literal["squared", "cosine"]


def target_loss(
    params: SimilarityTermParams, kind: Distance, student_Bd: Tensor, target_Bd: Tensor, widths: Sequence[int]
) -> Tensor:
    """The mean over nested widths w of the distance between the first w numbers of student and target, and beside it that of
    `similarity_loss` where the parameters give it a weight."""

    def mean(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return torch.stack([loss(student_Bd[:, :w], target_Bd[:, :w]) for w in widths]).mean()

    distance = mean(DISTANCES[kind])
    return distance + params.similarities * mean(similarity_loss) if params.similarities else distance


def neighbour_loss(
    student_Bd: Tensor,
    candidates_Cd: Tensor,
    teacher_CD: Tensor,
    temperature: float,
    teacher_temperature: float,
    without_C: Tensor | None = None,
) -> Tensor:
    """The cross-entropy between teacher and student of the softmax over the cosines to the candidates, without itself.

    The first B candidates are the batch's own sentences, in order; `teacher_CD` are the teacher's vectors of all of them.
    SEED (Fang et al., ICLR 2021, equation 3) has it for images, with a queue of earlier ones; parametric t-SNE (van der
    Maaten 2009) before it. Candidates that `without_C` marks are as if they were not there.
    """
    if len(candidates_Cd) < 3:
        raise ValueError(f"{len(candidates_Cd)} candidates, expected at least 3: a sentence and two others")
    with full_precision(student_Bd):
        student_Bd, candidates_Cd, teacher_CD = (
            functional.normalize(x.float(), dim=-1) for x in (student_Bd, candidates_Cd, teacher_CD)
        )
        itself_BC = torch.eye(len(student_Bd), len(candidates_Cd), dtype=torch.bool, device=student_Bd.device)
        if without_C is not None:
            itself_BC |= without_C
        target_BC = (teacher_CD[: len(student_Bd)] @ teacher_CD.T / teacher_temperature).masked_fill(
            itself_BC, -torch.inf
        )
        logits_BC = (student_Bd @ candidates_Cd.T / temperature).masked_fill(itself_BC, -1e4)
        if without_C is None:
            return functional.cross_entropy(logits_BC, target_BC.softmax(dim=-1))
        of_each_B = functional.cross_entropy(logits_BC, target_BC.softmax(dim=-1), reduction="none")
        counted_B = ~without_C[: len(of_each_B)]
        return (of_each_B * counted_B).sum() / counted_B.sum()


def coded(vectors_Bd: Tensor, bits: int | None) -> Tensor:
    """The unit vectors as `bits` bits a dimension store them (None and 32: as they are), with their own gradient.

    It is the straight-through estimator of Bengio et al. 2013: what is stored goes forward, and the gradient goes to the
    vector as if nothing had been rounded. Ranges and thresholds are those of the batch; at the end they are calibrated on
    training sentences.
    """
    unit_Bd = functional.normalize(vectors_Bd, dim=-1)
    if bits is None or bits == 32:
        return unit_Bd
    with torch.no_grad():
        mean_d = unit_Bd.mean(dim=0)
        if bits == 1:
            stored_Bd = torch.where(unit_Bd > mean_d, 1.0, -1.0) / unit_Bd.shape[-1] ** 0.5
        elif bits in (2, 3):
            spread_d, every = unit_Bd.std(dim=0, correction=0).clamp_min(1e-12), levels(bits)
            normal_Bd = (unit_Bd - mean_d) / spread_d
            rises_Bd = sum((above - below) * (normal_Bd > (below + above) / 2) for below, above in pairwise(every))
            stored_Bd = mean_d + spread_d * (every[0] + rises_Bd)
        else:
            steps = 2**bits - 1
            if bits == 8:
                low_d, high_d = unit_Bd.amin(dim=0), unit_Bd.amax(dim=0)
            else:
                half_d = HALF_RANGE * unit_Bd.std(dim=0)
                low_d, high_d = mean_d - half_d, mean_d + half_d
            step_d = ((high_d - low_d) / steps).clamp_min(1e-12)
            stored_Bd = low_d + ((unit_Bd - low_d) / step_d).round().clamp(0, steps) * step_d
    return functional.normalize(unit_Bd + (stored_Bd - unit_Bd).detach(), dim=-1)
