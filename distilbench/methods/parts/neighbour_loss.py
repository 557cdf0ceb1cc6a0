"""A student keeps the neighbours that its teacher has: one distribution over the other sentences of a batch, for both.

SEED (Fang et al., ICLR 2021, equation 3) has it for images, with a queue of earlier ones; parametric t-SNE (van der Maaten
2009) before it. Axes: B batch, C candidates (the batch, then more sentences), D teacher width, d output dimension.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from distilbench.methods.parts.losses import full_precision
from distilbench.training.params import ParamsPart


class NeighbourTermParams(ParamsPart):
    """The loss as a term beside an encoder's own."""

    neighbours: float = Field(default=0.0, ge=0)
    """Weight of the neighbours' cross-entropy beside the method's own loss; 0: without."""
    neighbour_temperature: float = Field(default=0.05, gt=0)
    """Of both softmaxes over cosines."""


def with_neighbours(
    params: NeighbourTermParams, loss: Tensor, student_Bd: Tensor, teacher: Callable[[], Tensor]
) -> Tensor:
    """A method's own loss of a batch, and that of its neighbours where the parameters give it a weight.

    `teacher` gives the teacher's vectors of the batch, B x D; it is called only where they are needed.
    """
    if not params.neighbours:
        return loss
    temperature = params.neighbour_temperature
    return loss + params.neighbours * neighbour_loss(student_Bd, student_Bd, teacher(), temperature, temperature)


def neighbour_loss(
    student_Bd: Tensor, candidates_Cd: Tensor, teacher_CD: Tensor, temperature: float, teacher_temperature: float
) -> Tensor:
    """The cross-entropy between teacher and student of the softmax over the cosines to the candidates, without itself.

    The first B candidates are the batch's own sentences, in order; `teacher_CD` are the teacher's vectors of all of them.
    """
    if len(candidates_Cd) < 3:
        raise ValueError(f"{len(candidates_Cd)} candidates, expected at least 3: a sentence and two others")
    with full_precision(student_Bd):
        student_Bd, candidates_Cd, teacher_CD = (
            functional.normalize(x.float(), dim=-1) for x in (student_Bd, candidates_Cd, teacher_CD)
        )
        itself_BC = torch.eye(len(student_Bd), len(candidates_Cd), dtype=torch.bool, device=student_Bd.device)
        target_BC = (teacher_CD[: len(student_Bd)] @ teacher_CD.T / teacher_temperature).masked_fill(
            itself_BC, -torch.inf
        )
        logits_BC = (student_Bd @ candidates_Cd.T / temperature).masked_fill(itself_BC, -1e4)
        return functional.cross_entropy(logits_BC, target_BC.softmax(dim=-1))
