"""One FAISS index of the stored bytes of any code, flat, in lists (IVF) or as a graph (HNSW): FAISS alone searches it.

Whatever a code needs is inside the index: its ranges, codebooks, thresholds, linear map. Bits too are a product code here: a
byte is 8 signs, one of 256 centroids. So a float query is compared with the decoded bits by FAISS itself, without rescoring,
and there is one way to load and search, with every kind of index.

Axes in names: N documents, B bytes of a code, d dimensions behind the linear map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import faiss as typed_faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.codes.binary import Binary
from distilbench.evaluation.codes.code import Code
from distilbench.evaluation.codes.faiss_code import FaissCode
from distilbench.evaluation.codes.steps import Steps
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.retrieval import unit

faiss: Any = typed_faiss  # its type stubs lack, or have otherwise, much of what is used here
ITERATIONS = 10
"""Of k-means for the lists: FAISS's own number in `IndexIVF`."""


def stored_codes(code: Code | None, vectors_ND: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bytes that an index holds of vectors, N x B; None is float32, of unit vectors.

    Raises:
        ValueError: not a matrix of finite floats of the code's width.
    """
    if code is None:
        return np.ascontiguousarray(unit(vectors_ND), dtype=np.float32).view(np.uint8)
    codes_NB = code.encode(vectors_ND)
    return code.stored(codes_NB) if isinstance(code, Steps) else codes_NB


def rescored(code: Code | None) -> bool:
    """Whether the decoded vectors have different norms: then what FAISS finds is ranked again by cosine."""
    return isinstance(code, Steps) or (isinstance(code, FaissCode) and _bits(code) is None)


@dataclass(eq=False)
class CodeIndex:
    """An index that grows by the stored bytes of a code. `held` is FAISS's, whole and ready to be written."""

    held: Any
    spec: IndexSpec
    flat: Any
    """An index without documents that decodes the bytes."""
    inner: Any
    """The index behind the linear maps."""
    kept: list[Any] = field(default_factory=list)
    """What FAISS holds pointers to."""

    def add(self, codes_NB: NDArray[np.uint8]) -> None:
        """Append documents by their stored bytes."""
        inner, first = self.inner, self.inner.ntotal
        codes_NB = np.ascontiguousarray(codes_NB)
        if self.spec.kind == "flat":
            inner.add_sa_codes(codes_NB)
        elif self.spec.kind == "ivf":
            list_N = inner.quantizer.assign(self.flat.sa_decode(codes_NB), 1).ravel()
            number = inner.sa_code_size() - codes_NB.shape[1]  # of bytes of the list's number, the lowest first
            list_NB = list_N.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :number]
            ids_N = np.arange(first, first + len(codes_NB), dtype=np.int64)
            inner.add_sa_codes(np.ascontiguousarray(np.hstack([list_NB, codes_NB])), ids_N)
        else:
            inner.add(self.flat.sa_decode(codes_NB))
            storage: Any = faiss.downcast_index(inner.storage)
            # FAISS has coded the decoded vectors again, which of two equal centroids may give the other.
            held_NB = faiss.rev_swig_ptr(storage.codes.data(), storage.codes.size()).reshape(-1, codes_NB.shape[1])
            held_NB[first:] = codes_NB
        self.held.ntotal = inner.ntotal


def code_index(code: Code | None, width: int, spec: IndexSpec, sample_NB: NDArray[np.uint8]) -> CodeIndex:
    """An empty index of the code (None: float32) as the resolved `spec` has it.

    Its lists are the clusters of the decoded `sample_NB`, `spec.training_rows(documents)` stored codes.
    """
    flat, chain = _form(code, width)
    kept: list[Any] = [code, flat, *chain]
    if spec.kind == "flat":
        inner = flat = faiss.clone_index(flat)
    elif spec.kind == "ivf":
        inner = _lists(flat, spec, sample_NB, kept)
    else:
        inner = _graph(flat, spec)
    kept.append(inner)
    held = inner
    if chain:
        held = faiss.IndexPreTransform(inner)
        for transform in reversed(chain):
            held.prepend_transform(transform)
        held.is_trained = True
    return CodeIndex(held, spec, flat, inner, kept)


