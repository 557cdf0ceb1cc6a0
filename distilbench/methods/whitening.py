"""Whitening-d: the teacher's embeddings made uncorrelated, of variance 1, cut to d (Su et al. 2021; HPD's baseline)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from distilbench.data.sampling import sample
from distilbench.methods.parts.heads import HeadMethod, HeadParams, whitening_head
from distilbench.prepare.prepared import Prepared


class WhiteningParams(HeadParams):
    """Hyper-parameters."""

    power: float = Field(default=1.0, ge=0, le=1)
    """1: all dimensions have variance 1 (Su et al. 2021); 0: the PCA; between them each has its own ^ (1 - power)."""


class Whitening(HeadMethod):
    """(e - mean) times the first d columns of U L^{-power/2}, fitted on a sample of the training sentences.

    Trains nothing: a head that makes the teacher's numbers uncorrelated. Reads unlabelled sentences. Source: Su et al.
    2021, a baseline of HPD; with a power of 0.25 to 0.75 codes keep more of a search (results/codes.md).
    """

    params_type = WhiteningParams
    title: ClassVar[str] = "Whitening"

    def __init__(self, params: WhiteningParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.set_head(whitening_head(prepared.vectors.take(sample(prepared.train)), params.output_dim, params.power))
