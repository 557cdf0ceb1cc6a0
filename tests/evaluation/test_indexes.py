"""Indexes that grow by blocks: equal to those built at once, settings, training without warnings, and GPUs as fakes."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from distilbench.evaluation import indexes
from distilbench.evaluation.indexes import (
    FAISS_KINDS,
    DocumentIndex,
    IndexSpec,
    document_index,
    serialised_bytes,
)
from distilbench.evaluation.retrieval import unit


def clusters(documents: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    """Unit vectors around 20 centres."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((20, width))
    noise = 0.4 * rng.standard_normal((documents, width))
    return unit((centres[rng.integers(0, 20, documents)] + noise).astype(np.float32))


def built(spec: IndexSpec, vectors: NDArray[np.float32], block: int) -> DocumentIndex:
    spec = spec.resolved(*vectors.shape)
    index = document_index(spec, vectors.shape[1], len(vectors), vectors[: spec.training_rows(len(vectors))])
    for start in range(0, len(vectors), block):
        index.add(vectors[start : start + block])
    return index


def overlap(found: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    return float(np.mean([np.isin(e, f).mean() for e, f in zip(exact, found, strict=True)]))


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_blocks_make_the_index_that_one_add_makes(kind: indexes.FaissKind) -> None:
    vectors = clusters(2_000, 24)
    whole, blocks = built(IndexSpec(kind), vectors, 2_000), built(IndexSpec(kind), vectors, 300)
    assert whole.held.ntotal == blocks.held.ntotal == 2_000
    queries = clusters(50, 24, seed=1)
    if kind != "hnsw":  # whose graph depends on the order in which vectors meet their neighbours
        np.testing.assert_array_equal(
            np.sort(whole.search(queries, 20), axis=1), np.sort(blocks.search(queries, 20), axis=1)
        )
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :20]
    least = {"flat": 0.999, "ivf": 0.7, "ivf-pq": 0.15, "hnsw": 0.98, "sq8": 0.93}[kind]
    assert overlap(blocks.search(queries, 20), exact) >= least


@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_bytes_are_those_that_faiss_serialises(kind: indexes.FaissKind) -> None:
    index = built(IndexSpec(kind), clusters(1_500, 24), 400)
    assert serialised_bytes(index) == faiss.serialize_index(index.held).nbytes > 1_500 * 3


@pytest.mark.parametrize(
    ("spec", "documents", "width", "expected"),
    [
        (IndexSpec("flat"), 1_000, 8, IndexSpec("flat")),
        (IndexSpec("ivf"), 20_000, 8, IndexSpec("ivf", lists=(512, 5))),
        # Eight dimensions a code, 8 bits from 39 x 256 documents on.
        (IndexSpec("ivf-pq"), 10_000, 128, IndexSpec("ivf-pq", lists=(256, 5), codes=16, bits=8)),
        (IndexSpec("ivf-pq"), 9_000, 768, IndexSpec("ivf-pq", lists=(128, 5), codes=96, bits=7)),
        # No divisor between 4 and 8: 2 x 11, and a prime.
        (IndexSpec("ivf-pq"), 10_000, 22, IndexSpec("ivf-pq", lists=(256, 5), codes=11, bits=8)),
        (IndexSpec("ivf-pq"), 10_000, 17, IndexSpec("ivf-pq", lists=(256, 5), codes=17, bits=8)),
        (IndexSpec("ivf-pq"), 30, 16, IndexSpec("ivf-pq", lists=(1, 1), codes=2, bits=1)),
        (IndexSpec("hnsw", ef_search=16), 50, 4, IndexSpec("hnsw", links=32, ef_construction=80, ef_search=16)),
    ],
)
def test_defaults_by_corpus(spec: IndexSpec, documents: int, width: int, expected: IndexSpec) -> None:
    assert spec.resolved(documents, width) == expected
    assert expected.resolved(documents, width) == expected


def test_the_published_setting_of_hpd_is_kept_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    vectors = clusters(3_000, 8)
    index = built(IndexSpec("ivf", lists=(1024, 5)), vectors, 1_000)
    assert (index.held.nlist, index.held.nprobe, index.spec.lists, index.setting) == (1024, 5, (1024, 5), "")
    assert capfd.readouterr() == ("", "")  # three training vectors a list, which was asked for


def test_settings_tell_what_an_index_depends_on() -> None:
    vectors = clusters(3_000, 16)
    assert built(IndexSpec("hnsw"), vectors, 3_000).setting == "M=32, efConstruction=80, efSearch=128"
    assert built(IndexSpec("ivf", lists=(16, 4)), vectors, 3_000).setting == "trained on 624"
    pq = built(IndexSpec("ivf-pq", lists=(4, 2), codes=4, bits=5), vectors, 3_000)
    assert pq.setting == "m=4, bits=5, trained on 1248"
    assert (pq.held.pq.M, pq.held.pq.nbits, pq.held.nlist, pq.held.nprobe) == (4, 5, 4, 2)
    graph = built(IndexSpec("hnsw", links=8, ef_construction=40, ef_search=20), vectors[:100], 100)
    hnsw = graph.held.hnsw
    assert (hnsw.nb_neighbors(1), hnsw.efConstruction, hnsw.efSearch) == (8, 40, 20)


