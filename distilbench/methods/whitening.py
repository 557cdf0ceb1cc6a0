"""Whitening-d: the teacher's embeddings made uncorrelated, of variance 1, cut to d (Su et al. 2021; HPD's baseline)."""

from __future__ import annotations

from typing import ClassVar

from distilbench.data.sampling import sample
from distilbench.methods.parts.heads import HeadMethod, whitening_head
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import Params


class Whitening(HeadMethod):
    """(e - mean) times the first d columns of U L^{-1/2}, fitted on a sample of the training sentences.

    Trains nothing: a head that makes the teacher's numbers uncorrelated. Reads unlabelled sentences. Source: Su et al.
    2021; a baseline of HPD.
    """

    params_type = Params
    title: ClassVar[str] = "Whitening"

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.set_head(whitening_head(prepared.vectors.take(sample(prepared.train)), params.output_dim))
