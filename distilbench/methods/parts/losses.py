"""Losses that several methods share. B examples, C candidates, D width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


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


DISTANCES = {"squared": squared_distance, "cosine": cosine_distance}
Distance = Literal["squared", "cosine"]


def target_distance(kind: Distance, student_Bd: Tensor, target_Bd: Tensor, widths: Sequence[int]) -> Tensor:
    """The mean over nested widths w of the distance between the first w numbers of student and target."""
    return torch.stack([DISTANCES[kind](student_Bd[:, :w], target_Bd[:, :w]) for w in widths]).mean()
