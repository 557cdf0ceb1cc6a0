"""How far an approximate index has to look for another encoder's queries.

Lists and graphs are made of the documents. A student's queries lie a little off the teacher's documents, so at one setting
an index finds less of their exact first ten than of the teacher's own queries. Here the setting is found at which it finds as
much.

Axes in names: Q queries, D dimensions, R ranks (best first).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.faiss_codes import inner_of
from distilbench.evaluation.indexes import DocumentIndex, IndexSpec

FIRST = 10
FINDS = " finds what "
"""In the setting of an index that was widened, between its own width and the one that it is compared with."""


def overlap(found_QR: NDArray[np.int64], exact_QR: NDArray[np.int64]) -> float:
    """The share (x 100) of the first ten of an exact search that are among the first ten that were found."""
    first_QR = exact_QR[:, :FIRST]
    kept_QR = (first_QR[:, :, None] == found_QR[:, None, :FIRST]).any(axis=2) & (first_QR >= 0)
    return 100 * float(kept_QR.sum()) / int((first_QR >= 0).sum())


def widen(
    index: DocumentIndex, exact: DocumentIndex, queries_QD: NDArray[np.float32], own_QD: NDArray[np.float32]
) -> bool:
    """Widen the search of `index` until `queries_QD` find as much of their exact first ten as `own_QD`, those of the
    documents' own encoder, find at its setting; False where it is none of lists or a graph of float32 vectors on the CPU.

    `exact` is a flat index of the same documents. The index says its new setting and the aim.
    """
    kind = index.spec.kind
    if kind == "flat" or index.code is not None or index.device != "cpu":
        return False
    first, most = _width(index), _most(index)
    aim = overlap(index.search(own_QD, FIRST), exact.search(own_QD, FIRST))
    exact_QR, width = exact.search(queries_QD, FIRST), first
    while overlap(index.search(queries_QD, FIRST), exact_QR) < aim and width < most:
        width = min(most, max(width + 1, round(1.1 * width)))
        _set(index, width)
    index.setting = f"{_NAMES[kind]}={width}{FINDS}{first} finds of the teacher's queries ({aim:.1f} %)"
    if index.spec.lists:
        index.spec = IndexSpec(kind, (index.spec.lists[0], width))
    return True


_NAMES = {"ivf": "nprobe", "hnsw": "efSearch"}


def _width(index: DocumentIndex) -> int:
    inner = inner_of(index.held)
    return int(inner.nprobe if index.spec.kind == "ivf" else inner.hnsw.efSearch)


def _most(index: DocumentIndex) -> int:
    return int(inner_of(index.held).nlist if index.spec.kind == "ivf" else index.held.ntotal)


def _set(index: DocumentIndex, width: int) -> None:
    """Search so many lists, or keep so many candidates."""
    inner = inner_of(index.held)
    if index.spec.kind == "ivf":
        inner.nprobe = width
    else:
        inner.hnsw.efSearch = width
