"""What the methods that put a head on the frozen teacher have in common. Axes: N rows, D teacher width, d output."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distilbench.methods.method import Method
from distilbench.methods.parts.heads import Layer, export_with_head
from distilbench.training.phases import Phase

ROWS = 8192
"""Embedded at once."""


class HeadMethod(Method):
    """A head on the teacher's cached embeddings; `head` are layers from D to d."""

    trains_encoder: ClassVar[bool] = False
    costly: ClassVar[tuple[str, ...]] = ("output_dim", "head")
    unit_norm: ClassVar[bool] = False
    """Whether the student's vectors are brought to unit norm."""
    head: nn.ModuleList

    def set_head(self, *layers: Layer) -> None:
        """A head that is not trained."""
        self.head = nn.ModuleList(layers).requires_grad_(False).to(self.device)

    def phases(self) -> list[Phase]:
        """None: the head is made from the training embeddings at once."""
        return []

    def apply_head(self, x_BD: Tensor) -> Tensor:
        """The head's output, B x d."""
        for layer in self.head:
            x_BD = layer(x_BD)
        return nn.functional.normalize(x_BD, dim=-1) if self.unit_norm else x_BD

    def in_chunks(self, rows: NDArray[np.int64]) -> list[Tensor]:
        """The teacher's cached embeddings of corpus rows, in parts of bounded size."""
        starts = range(0, len(rows), ROWS)
        return [self.teacher_vectors(rows[i : i + ROWS]) for i in starts]

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors of corpus rows from the teacher's cached embeddings."""
        out = [np.empty((0, self.params.output_dim), dtype=np.float32)]
        with torch.inference_mode():
            out += [self.apply_head(x_BD).float().cpu().numpy() for x_BD in self.in_chunks(rows)]
        return np.concatenate(out)

    def export(self, folder: Path) -> None:
        """Teacher and head."""
        head = cast(list[Layer], list(self.head))
        export_with_head(self.prepared.teacher, head, folder, unit_norm=self.unit_norm)
