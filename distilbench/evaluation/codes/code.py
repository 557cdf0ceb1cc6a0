"""What every code can do: be calibrated on training vectors, encode, decode, be searched in an index, be saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

BLOCK = 8_192
"""Documents that a search decodes at a time: 50 MB of float64 at 768 dimensions, whatever the size of the index."""


class Code(ABC):
    """A calibrated code of vectors of `width` dimensions, `bytes_per_vector` each."""

    kind: str
    """Its name in records: int8, int4, binary, or a code of FAISS with its bytes, such as opq16."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Dimensions d of the vectors."""

    @property
    @abstractmethod
    def bytes_per_vector(self) -> int:
        """Bytes B of a code."""

    @abstractmethod
    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[Any]:
        """Codes of vectors, a row each.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """

    @abstractmethod
    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """The vectors that codes stand for, N x d.

        Raises:
            ValueError: codes of another type or width.
        """

    def queries(self, vectors_Qd: NDArray[Any]) -> NDArray[np.float32]:
        """Query vectors as they are compared with decoded ones: through the code's linear map, where it has one."""
        return vectors_Qd

    def compared(self, vectors_Nd: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors as they are stored, decoded again, and the same as queries that are compared with stored ones.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        return self.decode(self.encode(vectors_Nd)), self.queries(vectors_Nd)

    @abstractmethod
    def index(self, documents_Nd: NDArray[Any]) -> Any:
        """A FAISS index that holds the codes of the documents, and takes their bytes."""

    def add(self, index: Any, documents_Nd: NDArray[Any]) -> None:
        """Append documents to what `index` gave."""
        index.merge_from(self.index(documents_Nd))

    @abstractmethod
    def search(self, index: Any, queries_Qd: NDArray[Any], depth: int) -> NDArray[np.int64]:
        """The `depth` documents (at most all) nearest to each float query, best first."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write `quantisation-KIND.json` and the file that it names."""


def search_decoded(index: Any, unit_Qd: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
    """The `depth` documents of largest cosine of the decoded vector with each unit query, best first.

    Decoded vectors are brought to norm 1 in float64, and the mean of the first block is taken from all of them: that
    moves every inner product of a query alike, and leaves float32 the digits that tell crowded vectors apart. Decoding
    a block for all queries leaves the rest to BLAS, where `index.search` decodes anew for each query.
    """
    best = faiss.ResultHeap(len(unit_Qd), depth, keep_max=True)
    origin_d: NDArray[np.float64] | None = None
    for start in range(0, index.ntotal, BLOCK):
        block_Nd = index.reconstruct_n(start, min(BLOCK, index.ntotal - start)).astype(np.float64)
        norm_N1 = np.linalg.norm(block_Nd, axis=1, keepdims=True)
        np.divide(block_Nd, norm_N1, out=block_Nd, where=norm_N1 > 0)
        if origin_d is None:
            origin_d = block_Nd.mean(axis=0)
        moved_Nd = (block_Nd - origin_d).astype(np.float32)
        similarity, found = faiss.knn(unit_Qd, moved_Nd, min(depth, len(moved_Nd)), faiss.METRIC_INNER_PRODUCT)
        best.add_result(similarity, found + start)
    best.finalize()
    return best.I
