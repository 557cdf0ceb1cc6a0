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
MOST = 20
"""Times an index's own setting that are tried at most: a graph may never find some documents."""
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
    documents' own encoder, find at its setting; False where `MOST` times that is not enough, and where it is none of lists or
    a graph of float32 vectors on the CPU.

    `exact` is a flat index of the same documents. The index says its new setting and the aim.
    """
    kind, inner = index.spec.kind, inner_of(index.held)
    if kind == "flat" or index.code is not None or index.device != "cpu":
        return False
    name, holder, whole = ("nprobe", inner, inner.nlist) if kind == "ivf" else ("efSearch", inner.hnsw, inner.ntotal)
    first = width = int(getattr(holder, name))
    aim = overlap(index.search(own_QD, FIRST), exact.search(own_QD, FIRST))
    exact_QR, most = exact.search(queries_QD, FIRST), min(int(whole), MOST * first)
    while overlap(index.search(queries_QD, FIRST), exact_QR) < aim:
        if width >= most:
            return False
        width = min(most, max(width + 1, round(1.1 * width)))
        setattr(holder, name, width)
    index.setting = f"{name}={width}{FINDS}{first} finds of the teacher's queries ({aim:.1f} %)"
    if index.spec.lists:
        index.spec = IndexSpec(kind, (index.spec.lists[0], width))
    return True
