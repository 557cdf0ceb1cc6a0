"""PCA: the first d principal axes of the teacher's embeddings. What every compressed embedding has to beat."""

from __future__ import annotations

from typing import ClassVar

from distilbench.methods.method import Params
from distilbench.methods.parts.head_method import HeadMethod
from distilbench.methods.parts.heads import pca_head
from distilbench.prepare.prepared import Prepared


class Trainable(HeadMethod):
    """W_t^T (e - mean), fitted on the training sentences."""

    params_type = Params
    title: ClassVar[str] = "PCA"

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.set_head(pca_head(prepared.pca, params.output_dim))
