"""Codes that FAISS makes: product codes, and bits or steps after a linear map, all fitted to training embeddings.

They are what a team gets from FAISS alone, and the peers of every head that is trained here. A product code is also what
a trained codebook is stored as.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.codes import family_of
from distilbench.errors import InputError
from distilbench.evaluation.codes.checks import calibration_rows, check_codes, unit_rows
from distilbench.evaluation.codes.code import Code, search_decoded
from distilbench.evaluation.codes.files import card_path, checked_file, write_card
from distilbench.evaluation.retrieval import quick_clustering
from distilbench.storage.files import atomic_path

CENTROIDS = 256
"""Of each part of a product code: a byte's."""
ROUNDS = 10
"""Of OPQ, where FAISS has 50: on 20,000 embeddings of all-MiniLM-L6-v2 in 16 bytes the STS average was 73.1 after 10 and 72.6
after 50."""


def can_make(kind: str, width: int) -> str:
    """Why FAISS cannot make this code of vectors of `width` dimensions; "" where it can."""
    family, size = family_of(kind) or ("", 0)
    if family == "pq" and width % size:
        return f"{kind}: {size} parts of {width} dimensions; expected a divisor of the dimensions"
    if family == "opq" and size > width:
        return f"{kind}: {size} parts of {width} dimensions; expected at most {width}"
    needed = {"itq": 8 * size, "lsh": 8 * size, "pcar": 2 * size}.get(family, 0)
    if needed > width:
        return f"{kind}: it takes {needed} dimensions, of vectors of {width}; expected at most {width}"
    return ""


def factory_of(kind: str, width: int) -> str:
    """FAISS's own description of the code, for `faiss.index_factory`. np: without polysemous training, which orders
    centroids for a search by Hamming distance, and takes 20 times as long as all the rest.

    Raises:
        ValueError: it cannot be made of that many dimensions.
    """
    if why := can_make(kind, width):
        raise ValueError(why)
    family, size = family_of(kind) or ("", 0)
    reduced = size * max(part for part in (8, 4, 2, 1) if part * size <= width) if family == "opq" else 0
    return {
        "pq": f"PQ{size}np",
        "opq": f"OPQ{size}_{reduced},PQ{size}np",
        "itq": f"ITQ{8 * size},LSHt",
        "lsh": f"RR{8 * size},LSHt",
        "pcar": f"PCAR{2 * size},SQ4",
    }[family]


