"""A static student: a vector and a weight for each token of the teacher, averaged over a sentence; no transformer reads it.

It is saved as sentence-transformers' StaticEmbedding. Axes: V tokens, U distinct tokens of a batch, T tokens of all its
sentences, B sentences, d width.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from distilbench.encoders.encoder import PACKED, TABLE
from distilbench.encoders.prompts import Prompts
from distilbench.storage.arrays import packed
from distilbench.storage.files import atomic_path

TableCode = Literal["float32", "int8", "int4"]
"""What a table is stored as."""
LARGEST = {"int8": 127, "int4": 7}
"""The largest code of a table, which has a scale for each token. The largest number of a row sets its scale: one that is
fitted to the row's squared error scores the same (results/static.md)."""


class StaticStudent(nn.Module):
    """The mean of weight x vector over a sentence's tokens; a sentence without tokens is 0.

    A batch looks its distinct tokens up once, so that the gradient of the table is of U rows and not of T.
    """

    def __init__(
        self,
        start_Vd: NDArray[np.float32],
        tokenizer: Path,
        weight_V: NDArray[np.float64] | None = None,
        *,
        stored: TableCode = "float32",
    ) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.from_numpy(np.array(start_Vd, dtype=np.float32)))
        weights = np.ones(len(start_Vd)) if weight_V is None else weight_V
        self.weights = nn.Parameter(torch.from_numpy(weights.astype(np.float32))[:, None].clone())
        self.tokenizer_file, self.stored = tokenizer, stored

    @property
    def width(self) -> int:
        """d."""
        return int(self.vectors.shape[1])

    def start(self, start_Vd: NDArray[np.float32]) -> None:
        """Give every token another vector; its weight stays."""
        with torch.no_grad():
            self.vectors.copy_(torch.from_numpy(start_Vd))

    def forward(self, ids_T: NDArray[np.int64], start_B: NDArray[np.int64]) -> Tensor:
        """Vectors of sentences, B x d: sentence i has the ids from start_B[i] up to the next start.

        With gradients they are of the table that is trained, without them of the one that is saved.
        """
        token_U, place_T = np.unique(ids_T, return_inverse=True)
        device = self.vectors.device
        index_U = torch.from_numpy(token_U).to(device)
        sparse = torch.is_grad_enabled()
        rows_Ud = functional.embedding(index_U, self.vectors, sparse=sparse)
        rows_Ud = rows_Ud * functional.embedding(index_U, self.weights, sparse=sparse)
        if self.stored != "float32" and not sparse:
            rows_Ud = torch.from_numpy(self._as_stored(rows_Ud.cpu().numpy())).to(device)
        place, start = (torch.from_numpy(a).to(device) for a in (place_T, start_B))
        return functional.embedding_bag(place, rows_Ud, start, mode="mean")

    def table(self) -> NDArray[np.float32]:
        """One vector a token, V x d, as it is saved: weight x vector, as the stored codes have it."""
        return self._as_stored(self.folded())

    def _as_stored(self, rows_Ud: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows_Ud if self.stored == "float32" else decoded(*coded(rows_Ud, LARGEST[self.stored]))

    def folded(self) -> NDArray[np.float32]:
        """Weight x vector of each token, V x d."""
        return (self.vectors * self.weights).detach().float().cpu().numpy()


def coded(table_Vd: NDArray[np.float32], largest: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes from -largest to largest and the scale of each row, which times the codes is the row; of zeros it is 0."""
    scale_V = np.abs(table_Vd).max(axis=1) / largest
    codes_Vd = np.rint(table_Vd / np.where(scale_V == 0, 1, scale_V)[:, None])
    return codes_Vd.astype(np.int8), scale_V.astype(np.float32)


def decoded(codes_Vd: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows that codes and scales stand for."""
    return codes_Vd.astype(np.float32) * scale_V[:, None]


def save_static(
    student: StaticStudent, after: Sequence[nn.Module], folder: Path, prompts: Prompts | None = None
) -> None:
    """A sentence-transformers folder: the table, the layers `after` it, unit norm, and the `prompts` that it reads with.

    A table in int8 is saved as the tensors `embeddings` (codes) and `weights` (scales), whose product is what
    sentence-transformers loads. One in int4 has `packed` codes, which `readable` unpacks.
    """
    table = StaticEmbedding(Tokenizer.from_file(str(student.tokenizer_file)), embedding_weights=student.table())
    model = SentenceTransformer(modules=[table, *after, Normalize()], device="cpu")
    if prompts is not None:
        prompts.keep_in(model)
    model.save(str(folder), create_model_card=False)
    if student.stored == "float32":
        return
    inner = json.loads((folder / "modules.json").read_text())[0]["path"]
    codes_Vd, scale_V = coded(student.folded(), LARGEST[student.stored])
    codes = {"embeddings": codes_Vd} if student.stored == "int8" else {PACKED: packed(codes_Vd)}
    with atomic_path(folder / inner / TABLE) as temporary:
        save_file({name: torch.from_numpy(array) for name, array in (codes | {"weights": scale_V}).items()}, temporary)
