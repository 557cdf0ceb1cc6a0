"""Bits: each dimension of a vector is above its mean, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.codes.checks import calibration_rows, check_codes, check_tensors, unit_rows
from distilbench.evaluation.codes.code import Code
from distilbench.evaluation.codes.files import load_tensors, save_tensors

RESCORE = 2
"""Binary candidates for each result wanted, as in sentence-transformers. With 20,000 Quora documents 4 and 8 moved
MRR@10 by 0.001 and Recall@100 by 0.05 at most (five encoders of 128 to 768 dimensions)."""
STILL = 1e-7
"""A dimension of unit vectors that spreads less says nothing: its digits are float32's roundings. all-MiniLM-L6-v2 has two
whose values are about 1e-33: their bits would be noise, and 0 where the vectors were kept in float16."""
QUERIES = 8
"""Queries whose candidates are rescored at a time: few enough for the processor's cache."""


@dataclass(frozen=True, eq=False)
class Binary(Code):
    """A bit a dimension: whether the value is above `threshold_d` (float32), the mean of the training embeddings.

    Where a dimension is not centred on 0, the plain sign gives all vectors the same bit. The median did no better than
    the mean (five encoders of 128 to 768 dimensions) and takes a sort.
    """

    threshold_d: NDArray[np.float32]
    kind = "binary"

    def __post_init__(self) -> None:
        check_tensors({"threshold": self.threshold_d})

    @classmethod
    def calibrate(cls, vectors_Nd: NDArray[Any]) -> Binary:
        """The mean of training embeddings; a little above it in a dimension that stands still, whose bit is then 0.

        Raises:
            ValueError: not a matrix of finite floats with at least 2 rows.
        """
        unit_Nd = calibration_rows(vectors_Nd)
        mean_d = unit_Nd.mean(axis=0, dtype=np.float64)
        mean_d[np.ptp(unit_Nd, axis=0) < STILL] += STILL
        return cls(mean_d.astype(np.float32))

    @property
    def width(self) -> int:
        """Dimensions d."""
        return len(self.threshold_d)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code: ceil(d / 8)."""
        return -(-self.width // 8)

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.uint8]:
        """Packed bits, N x ceil(d / 8), the first dimension highest; bits that fill the last byte are 0.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        return np.packbits(unit_rows(vectors_Nd, self.width) > self.threshold_d, axis=1)

    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """The codes as +1 and -1, N x d; the cosine of two is 1 - 2 hamming / d.

        Raises:
            ValueError: not a uint8 matrix of ceil(d / 8) columns.
        """
        check_codes(codes_NB, np.uint8, self.bytes_per_vector)
        return np.unpackbits(codes_NB, axis=1, count=self.width) * np.float32(2) - 1

    def index(self, documents_Nd: NDArray[Any]) -> faiss.IndexBinaryFlat:
        """A FAISS index of the codes: ceil(d / 8) bytes a document."""
        index: Any = faiss.IndexBinaryFlat(8 * self.bytes_per_vector)  # FAISS's type stubs lack some attributes
        index.use_heap = self.width > 256  # below, FAISS's other way, counting, takes half the time for 200 candidates
        index.add(self.encode(documents_Nd))
        return index

    def add(self, index: faiss.IndexBinaryFlat, documents_Nd: NDArray[Any]) -> None:
        """Append documents to what `index` gave."""
        held: Any = index  # the stubs have another signature
        held.add(self.encode(documents_Nd))

    def search(
        self, index: faiss.IndexBinaryFlat, queries_Qd: NDArray[Any], depth: int, rescore: int = RESCORE
    ) -> NDArray[np.int64]:
        """The `depth` documents (at most all) for each query, best first: of the `rescore` x `depth` nearest by Hamming
        distance, those of largest inner product of the float query with the document's +1 and -1.

        The float query is centred on the threshold, as the codes are: up to 0.3 more MRR@10 on Quora. Candidates that
        tie keep their order by Hamming distance. Rescoring takes one thread.

        Raises:
            ValueError: vectors of another width or not finite, or `rescore` below 1.
        """
        if rescore < 1:
            raise ValueError(f"rescore is {rescore}, expected at least 1")
        codes_QB, centred_Qd = self.encode(queries_Qd), unit_rows(queries_Qd, self.width) - self.threshold_d
        held: Any = index  # the stubs lack `xb`
        codes_NB = faiss.rev_swig_ptr(held.xb.data(), held.xb.size()).reshape(index.ntotal, -1)
        _, nearest_QC = index.search(codes_QB, min(rescore * depth, index.ntotal))
        best_QR = np.empty((len(nearest_QC), depth), dtype=np.int64)
        for start in range(0, len(nearest_QC), QUERIES):
            here = slice(start, start + QUERIES)
            # By bits, since bits . query = (signs . query + a constant of the query) / 2. Not a matrix product: BLAS
            # would start threads of its own.
            bits_QCd = np.unpackbits(codes_NB[nearest_QC[here]], axis=2, count=self.width).astype(np.float32)
            similarity_QC = np.einsum("qcd,qd->qc", bits_QCd, centred_Qd[here])
            order = np.argsort(-similarity_QC, axis=1, kind="stable")[:, :depth]
            best_QR[here] = np.take_along_axis(nearest_QC[here], order, axis=1)
        return best_QR

    def save(self, folder: Path) -> None:
        """Write `quantisation-binary.safetensors` and `quantisation-binary.json`."""
        save_tensors(folder, self.kind, {"threshold": self.threshold_d})

    @classmethod
    def load(cls, folder: Path, width: int | None = None) -> Binary:
        """Read what `save` wrote. `width` is the encoder's; None takes any.

        Raises:
            InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
        """
        return load_tensors(folder, cls.kind, width, ("threshold",), cls)