@dataclass(frozen=True, eq=False)
class FaissCode(Code):
    """A code of FAISS. `trained` is an empty index of it, which holds a linear map where it has one."""

    kind: str
    trained: Any

    @classmethod
    def calibrate(cls, kind: str, vectors_Nd: NDArray[Any]) -> FaissCode:
        """The code of training embeddings.

        Raises:
            ValueError: it cannot be made of them, or they are fewer than a product code has centroids.
        """
        family, _ = family_of(kind) or ("", 0)
        unit_Nd = calibration_rows(vectors_Nd, CENTROIDS if family in ("pq", "opq") else 2)
        index = faiss.index_factory(unit_Nd.shape[1], factory_of(kind, unit_Nd.shape[1]), faiss.METRIC_L2)
        kept = _quiet(index)
        with quick_clustering():
            index.train(unit_Nd)
        del kept
        return cls(kind, index)

    @classmethod
    def of_codebooks(cls, centroids_MKw: NDArray[np.float32]) -> FaissCode:
        """The product code of M codebooks of 256 centroids, each of w dimensions: d = M w."""
        parts, centroids, per_part = centroids_MKw.shape
        if centroids != CENTROIDS:
            raise ValueError(f"codebooks of {centroids} centroids, expected {CENTROIDS}")
        index = faiss.IndexPQ(parts * per_part, parts, 8, faiss.METRIC_L2)
        faiss.copy_array_to_vector(np.ascontiguousarray(centroids_MKw, dtype=np.float32).ravel(), index.pq.centroids)
        index.is_trained = True
        return cls(f"pq{parts}", index)

    @property
    def width(self) -> int:
        """Dimensions d."""
        return int(self.trained.d)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code."""
        return int(self.trained.sa_code_size())

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.uint8]:
        """Codes as FAISS's index holds them, N x B.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        return self.trained.sa_encode(unit_rows(vectors_Nd, self.width))

    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """The vectors that codes stand for, N x d', after the linear map: it turns them, so cosines between them stay.

        Raises:
            ValueError: not a uint8 matrix of B columns.
        """
        check_codes(codes_NB, np.uint8, self.bytes_per_vector)
        return _inner(self.trained).sa_decode(np.ascontiguousarray(codes_NB))

    def queries(self, vectors_Qd: NDArray[Any]) -> NDArray[np.float32]:
        """Unit queries after the linear map, Q x d': as many dimensions as decoded vectors have.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        mapped_Qd = unit_rows(vectors_Qd, self.width)
        for transform in _chain(self.trained):
            mapped_Qd = transform.apply(mapped_Qd)
        return mapped_Qd

    def parts(self) -> tuple[Any, list[Any]]:
        """The empty index behind the linear maps, and these in their order; both live as long as `trained`."""
        return _inner(self.trained), _chain(self.trained)

    def index(self, documents_Nd: NDArray[Any]) -> Any:
        """FAISS's own index of the codes, linear map included. It searches by squared distance, or by Hamming distance."""
        index = faiss.deserialize_index(faiss.serialize_index(self.trained))  # `clone_index` knows no ITQ
        self.add(index, documents_Nd)
        return index

    def add(self, index: Any, documents_Nd: NDArray[Any]) -> None:
        """Append documents."""
        index.add(unit_rows(documents_Nd, self.width))

    def search(self, index: Any, queries_Qd: NDArray[Any], depth: int) -> NDArray[np.int64]:
        """The `depth` documents (at most all) of largest cosine of the decoded vector with each float query, best first.

        Both are compared after the linear map, where there are fewer dimensions. It turns, so no inner product changes
        but for what it leaves out of the query.
        """
        return search_decoded(_inner(index), self.queries(queries_Qd), depth)

    def save(self, folder: Path) -> None:
        """Write `quantisation-KIND.faiss` and `quantisation-KIND.json`."""
        path = card_path(folder, self.kind).with_suffix(".faiss")
        with atomic_path(path) as temporary:
            faiss.write_index(self.trained, str(temporary))
        write_card(path, self.kind, self.width)

    @classmethod
    def load(cls, kind: str, folder: Path, width: int | None = None) -> FaissCode:
        """Read what `save` wrote. `width` is the encoder's; None takes any.

        Raises:
            InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
        """
        path, described = checked_file(folder, kind, width, ".faiss")
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            raise InputError(f"{path}: {error}") from None
        if index.d != described.get("width") or index.ntotal or not index.is_trained:
            found = f"{index.d} dimensions, {index.ntotal} vectors"
            raise InputError(f"{path}: {found}; expected an empty, trained index of {described.get('width')!r}")
        return cls(kind, index)


def _inner(index: Any) -> Any:
    """The index behind the linear map."""
    held = faiss.downcast_index(index)
    return faiss.downcast_index(held.index) if isinstance(held, faiss.IndexPreTransform) else held


def _chain(index: Any) -> list[Any]:
    """The linear maps before the codes."""
    held: Any = faiss.downcast_index(index)
    if not isinstance(held, faiss.IndexPreTransform):
        return []
    chain: Any = held.chain  # FAISS's type stubs take it for a list
    return [faiss.downcast_VectorTransform(chain.at(i)) for i in range(chain.size())]


def _quiet(index: Any) -> list[Any]:
    """Keep FAISS from a warning on the terminal for each clustering of fewer than 39 vectors a centroid.

    What is returned must be kept until the index is trained: FAISS holds pointers alone.
    """
    kept = []
    inner = _inner(index)
    if isinstance(inner, faiss.IndexPQ):
        inner.pq.cp.min_points_per_centroid = 1
    for rotation in _chain(index):
        if isinstance(rotation, faiss.OPQMatrix):
            codes = faiss.ProductQuantizer(rotation.d_out, rotation.M, 8)
            codes.cp.min_points_per_centroid = 1
            rotation.pq, rotation.niter = codes, ROUNDS
            kept.append(codes)
    return kept
