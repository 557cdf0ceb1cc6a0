"""4 bits a dimension against a slow reference, FAISS's own codes against FAISS, and what cannot be made."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import faiss
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from distilbench.errors import InputError
from distilbench.evaluation.codes.faiss_code import ROUNDS, FaissCode, factory_of
from distilbench.evaluation.codes.steps import Int4
from distilbench.evaluation.encoders import Extra, RetrievalOptions, Vectors, encoder_rows
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.quantisation import calibrated, check_kind, load_quantiser, not_possible
from distilbench.evaluation.retrieval import quick_clustering, unit
from distilbench.evaluation.selection import SearchSet, SearchSets, SelectionSets
from distilbench.evaluation.sets import EvaluationSets
from distilbench.records import Quantisation
from distilbench.selection import Selection

KINDS = ["pq8", "opq8", "itq4", "lsh4", "pcar16"]


def some_vectors(count: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = np.linspace(2, 0.3, width)
    centres = np.random.default_rng(7).standard_normal((20, width)) * spread
    return (centres[rng.integers(0, 20, count)] + rng.standard_normal((count, width)) * spread).astype(np.float32)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (unit(a) * unit(b)).sum(axis=1)


@pytest.mark.parametrize("width", [8, 9])
def test_int4_codes_equal_a_slow_reference(width: int) -> None:
    train, vectors = some_vectors(400, width), some_vectors(50, width, seed=1)
    int4 = Int4.calibrate(train)
    codes = int4.encode(vectors)
    assert codes.shape == (50, -(-width // 2)) == (50, int4.bytes_per_vector) and codes.dtype == np.uint8
    for row, code in zip(unit(vectors), codes, strict=True):
        for j, x in enumerate(row):
            position = (float(x) - int4.low_d[j]) / (int4.high_d[j] - int4.low_d[j]) * 15
            level = (int(code[j // 2]) >> (4 * (j % 2))) & 15
            assert abs(min(max(position, 0), 15) - level) <= 0.501
    assert cosines(int4.decode(codes), vectors).mean() > 0.98


def test_int4_has_a_smaller_error_than_a_range_from_minimum_to_maximum() -> None:
    train = some_vectors(3_000, 32)
    int4, unit_Nd = Int4.calibrate(train), unit(train)
    whole = Int4(unit_Nd.min(axis=0), unit_Nd.max(axis=0))
    error, other = (np.square(c.decode(c.encode(train)) - unit_Nd).sum() for c in (int4, whole))
    assert error < 0.8 * other


@pytest.mark.parametrize("width", [9, 32])
def test_the_int4_index_holds_half_a_byte_a_dimension_and_finds_by_the_decoded_cosine(width: int) -> None:
    documents, queries = some_vectors(700, width), some_vectors(40, width, seed=2)
    int4 = Int4.calibrate(documents)
    index = int4.index(documents[:300])
    int4.add(index, documents[300:])
    assert index.sa_code_size() == int4.bytes_per_vector == -(-width // 2)
    decoded = int4.decode(int4.encode(documents))
    assert index.reconstruct_n(0, 700) == pytest.approx(decoded, abs=1e-6)  # FAISS's own decoding
    similarity = unit(queries) @ unit(decoded).T
    found = np.take_along_axis(similarity, int4.search(index, queries, 10), axis=1)
    assert found == pytest.approx(-np.sort(-similarity, axis=1)[:, :10], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_code_of_faiss_is_what_faiss_makes(kind: str) -> None:
    vectors = some_vectors(600, 32)
    code = FaissCode.calibrate(kind, vectors)
    by_hand = faiss.index_factory(32, factory_of(kind, 32), faiss.METRIC_L2)
    if kind == "opq8":
        faiss.downcast_VectorTransform(by_hand.chain.at(0)).niter = ROUNDS
    by_hand.train(unit(vectors))
    assert np.array_equal(code.encode(vectors), by_hand.sa_encode(unit(vectors)))
    assert code.bytes_per_vector == int(kind.lstrip("pqoitlshcar"))
    assert code.encode(vectors).shape == (600, code.bytes_per_vector)
    decoded = code.decode(code.encode(vectors))
    near, far = unit(vectors[:300]) @ unit(vectors[300:]).T, unit(decoded[:300]) @ unit(decoded[300:]).T
    assert np.corrcoef(near.ravel(), far.ravel())[0, 1] > 0.7


def test_product_codes_are_trained_as_by_faiss_and_sooner() -> None:
    vectors = some_vectors(6_000, 64)
    errors, seconds = [], []
    threshold = faiss.cvar.distance_compute_blas_threshold
    for quick in (False, True):
        product = faiss.ProductQuantizer(64, 16, 8)
        product.cp.min_points_per_centroid = 1
        began = time.process_time()
        with quick_clustering() if quick else nullcontext():
            product.train(vectors)
        seconds.append(time.process_time() - began)
        errors.append(np.square(product.decode(product.compute_codes(vectors)) - vectors).sum())
    assert errors[1] == pytest.approx(errors[0], rel=0.01)
    assert seconds[1] < seconds[0] / 2
    assert faiss.cvar.distance_compute_blas_threshold == threshold


@pytest.mark.parametrize("kind", KINDS)
def test_a_code_of_faiss_is_searched_by_the_decoded_cosine(kind: str) -> None:
    vectors, queries = some_vectors(600, 32), some_vectors(30, 32, seed=3)
    code = FaissCode.calibrate(kind, vectors)
    index = code.index(vectors[:200])
    code.add(index, vectors[200:])
    assert index.ntotal == 600 and code.trained.ntotal == 0
    mapped = unit(queries)
    if isinstance(held := faiss.downcast_index(code.trained), faiss.IndexPreTransform):
        for i in range(held.chain.size()):
            mapped = held.chain.at(i).apply(mapped)
    similarity = unit(mapped) @ unit(code.decode(code.encode(vectors))).T
    found = np.take_along_axis(similarity, code.search(index, queries, 10), axis=1)
    assert found == pytest.approx(-np.sort(-similarity, axis=1)[:, :10], abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_loaded_and_damaged(kind: str, tmp_path: Path) -> None:
    vectors = some_vectors(600, 32)
    code = calibrated(kind, vectors)
    code.save(tmp_path)
    assert np.array_equal(load_quantiser(kind, tmp_path, 32).encode(vectors), code.encode(vectors))
    with pytest.raises(InputError, match="width is 32, expected 16"):
        load_quantiser(kind, tmp_path, 16)
    path = tmp_path / f"quantisation-{kind}.faiss"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="damaged"):
        load_quantiser(kind, tmp_path)


def test_a_product_code_of_given_codebooks() -> None:
    centroids = np.random.default_rng(0).standard_normal((4, 256, 2)).astype(np.float32) / 4
    code = FaissCode.of_codebooks(centroids)
    vectors = some_vectors(50, 8)
    nearest = [
        [int(np.argmin(np.square(centroids[m] - row[2 * m : 2 * m + 2]).sum(axis=1))) for m in range(4)]
        for row in unit(vectors)
    ]
    assert code.kind == "pq4" and code.width == 8 and code.encode(vectors).tolist() == nearest
    stored = np.stack([np.concatenate([centroids[m, k] for m, k in enumerate(row)]) for row in nearest])
    assert code.decode(code.encode(vectors)) == pytest.approx(stored)
    with pytest.raises(ValueError, match="16 centroids, expected 256"):
        FaissCode.of_codebooks(centroids[:, :16])


@pytest.mark.parametrize(
    ("kind", "width", "why"),
    [
        ("pq7", 32, "7 parts of 32 dimensions; expected a divisor"),
        ("opq64", 32, "64 parts of 32 dimensions; expected at most 32"),
        ("itq8", 32, "it takes 64 dimensions, of vectors of 32"),
        ("lsh8", 32, "it takes 64 dimensions, of vectors of 32"),
        ("pcar32", 32, "it takes 64 dimensions, of vectors of 32"),
    ],
)
def test_what_faiss_cannot_make_says_why(kind: str, width: int, why: str) -> None:
    assert why in not_possible(kind, width)
    with pytest.raises(ValueError, match=why):
        factory_of(kind, width)


def test_names_of_codes() -> None:
    quantisation = TypeAdapter(Quantisation)
    for kind in ("float32", "int8", "int4", "binary", "opq16", "pq8", "itq128", "lsh32", "pcar48"):
        assert quantisation.validate_python(kind) == kind
        assert kind == "float32" or check_kind(kind) == kind
    for wrong in ("int2", "opq", "opq0", "pq16x", "sq8", "OPQ16"):
        with pytest.raises(ValidationError):
            quantisation.validate_python(wrong)
        with pytest.raises(InputError, match="expected int8, int4, binary"):
            check_kind(wrong)


def test_too_few_vectors_for_the_centroids() -> None:
    with pytest.raises(ValueError, match="at least 256 rows"):
        calibrated("pq4", some_vectors(100, 16))


@pytest.mark.parametrize("kind", [*KINDS, "opq4", "binary", "int4", "int8"])
def test_queries_are_compared_with_decoded_vectors_after_the_codes_own_map(kind: str) -> None:
    """OPQ, ITQ, LSH and PCA turn vectors, and some keep fewer dimensions: a query as it came is another direction."""
    documents, queries = some_vectors(2_000, 48), some_vectors(60, 48, seed=2)
    code = calibrated(kind, documents)
    decoded_Nd, asked_Qd = code.decode(code.encode(documents)), code.queries(queries)
    assert asked_Qd.shape == (60, decoded_Nd.shape[1])
    own = code.decode(code.encode(queries))
    assert cosines(asked_Qd, own).mean() > 0.6
    similarity_QN = unit(asked_Qd) @ unit(decoded_Nd).T
    wanted_QN = unit(queries) @ unit(documents).T
    agreement = [np.corrcoef(found, true)[0, 1] for found, true in zip(similarity_QN, wanted_QN, strict=True)]
    assert np.mean(agreement) > 0.6


def test_students_selected_by_search_are_compared_with_faisss_codes() -> None:
    """Each query's document is itself with noise: a code of fewer or turned dimensions finds it as float32 does."""
    documents = some_vectors(2_000, 48)
    queries = documents[:100] + 0.1 * some_vectors(100, 48, seed=3)
    both, rows = np.concatenate([documents, queries]), np.arange(2_000, 2_100)
    found = SearchSet("s", rows, np.arange(2_000), tuple(np.array([n]) for n in range(100)))
    judged = SelectionSets(Selection.parse("retrieval"), (SearchSets((found,)),))
    sets = EvaluationSets([str(n) for n in range(len(both))], judged=judged)
    vectors = Vectors("some", 48, lambda asked: both[asked], [])
    codes = [calibrated(kind, documents) for kind in ("opq8", "itq4", "lsh4", "pcar16", "int4")]
    flat = RetrievalOptions((IndexSpec("flat"),))
    scored = list(encoder_rows(vectors, sets, [48], lambda _: codes, flat, lambda _: Extra([], [], [])))
    value = {row.quantisation: row.scores[-1].value for row in scored}
    assert value["float32"] > 99 and value["pcar16"] > 95 and value["opq8"] > 90
    assert min(value["itq4"], value["lsh4"]) > 20  # by chance it is below 1
