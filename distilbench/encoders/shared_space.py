"""The space in which a student's queries find the teacher's documents: a small query encoder over the teacher's own index.

A student whose targets are the teacher's vectors, or a head of them, embeds queries into the space of these targets. So the
documents may be embedded by the teacher and that head, once, and the queries by the student, as in QED (arXiv 2306.11550) and
LEAF (arXiv 2509.12539): asymmetric retrieval.

Axes: N vectors, D dimensions before the layers, d after them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from distilbench.storage.files import read_json_object, write_json

FILE = "space.json"
DOCUMENTS = "documents"
"""In the export of a pair: the folder of what follows the teacher's vectors."""
ROWS = 8192
"""Vectors that layers are applied to at once."""


@dataclass(frozen=True, eq=False)
class SharedSpace:
    """What follows the student's vectors of queries, and the teacher's vectors of documents, so that both compare.

    Each is a sequence of sentence-transformers' modules (Dense, Normalize), none where the vectors are taken as they are.
    """

    width: int
    """Dimensions d of the space."""
    head: str = ""
    """What follows the teacher's vectors, in words ("its PCA"); "" where nothing does."""
    after_student: tuple[nn.Module, ...] = ()
    after_teacher: tuple[nn.Module, ...] = ()

    @property
    def teacher_width(self) -> int:
        """Dimensions D of the teacher's own vectors."""
        return int(getattr(self.after_teacher[0], "in_features", self.width)) if self.after_teacher else self.width

    def queries(self, vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        """The student's vectors in the space, N x d."""
        return applied(self.after_student, vectors_ND)

    def documents(self, vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
        """The teacher's vectors in the space, N x d."""
        return applied(self.after_teacher, vectors_ND)

    def save(self, folder: Path) -> None:
        """Write it, the layers of each side as a sentence-transformers folder."""
        from sentence_transformers import SentenceTransformer

        sides = {"student": self.after_student, "teacher": self.after_teacher}
        for name, modules in sides.items():
            if modules:
                layers = SentenceTransformer(modules=list(modules), device="cpu")
                layers.save(str(folder / name), create_model_card=False)
        write_json(
            folder / FILE, {"width": self.width, "head": self.head, "layers": {n: len(m) for n, m in sides.items()}}
        )

    @staticmethod
    def load(folder: Path) -> SharedSpace | None:
        """What `save` wrote; None where nothing is there."""
        file = folder / FILE
        return _load(folder, file.stat().st_mtime_ns) if file.exists() else None


@functools.lru_cache(maxsize=8)
def _load(folder: Path, written: int) -> SharedSpace:
    """What was written at that time (ns)."""
    from sentence_transformers import SentenceTransformer

    saved: dict[str, Any] = read_json_object(folder / FILE, "a shared space")
    sides = [
        tuple(SentenceTransformer(str(folder / name), device="cpu")) if saved["layers"][name] else ()
        for name in ("student", "teacher")
    ]
    return SharedSpace(int(saved["width"]), str(saved["head"]), *sides)


def applied(modules: Sequence[nn.Module], vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors after the modules."""
    if not modules:
        return vectors_ND
    parts = []
    with torch.inference_mode():
        for start in range(0, max(1, len(vectors_ND)), ROWS):
            features = {"sentence_embedding": torch.from_numpy(np.array(vectors_ND[start : start + ROWS], np.float32))}
            for module in modules:
                features = module(features)
            parts.append(features["sentence_embedding"].numpy())
    return np.concatenate(parts)
