"""PCA: the first d principal axes of the teacher's embeddings. What every compressed embedding has to beat."""

from __future__ import annotations

from typing import ClassVar

from distilbench.methods.parts.heads import HeadMethod, HeadParams, pca_head
from distilbench.prepare.prepared import Prepared


class PCA(HeadMethod):
    """W_t^T (e - mean), fitted on the training sentences.

    Trains nothing: a head made of the teacher's principal axes. Reads unlabelled sentences. Source: a baseline.
    """

    params_type = HeadParams
    title: ClassVar[str] = "PCA"

    def __init__(self, params: HeadParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.set_head(pca_head(prepared.pca, params.output_dim))
