"""PCA: the first d principal axes of the teacher's embeddings. What every compressed embedding has to beat."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from distilbench.methods.parts.heads import HeadMethod, linear_head, pca_head
from distilbench.prepare.prepared import Prepared
from distilbench.training import params


class PCAParams(params.CodedParams, params.Params):
    """Its one choice beside the dimension."""

    centre: bool = True
    """Whether the mean of the training sentences is taken away before the projection."""


class PCA(HeadMethod):
    """W_t^T (e - mean), or W_t^T e, fitted on the training sentences.

    Trains nothing: a head made of the teacher's principal axes. Reads unlabelled sentences. Source: a baseline.
    """

    params_type = PCAParams
    title: ClassVar[str] = "PCA"

    def __init__(self, params: PCAParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        d = params.output_dim
        axes = linear_head(prepared.pca.axes_DD[:, :d], np.zeros(d, dtype=np.float32))
        self.set_head(pca_head(prepared.pca, d) if params.centre else axes)
