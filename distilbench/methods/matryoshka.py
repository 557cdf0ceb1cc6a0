"""Matryoshka: contrastive fine-tuning at several widths at once (Kusupati et al. 2022), a row that none of the papers has.

The first w numbers of an embedding are an embedding of their own. B batch, d the largest width.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from distilbench.methods import contrastive


class MatryoshkaParams(contrastive.ContrastiveParams):
    """Hyper-parameters of contrastive fine-tuning, and how often the width is halved."""

    halvings: int = Field(default=3, ge=1, le=10)
    """Widths are output_dim, output_dim / 2, ..., output_dim / 2^halvings (whole numbers of at least 2)."""
    whiten_from: int = Field(default=0, ge=0, le=0)
    """Always 0: whitening would mix the first numbers of an embedding, which are trained, with the others."""


class Matryoshka(contrastive.Contrastive):
    """The contrastive student, its loss the mean over the widths.

    Trains a student encoder, at several widths at once. Reads triplets, similar pairs, or judged queries and passages.
    Source: Kusupati et al., NeurIPS 2022.
    """

    params_type = MatryoshkaParams
    title: ClassVar[str] = "Matryoshka"
    params: MatryoshkaParams

    @classmethod
    def widths_of(cls, params: dict[str, Any]) -> tuple[int, ...]:
        d = int(params["output_dim"])
        return tuple(w for w in dict.fromkeys(d // 2**k for k in range(params["halvings"] + 1)) if w >= 2 or w == d)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """The width that was trained, of which a row may be the first part."""
        return ", ".join(filter(None, [super().variant(params), f"of {params['output_dim']}"]))

    def contrast(self, vectors: Tensor, anchors: int) -> Tensor:
        """Mean over the widths w of supervised InfoNCE on the first w numbers."""
        widths = self.widths_of(self.params.model_dump())
        return torch.stack([super(Matryoshka, self).contrast(vectors[:, :w], anchors) for w in widths]).mean()
