"""Indexes that grow by blocks: equal to those built at once, settings, training without warnings, and GPUs as fakes."""

from __future__ import annotations

import functools
import re
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from distilbench.errors import InputError
from distilbench.evaluation import indexes
from distilbench.evaluation.faiss_codes import unit
from distilbench.evaluation.indexes import (
    FAISS_KINDS,
    DocumentIndex,
    IndexSpec,
    document_index,
    overlap,
    serialised_bytes,
    widen,
)

Vectors = NDArray[np.float32]


def clusters(documents: int, width: int, seed: int = 0) -> Vectors:
    """Unit vectors around 20 centres."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((20, width))
    noise = 0.4 * rng.standard_normal((documents, width))
    return unit((centres[rng.integers(0, 20, documents)] + noise).astype(np.float32))


def built(spec: IndexSpec, vectors: Vectors, block: int, *, on_gpu: bool = True) -> DocumentIndex:
    spec = spec.resolved(len(vectors))
    sample = vectors[: spec.training_rows(len(vectors))]
    index = document_index(spec, vectors.shape[1], len(vectors), sample, on_gpu=on_gpu)
    for start in range(0, len(vectors), block):
        index.add(vectors[start : start + block])
    return index


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
    least = {"flat": 0.999, "ivf": 0.7, "hnsw": 0.98}[kind]
    shares = [np.isin(e, f).mean() for e, f in zip(exact, blocks.search(queries, 20), strict=True)]
    assert np.mean(shares) >= least


def test_the_published_setting_of_hpd_is_kept_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    vectors = clusters(3_000, 8)
    index = built(IndexSpec("ivf", lists=(1024, 5)), vectors, 1_000)
    assert (index.held.nlist, index.held.nprobe, index.spec.lists, index.setting) == (1024, 5, (1024, 5), "")
    assert capfd.readouterr() == ("", "")  # three training vectors a list, which was asked for


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


@pytest.mark.parametrize(("kind", "device"), [("flat", "cuda"), ("ivf", "cuda"), ("hnsw", "cpu")])
def test_what_the_gpu_offers_goes_there_and_comes_back_for_its_size(
    monkeypatch: pytest.MonkeyPatch, kind: indexes.FaissKind, device: str
) -> None:
    moved: list[int] = []
    back: list[int] = []

    def to_gpus(index: Any) -> Any:
        assert index.is_trained
        moved.append(index.ntotal)
        return faiss.clone_index(index)

    def to_cpu(index: Any) -> Any:
        back.append(index.ntotal)
        return index

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", to_gpus)
    monkeypatch.setattr(faiss, "index_gpu_to_cpu", to_cpu, raising=False)
    vectors = clusters(500, 16)
    index = built(IndexSpec(kind), vectors, 200)
    assert index.device == device
    assert moved == [0] * (device == "cuda")  # empty: it is filled there
    assert index.search(vectors[:3], 5)[:, 0].shape == (3,) and index.held.ntotal == 500
    assert serialised_bytes(index) == faiss.serialize_index(index.held).nbytes
    assert back == [500] * (device == "cuda")


def test_a_full_gpu_is_no_reason_to_measure_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(index: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", refuse)
    with pytest.raises(RuntimeError, match="out of memory"):
        built(IndexSpec("flat"), clusters(500, 16), 200)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (10, (1, 1)),  # fewer than 39 documents: one list, which is exact
        (2_500, (64, 5)),
        (20_000, (512, 5)),
        (1_000_000, (4096, 20)),  # HPD's 5 probes per 1,024 lists
    ],
)
def test_lists_scale_with_the_corpus(documents: int, expected: tuple[int, int]) -> None:
    assert IndexSpec("ivf").resolved(documents) == IndexSpec("ivf", expected)


@pytest.mark.parametrize(
    ("kind", "width", "setting"),
    [
        ("hnsw", 16, "M=32, efConstruction=80, efSearch=128"),
        ("ivf", 16, "trained on 2496"),
    ],
)
def test_settings_tell_what_an_index_depends_on(kind: indexes.FaissKind, width: int, setting: str) -> None:
    assert built(IndexSpec(kind), clusters(3_000, width), 3_000).setting == setting


def test_more_lists_than_documents_are_bad_input() -> None:
    with pytest.raises(InputError, match="ivf:200:5: 100 documents; expected at least as many as lists"):
        IndexSpec("ivf", lists=(200, 5)).resolved(100)


@pytest.mark.parametrize("scores", [2**28, 50 * 70])
def test_torch_finds_what_faiss_finds(monkeypatch: pytest.MonkeyPatch, scores: int) -> None:
    monkeypatch.setattr(indexes, "SCORES", scores)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    vectors, queries = clusters(500, 16), clusters(50, 16, seed=1)
    wanted = built(IndexSpec("flat"), vectors, 200)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4 * 16 * 500 + 8 * scores + 1, 0))
    monkeypatch.setattr(indexes, "TorchFlat", functools.partial(indexes.TorchFlat, device="cpu"))
    found = built(IndexSpec("flat"), vectors, 200)
    assert (wanted.device, found.device, found.held.ntotal) == ("cpu", "cuda", 500)
    np.testing.assert_array_equal(found.search(queries, 10), wanted.search(queries, 10))
    np.testing.assert_allclose(found.held.search(queries, 10)[0], wanted.held.search(queries, 10)[0], atol=1e-6)
    found.held.ntotal = 3
    assert (found.search(queries, 5)[:, 3:] == -1).all() and sorted(found.search(queries, 3)[0]) == [0, 1, 2]
    monkeypatch.setattr(indexes, "TorchFlat", type(found.held))
    found.held.ntotal = 500
    assert serialised_bytes(found) == serialised_bytes(wanted)
    assert built(IndexSpec("ivf"), vectors, 200).device == "cpu"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4 * 16 * 500 + 8 * scores, 0))
    assert built(IndexSpec("flat"), vectors, 200).device == "cpu"


# How far an index looks for another encoder's queries


def on_cpu(kind: indexes.FaissKind, documents: Vectors) -> DocumentIndex:
    return built(IndexSpec(kind), documents, len(documents), on_gpu=False)


def sides(count: int) -> tuple[Vectors, Vectors, Vectors]:
    """Documents, queries that lie near some of them, and queries that lie anywhere."""
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal((rows, 16)).astype(np.float32) for rows in (count, 40, 40)]
    documents = unit(drawn[0])
    return documents, unit(documents[rng.integers(0, count, 40)] + 0.1 * drawn[1]), unit(drawn[2])


def test_it_looks_so_far_that_it_finds_as_much_and_no_farther() -> None:
    documents, near, far = sides(3000)
    index, exact = on_cpu("ivf", documents), on_cpu("flat", documents)
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
def test_sets_of_few_documents_need_no_more(kind: indexes.FaissKind, count: int) -> None:
    documents, near, far = sides(count)
    index = on_cpu(kind, documents)
    assert widen(index, on_cpu("flat", documents), far, near)
    width = {"ivf": 1, "hnsw": 128}[kind]
    assert f"={width} finds what {width} finds of the teacher's queries (100.0 %)" in index.setting


def test_nothing_is_said_of_an_index_that_does_not_get_there(monkeypatch: pytest.MonkeyPatch) -> None:
    documents, near, far = sides(3000)
    monkeypatch.setattr(indexes, "MOST", 1)
    index, exact = on_cpu("ivf", documents), on_cpu("flat", documents)
    assert not widen(index, exact, far, near) and "finds" not in index.setting
    assert not widen(exact, exact, far, near)