def _form(code: Code | None, width: int) -> tuple[Any, list[Any]]:
    """An index without documents that decodes the stored bytes, and the linear maps before it."""
    if code is None:
        return faiss.IndexFlatIP(width), []
    if isinstance(code, Binary):
        centred: Any = faiss.CenteringTransform(width)
        faiss.copy_array_to_vector(code.threshold_d, centred.mean)
        centred.is_trained = True
        bits = 8 * code.bytes_per_vector
        padded = [faiss.RemapDimensionsTransform(width, bits, False)] if bits > width else []
        return _sign_codes(code.bytes_per_vector, "big"), [centred, *padded]
    if isinstance(code, FaissCode):
        size = _bits(code)
        inner, chain = code.parts()
        return (inner if size is None else _sign_codes(size, "little")), chain
    return code.index(np.empty((0, width), dtype=np.float32)), []


def _bits(code: FaissCode) -> int | None:
    """The bytes of a code that is one bit a dimension; None for another."""
    return code.bytes_per_vector if isinstance(code.parts()[0], faiss.IndexLSH) else None


def _sign_codes(size: int, order: Any) -> Any:
    """Bytes as a product code: each of 8 signs, all decoded vectors of norm 1."""
    signs_K8 = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder=order) * np.float32(2) - 1
    index: Any = faiss.IndexPQ(8 * size, size, 8, faiss.METRIC_L2)
    centroids = np.tile(signs_K8.ravel() / np.float32(np.sqrt(8 * size)), size)
    faiss.copy_array_to_vector(centroids.astype(np.float32), index.pq.centroids)
    index.is_trained = True
    return index


def _lists(flat: Any, spec: IndexSpec, sample_NB: NDArray[np.uint8], kept: list[Any]) -> Any:
    nlist, nprobe = spec.lists or (1, 1)
    d, metric = flat.d, flat.metric_type
    # Spherical: a query of norm 1 goes to the lists of the largest cosine, whatever the norms of decoded vectors are.
    clusters = faiss.Kmeans(d, nlist, niter=ITERATIONS, spherical=True, min_points_per_centroid=1, seed=1234)
    clusters.train(flat.sa_decode(np.ascontiguousarray(sample_NB)))
    coarse = faiss.IndexFlat(d, metric)
    coarse.add(clusters.centroids)
    kept.append(coarse)
    index: Any
    if isinstance(flat, faiss.IndexPQ):
        index = faiss.IndexIVFPQ(coarse, d, nlist, flat.pq.M, 8, metric)
        index.by_residual = False
        faiss.copy_array_to_vector(faiss.vector_to_array(flat.pq.centroids), index.pq.centroids)
    elif isinstance(flat, faiss.IndexScalarQuantizer):
        index = faiss.IndexIVFScalarQuantizer(coarse, d, nlist, flat.sq.qtype, metric, False)
        faiss.copy_array_to_vector(faiss.vector_to_array(flat.sq.trained), index.sq.trained)
    else:
        index = faiss.IndexIVFFlat(coarse, d, nlist, metric)
    index.nprobe, index.is_trained = nprobe, True
    return index


def _graph(flat: Any, spec: IndexSpec) -> Any:
    index: Any
    links = spec.links or 32
    if isinstance(flat, faiss.IndexPQ):
        index = faiss.IndexHNSWPQ(flat.d, flat.pq.M, links, 8, flat.metric_type)
        codes = faiss.downcast_index(index.storage).pq
        faiss.copy_array_to_vector(faiss.vector_to_array(flat.pq.centroids), codes.centroids)
        codes.compute_sdc_table()  # distances between centroids: the graph is built by them
    elif isinstance(flat, faiss.IndexScalarQuantizer):
        index = faiss.IndexHNSWSQ(flat.d, flat.sq.qtype, links, flat.metric_type)
        ranges = faiss.downcast_index(index.storage).sq.trained
        faiss.copy_array_to_vector(faiss.vector_to_array(flat.sq.trained), ranges)
    else:
        index = faiss.IndexHNSWFlat(flat.d, links, flat.metric_type)
    index.storage.is_trained = index.is_trained = True
    index.hnsw.efConstruction, index.hnsw.efSearch = spec.ef_construction or 80, spec.ef_search or 128
    return index
