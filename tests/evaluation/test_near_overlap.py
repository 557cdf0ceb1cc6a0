"""How far an approximate index looks for another encoder's queries: as far as it says, or it says nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from distilbench.evaluation import near_overlap
from distilbench.evaluation.faiss_codes import unit
from distilbench.evaluation.indexes import DocumentIndex, IndexSpec, document_index
from distilbench.evaluation.near_overlap import overlap, widen

Vectors = NDArray[np.float32]


def indexed(kind: Any, documents: Vectors) -> DocumentIndex:
    spec = IndexSpec(kind).resolved(len(documents))
    index = document_index(spec, documents.shape[1], len(documents), documents[: spec.training_rows(len(documents))])
    index.add(documents)
    return index


def sides(count: int) -> tuple[Vectors, Vectors, Vectors]:
    """Documents, queries that lie near some of them, and queries that lie anywhere."""
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal((rows, 16)).astype(np.float32) for rows in (count, 40, 40)]
    documents = unit(drawn[0])
    return documents, unit(documents[rng.integers(0, count, 40)] + 0.1 * drawn[1]), unit(drawn[2])


def test_it_looks_so_far_that_it_finds_as_much_and_no_farther() -> None:
    documents, near, far = sides(3000)
    index, exact = indexed("ivf", documents), indexed("flat", documents)
    assert widen(index, exact, far, near)
    nlist, width = index.spec.lists or (0, 0)
    said = re.fullmatch(r"nprobe=(\d+) finds what (\d+) finds of the teacher's queries \(([\d.]+) %\)", index.setting)
    assert said is not None and (int(said[1]), nlist) == (width, 64) and width == index.held.nprobe > int(said[2])
    found = []
    for nprobe in (width - 1, width):
        index.held.nprobe = nprobe
        found.append(overlap(index.search(far, 10), exact.search(far, 10)))
    assert found[0] < float(said[3]) <= found[1] + 0.05


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
@pytest.mark.parametrize("count", [3, 9, 10, 40])
def test_sets_of_few_documents_need_no_more(kind: str, count: int) -> None:
    documents, near, far = sides(count)
    index = indexed(kind, documents)
    assert widen(index, indexed("flat", documents), far, near)
    width = {"ivf": 1, "hnsw": 128}[kind]
    assert f"={width} finds what {width} finds of the teacher's queries (100.0 %)" in index.setting


def test_nothing_is_said_of_an_index_that_does_not_get_there(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, near, far = sides(3000)
    monkeypatch.setattr(near_overlap, "MOST", 1)
    index, exact = indexed("ivf", documents), indexed("flat", documents)
    assert not widen(index, exact, far, near) and "finds" not in index.setting
    assert not widen(exact, exact, far, near)