@pytest.mark.parametrize("documents", [2, 30, 77, 200, 2_500])
@pytest.mark.parametrize("kind", FAISS_KINDS)
def test_small_corpora_train_without_a_warning(
    kind: indexes.FaissKind, documents: int, capfd: pytest.CaptureFixture[str]
) -> None:
    vectors = clusters(documents, 8)
    index = built(IndexSpec(kind), vectors, 1_000)
    found = index.search(vectors[:2], min(100, documents))
    assert found.shape == (2, min(100, documents)) and found.max() < documents
    assert capfd.readouterr() == ("", "")


def test_faiss_does_warn_where_the_settings_do_not_see_to_it(capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise the test above could not fail."""
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(8), 8, 64, faiss.METRIC_INNER_PRODUCT)
    index.train(clusters(200, 8))
    assert "WARNING" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("spec", "documents", "message"),
    [
        (IndexSpec("lsh"), 100, "index kind 'lsh', expected one of flat, ivf"),  # type: ignore[arg-type]
        (IndexSpec("flat", lists=(4, 1)), 100, "flat: lists is no setting of it, expected none"),
        (IndexSpec("ivf", bits=8), 100, "ivf: bits is no setting of it, expected lists"),
        (IndexSpec("ivf", lists=(200, 5)), 100, "nlist 200 and nprobe 5 for 100 documents"),
        (IndexSpec("ivf", lists=(4, 5)), 100, "nlist 4 and nprobe 5"),
        (IndexSpec("ivf", lists=(4, 0)), 100, "nlist 4 and nprobe 0"),
        (IndexSpec("ivf-pq", codes=3), 100, "3 codes for 16 dimensions"),
        (IndexSpec("ivf-pq", bits=8), 100, "codes of 8 bits for 100 documents"),
        (IndexSpec("ivf-pq", bits=0), 100, "codes of 0 bits"),
        (IndexSpec("ivf-pq"), 1, "codes of 1 bits for 1 documents"),
        (IndexSpec("hnsw", links=0), 100, "links is 0"),
    ],
)
def test_settings_that_cannot_be_are_named(spec: IndexSpec, documents: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec.resolved(documents, 16)


class Options:
    """In place of FAISS's, which its CPU build lacks."""

    useFloat16 = False


@pytest.mark.parametrize(
    ("kind", "device", "float16"),
    [
        ("flat", "cuda", False),
        ("ivf", "cuda", False),
        ("ivf-pq", "cuda", True),
        ("hnsw", "cpu", None),
        ("sq8", "cpu", None),
    ],
)
def test_what_the_gpu_offers_goes_there_and_comes_back_for_its_size(
    monkeypatch: pytest.MonkeyPatch, kind: indexes.FaissKind, device: str, float16: bool | None
) -> None:
    moved: list[tuple[int, bool]] = []
    back: list[int] = []

    def to_gpus(index: Any, co: Options) -> Any:
        assert index.is_trained
        moved.append((index.ntotal, co.useFloat16))
        return faiss.clone_index(index)

    def to_cpu(index: Any) -> Any:
        back.append(index.ntotal)
        return index

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(faiss, "GpuMultipleClonerOptions", Options, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", to_gpus)
    monkeypatch.setattr(faiss, "index_gpu_to_cpu", to_cpu, raising=False)
    vectors = clusters(500, 16)
    index = built(IndexSpec(kind), vectors, 200)
    assert index.device == device
    assert moved == ([] if float16 is None else [(0, float16)])  # empty: it is filled there
    assert index.search(vectors[:3], 5)[:, 0].shape == (3,) and index.held.ntotal == 500
    assert serialised_bytes(index) == faiss.serialize_index(index.held).nbytes
    assert back == ([] if float16 is None else [500])


def test_only_product_codes_may_be_refused_by_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(index: Any, co: Options) -> Any:
        raise RuntimeError("Number of bytes per encoded vector is not supported")

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "GpuMultipleClonerOptions", Options, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", refuse)
    index = built(IndexSpec("ivf-pq"), clusters(500, 16), 200)
    assert index.device == "cpu" and index.held.ntotal == 500
    with pytest.raises(RuntimeError, match="not supported"):  # a full GPU, say, is no reason to measure something else
        built(IndexSpec("flat"), clusters(500, 16), 200)


def test_a_build_of_faiss_without_gpus_needs_none_of_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(faiss, "get_num_gpus")
    assert built(IndexSpec("flat"), clusters(50, 8), 20).device == "cpu"
