"""Codes against slow references and FAISS itself, their indexes against numpy, their files, and what cannot be made."""

from __future__ import annotations

import json
from pathlib import Path

import faiss
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from samples import scored_rows, sts_scores

from distilbench.codes import FAMILIES, Family, factory_of
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import ROUNDS, Code, not_possible, saved_code, unit
from distilbench.evaluation.indexes import DocumentIndex, IndexSpec, document_index, serialised_bytes
from distilbench.evaluation.sts import cosine
from distilbench.records import Quantisation

SIZES = {
    "int8": 32,
    "int4": 16,
    "int3": 12,
    "int2": 8,
    "binary": 4,
    "pq8": 8,
    "opq8": 8,
    "itq4": 4,
    "lsh4": 4,
    "pcar16": 16,
    "tq1-4": 4,
    "tq2-8": 8,
    "tq3-6": 6,
    "tq4-16": 16,
    "rabitq1-12": 12,
    "rabitq2-28": 28,
    "rabitq4-36": 36,
    "eden1-12": 12,
    "eden2-16": 16,
    "eden4-24": 24,
    "rq4": 4,
}
"""Bytes of a code of 32 dimensions."""
OF_ITS_OWN = ("rabitq", "eden")
"""Codes that keep the norm of what they code, so FAISS's distance is not that to the decoded vector."""
FEW = ["int8", "int4", "int3", "int2", "binary"]
"""Codes that few vectors are enough for."""
every_code = pytest.mark.parametrize("kind", SIZES)


def some_vectors(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Clusters off the centre, of every length, with dimensions of unlike spread."""
    rng = np.random.default_rng(seed)
    spread = np.linspace(2, 0.3, width)
    centres = np.random.default_rng(7).standard_normal((20, width)) * spread + spread[::-1] / 4
    vectors = centres[rng.integers(0, 20, count)] + rng.standard_normal((count, width)) * spread
    return (vectors * rng.uniform(0.1, 50, (count, 1))).astype(np.float32)


def crowded(count: int, variance: float, seed: int) -> np.ndarray:
    """Unit vectors of 64 dimensions around one of them."""
    centre = unit(np.random.default_rng(7).standard_normal((1, 64)))
    spread = np.random.default_rng(seed).standard_normal((count, 64)) * variance**0.5
    return unit((centre + spread).astype(np.float32))


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (unit(a) * unit(b)).sum(axis=1)


def filled(code: Code, vectors: np.ndarray, block: int = 300) -> DocumentIndex:
    """A flat index of the code, filled block by block."""
    index = document_index(IndexSpec("flat"), code.width, len(vectors), np.empty((0, 0), dtype=np.uint8), code)
    for start in range(0, len(vectors), block):
        index.add(unit(vectors[start : start + block]))
    return index


def corpus_and_vectors(width: int, documents: int = 150) -> tuple[Corpus, np.ndarray]:
    rng = np.random.default_rng(3)
    builder = CorpusBuilder("test")
    left, right = ([f"{side}{i}" for i in range(40)] for side in "lr")
    builder.add_sts("STSB", "", "test", left, right, rng.uniform(0, 5, 40))
    relevant = [{i: 1.0, (7 * i) % documents: 1.0} for i in range(30)]
    builder.add_retrieval("r", "dev", [f"q{i}" for i in range(30)], [f"d{i}" for i in range(documents)], relevant)
    corpus = builder.build()
    vectors = some_vectors(len(corpus.sentences), width)
    task = corpus.retrieval[0]
    vectors[task.queries] = vectors[task.documents[:30]] + 0.7 * vectors[task.queries]
    return corpus, vectors


def brute_force(ranking: np.ndarray, relevant: tuple[np.ndarray, ...]) -> tuple[float, float]:
    gains, shares = [], []
    for order, wanted in zip(ranking, relevant, strict=True):
        hits = [r for r, document in enumerate(order[:10], start=1) if document in wanted]
        gains.append(1 / hits[0] if hits else 0)
        shares.append(np.mean([document in order[:100] for document in wanted]))
    return 100 * float(np.mean(gains)), 100 * float(np.mean(shares))


# What is stored


def test_int8_is_half_a_step_off_within_the_range_and_clipped_outside() -> None:
    train = some_vectors(300, 24)
    int8 = Code.calibrate("int8", train)
    low, high = unit(train).min(axis=0), unit(train).max(axis=0)
    assert (np.abs(int8.decode(int8.encode(train)) - unit(train)) <= (high - low) / 255 * 0.501 + 1e-7).all()
    assert (int8.encode(train).min(axis=0) == 0).all() and (int8.encode(train).max(axis=0) == 255).all()
    outside = np.eye(24, dtype=np.float32)  # no training vector is an axis
    assert (np.diag(int8.encode(outside)) == 255).all() and (np.diag(int8.encode(-outside)) == 0).all()


@pytest.mark.parametrize("width", [5, 8, 20])  # not a multiple of 8: the last byte is filled
def test_bits_are_signs_about_the_mean_the_first_dimension_highest(width: int) -> None:
    train, left, right = (some_vectors(30, width, seed=s) for s in range(3))
    binary = Code.calibrate("binary", train)
    codes = [binary.encode(v) for v in (left, right)]
    assert codes[0].shape == (30, -(-width // 8))
    bits = [np.unpackbits(c, axis=1)[:, :width] for c in codes]
    assert np.array_equal(bits[0], unit(left) > unit(train).mean(axis=0, dtype=np.float64))
    decoded = [binary.decode(c)[:, :width] for c in codes]
    assert cosines(*decoded) == pytest.approx(1 - 2 * (bits[0] != bits[1]).mean(axis=1), abs=1e-6)
    assert len(np.unique(decoded[0].round(6))) == 2


def test_the_bit_of_a_dimension_that_stands_still_is_no_noise() -> None:
    """As two of all-MiniLM-L6-v2's dimensions, which hold about 1e-33 in float32 and 0 in float16."""
    vectors = some_vectors(200, 16)
    vectors[:, [3, 9]] = np.random.default_rng(1).normal(3e-33, 1e-33, (200, 2))
    bits = np.unpackbits(Code.calibrate("binary", vectors).encode(vectors), axis=1)
    assert not bits[:, [3, 9]].any() and (np.delete(bits, [3, 9], axis=1).mean(axis=0) > 0.2).all()


@pytest.mark.parametrize("kind", ["pq8", "opq8", "pcar16"])
def test_a_code_is_what_faiss_makes(kind: str) -> None:
    vectors = some_vectors(600, 32)
    code = Code.calibrate(kind, vectors)
    by_hand = faiss.index_factory(32, factory_of(kind, 32), faiss.METRIC_L2)
    if kind == "opq8":
        faiss.downcast_VectorTransform(by_hand.chain.at(0)).niter = ROUNDS
    by_hand.train(unit(vectors))
    assert np.array_equal(code.encode(vectors), by_hand.sa_encode(unit(vectors)))


@every_code
def test_bytes_and_nearness(kind: str) -> None:
    vectors = some_vectors(600, 32)
    code = Code.calibrate(kind, vectors)
    assert code.encode(vectors).shape == (600, SIZES[kind]) and code.bytes_per_vector == SIZES[kind]
    decoded = code.decode(code.encode(vectors))
    near, far = unit(vectors[:300]) @ unit(vectors[300:]).T, unit(decoded[:300]) @ unit(decoded[300:]).T
    # One bit of each principal axis, as different as their variances are: few axes say less than rotated ones.
    assert np.corrcoef(near.ravel(), far.ravel())[0, 1] > (0.4 if kind == "tq1-4" else 0.5)
    scaled = (vectors * np.random.default_rng(0).uniform(0.01, 100, (600, 1))).astype(np.float64)
    moved = np.abs(code.decode(code.encode(scaled)) - decoded) > 1e-5
    assert moved.mean() < 0.01  # the length does not matter


@pytest.mark.parametrize(("kind", "factory"), [("pq16", "PCAR16,SQ8"), ("pq6", "RR24,SQtqmse2")])
def test_a_new_family_is_a_line(monkeypatch: pytest.MonkeyPatch, kind: str, factory: str) -> None:
    """Another of FAISS's codes is coded, scored, indexed and saved without another change."""
    monkeypatch.setitem(FAMILIES, "pq", Family("new", lambda size, width: factory))
    vectors, queries = some_vectors(2_000, 32), some_vectors(30, 32, seed=3)
    code = Code.calibrate(kind, vectors)
    similarity = unit(queries) @ unit(vectors).T
    best = np.argsort(-similarity, axis=1)[:, :10]
    found = filled(code, vectors).search(unit(queries), 10)
    assert np.mean([np.isin(b, f).mean() for b, f in zip(best, found, strict=True)]) > 0.2


# What is found


@every_code
def test_an_index_finds_by_the_cosine_of_the_decoded_vectors(kind: str) -> None:
    vectors, queries = some_vectors(700, 32), some_vectors(30, 32, seed=3)
    code = Code.calibrate(kind, vectors)
    index = filled(code, vectors)
    assert index.held.ntotal == 700 and code.trained.ntotal == 0 and index.kind == kind
    assert serialised_bytes(index) == faiss.serialize_index(index.held).nbytes > 700 * SIZES[kind]
    if index.rescored:  # by the vectors that the index gives back, from before its linear maps
        similarity = unit(queries) @ unit(index.held.reconstruct_n(0, 700)).T
    elif kind.startswith(OF_ITS_OWN):
        norms = np.square(code.queries(vectors)).sum(axis=1)
        similarity = code.queries(queries) @ code.decode(code.encode(vectors)).T - norms / 2
    else:
        similarity = code.queries(queries) @ unit(code.decode(code.encode(vectors))).T
    found = np.take_along_axis(similarity, index.search(unit(queries), 10), axis=1)
    near = 0.02 if kind == "pcar16" else 0.005 if kind.startswith(OF_ITS_OWN) else 1e-4  # norms are estimated, too
    assert found == pytest.approx(-np.sort(-similarity, axis=1)[:, :10], abs=near)
    signs = kind in ("binary", "itq4", "lsh4")
    assert index.setting == ("" if signs or kind.startswith(OF_ITS_OWN) else "rescore=4")


@pytest.mark.parametrize("documents", [12, 200])  # all are candidates, or some
def test_an_index_answers_with_as_many_places_as_asked(documents: int) -> None:
    vectors, queries = some_vectors(documents, 32), unit(some_vectors(70, 32, seed=3))
    index = filled(Code.calibrate("int8", some_vectors(300, 32)), vectors)
    stored = unit(index.held.reconstruct_n(0, documents).astype(np.float64))
    wanted = np.argsort(-(queries @ stored.T), axis=1)[:, :30]
    found = index.search(queries, 30)
    assert index.rescored and found.shape == (70, 30)
    assert (found[:, : wanted.shape[1]] == wanted).all() and (found[:, wanted.shape[1] :] == -1).all()


@pytest.mark.parametrize("variance", [1.0, 1e-4, 1e-6, 1e-7])
def test_crowded_vectors_keep_their_neighbours_in_int8(variance: float) -> None:
    """Crowded students, every cosine above 0.99, lost all neighbours where the norm of a decoded vector counted."""
    documents, queries = crowded(3_000, variance, seed=1), crowded(100, variance, seed=2)
    int8 = Code.calibrate("int8", documents)
    similarity = queries.astype(np.float64) @ unit(int8.decode(int8.encode(documents)).astype(np.float64)).T
    found = np.take_along_axis(similarity, filled(int8, documents).search(queries, 10), axis=1)
    assert found == pytest.approx(-np.sort(-similarity, axis=1)[:, :10], abs=1e-8)  # the same up to ties


@pytest.mark.parametrize("width", [16, 20, 50])
@pytest.mark.parametrize("kind", FEW)
def test_a_row_of_a_code_equals_numpy(kind: str, width: int) -> None:
    corpus, vectors = corpus_and_vectors(width)
    code = Code.calibrate(kind, some_vectors(500, width, seed=5))
    row = scored_rows(vectors, corpus, [code])[1]
    [cost] = row.indexes
    task = corpus.retrieval[0]
    documents = unit(code.decode(code.encode(vectors[task.documents])).astype(np.float64))
    ranking = np.argsort(-(code.queries(vectors[task.queries]) @ documents.T), axis=1, kind="stable")
    least = 0.0 if kind != "binary" else 1.0  # bits have many equal similarities
    assert (cost.mrr10, cost.recall100) == pytest.approx(brute_force(ranking, task.relevant), abs=1e-6 + least)
    values = {(s.task, s.metric): s.value for s in row.scores}
    assert values["retrieval", "mrr@10"] == pytest.approx(cost.mrr10)
    assert (cost.kind, cost.nlist, cost.nprobe, cost.documents, cost.queries) == (kind, None, None, 150, 30)
    decoded = code.decode(code.encode(vectors))
    assert [s for s in row.scores if s.task == "sts"] == sts_scores(lambda rows: decoded[rows], corpus.sts)
    test = corpus.sts[0]
    assert row.predictions.test["sts/STSB/spearman"].value_P == pytest.approx(
        cosine(decoded[test.left_P], decoded[test.right_P])
    )


@pytest.mark.parametrize(("kind", "size", "on_disk"), [("tq1-4+float32x2", 4, 128), ("binary+int8x4", 4, 32)])
def test_what_a_code_finds_is_ranked_again_by_vectors_on_disk(
    kind: str, size: int, on_disk: int, tmp_path: Path
) -> None:
    vectors, queries = some_vectors(700, 32), unit(some_vectors(30, 32, seed=3))
    Code.calibrate(kind, vectors).save(tmp_path)
    code = Code.load(kind, tmp_path, 32)
    assert (code.bytes_per_vector, code.disk_bytes, code.encode(vectors).shape[1]) == (size, on_disk, size + on_disk)
    index = filled(code, vectors)
    found = index.search(queries, 100)
    exact = np.argsort(-(queries @ unit(vectors).T), axis=1, kind="stable")
    alone = filled(Code.calibrate(kind.split("+")[0], vectors), vectors)
    candidates, factor = alone.held.search(queries, 100)[1], int(kind[-1])
    for row, order, coded in zip(found, exact, candidates, strict=True):
        first = coded[: 10 * factor]
        near = list(order[np.isin(order, first)])
        if "float32" in kind:
            assert row[: 10 * factor].tolist() == near
        assert set(row[: 10 * factor]) == set(first) and row[10 * factor :].tolist() == coded[10 * factor :].tolist()
    share = [
        np.mean([np.isin(e[:10], f[:10]).mean() for e, f in zip(exact, f, strict=True)]) for f in (candidates, found)
    ]
    assert share[0] + 0.1 < share[1]
    assert serialised_bytes(index) == serialised_bytes(alone)
    plain = faiss.read_index(str(tmp_path / f"quantisation-{kind}.faiss"))  # without DistilBench
    plain.add(unit(vectors))
    assert np.mean(plain.search(queries, 10)[1] == found[:, :10]) > (0.9 if "int8" in kind else 0.999)  # norms of int8


def test_a_row_with_vectors_on_disk_is_of_searches_alone() -> None:
    corpus, vectors = corpus_and_vectors(32)
    rows = scored_rows(vectors, corpus, [Code.calibrate(k, vectors) for k in ("binary", "binary+int8x10")])
    assert [(r.quantisation, r.bytes_per_vector, r.disk_bytes) for r in rows] == [
        ("float32", 128, 0),
        ("binary", 4, 0),
        ("binary+int8x10", 4, 32),
    ]
    assert rows[0].fit_s is None and all((r.fit_s or 0) > 0 for r in rows[1:])
    assert {s.task for s in rows[1].scores} == {"sts", "retrieval"} and {s.task for s in rows[2].scores} == {
        "retrieval"
    }
    kept = [r.indexes[0].overlap10_with_flat for r in rows]
    assert kept[1] + 10 < kept[2] <= 100 and rows[1].indexes[0].bytes == rows[2].indexes[0].bytes


# Files and bad input


@every_code
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    vectors = some_vectors(600, 32)
    code = Code.calibrate(kind, vectors)
    code.save(tmp_path)
    names = [f"quantisation-{kind}.faiss", f"quantisation-{kind}.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    for width in (None, 32):
        loaded = Code.load(kind, tmp_path, width)
        assert loaded.width == 32 and loaded.bytes_per_vector == SIZES[kind]
        assert loaded.fit_s == code.fit_s is not None
        assert np.array_equal(loaded.encode(vectors), code.encode(vectors))
    plain = faiss.read_index(str(tmp_path / names[0]))  # without DistilBench
    assert np.array_equal(plain.sa_encode(unit(vectors)), code.encode(vectors))
    plain.add(unit(vectors))
    queries = unit(some_vectors(30, 32, seed=3))
    for own, ours in zip(plain.search(queries, 10), filled(code, vectors).held.search(queries, 10), strict=True):
        np.testing.assert_allclose(own, ours, atol=1e-6)


def test_the_code_that_was_saved_for_a_width(tmp_path: Path) -> None:
    assert saved_code(None, "int8", 21) is None and saved_code(tmp_path, "int8", 21) is None
    Code.calibrate("int8", some_vectors(40, 21)).save(tmp_path / "one")
    Code.calibrate("int8", some_vectors(40, 8)).save(tmp_path / "several" / "d8")
    assert saved_code(tmp_path / "one", "int8", 21) == tmp_path / "one"
    assert saved_code(tmp_path / "one", "int8", 8) is None  # of other dimensions than the student's first 8
    assert saved_code(tmp_path / "several", "int8", 8) == tmp_path / "several" / "d8"
    (tmp_path / "one" / "quantisation-int8.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        saved_code(tmp_path / "one", "int8", 21)


def test_unusable_files_are_named_with_value_and_expectation(tmp_path: Path) -> None:
    card, index = tmp_path / "quantisation-int8.json", tmp_path / "quantisation-int8.faiss"
    with pytest.raises(InputError, match=rf"{card.name}: no such file"):
        Code.load("int8", tmp_path)
    Code.calibrate("int8", some_vectors(40, 21)).save(tmp_path)
    with pytest.raises(InputError, match=rf"{card.name}: width is 21, expected 64"):
        Code.load("int8", tmp_path, 64)
    whole, described = index.read_bytes(), json.loads(card.read_text())
    index.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # one bit
    with pytest.raises(InputError, match=r"sha256 is .*, expected .*, as quantisation-.*\.faiss has it"):
        Code.load("int8", tmp_path)
    index.unlink()
    with pytest.raises(InputError, match=rf"{index.name}: no such file"):
        Code.load("int8", tmp_path)
    index.write_bytes(whole)
    for change, message in [
        ({"kind": "int2"}, "kind is 'int2', expected 'int8'"),
        ({"format": 1}, "format is 1, expected 2"),
        ({"width": 20}, rf"{index.name}: 21 dimensions"),
        ({"fit_s": "long"}, rf"{card.name}: fit_s is 'long', expected seconds"),
    ]:
        card.write_text(json.dumps({**described, **change}))
        with pytest.raises(InputError, match=message):
            Code.load("int8", tmp_path)
    for text, message in [("{", "not JSON"), ("[1]", r"\[1\] is not a JSON object"), ("{}", "format is None")]:
        card.write_text(text)
        with pytest.raises(InputError, match=message):
            Code.load("int8", tmp_path)


@pytest.mark.parametrize("kind", FEW)
def test_bad_vectors_are_refused(kind: str) -> None:
    vectors = some_vectors(10, 8)
    code = Code.calibrate(kind, vectors)
    for value in (np.nan, np.inf, -np.inf):
        bad = vectors.copy()
        bad[3, 5] = value
        for call in (lambda v: Code.calibrate(kind, v), code.encode):
            with pytest.raises(ValueError, match=f"vector 3, dimension 5 is {value}, expected a finite"):
                call(bad)
    for few in (vectors[:0], vectors[:1]):
        with pytest.raises(ValueError, match="expected at least 2"):
            Code.calibrate(kind, few)
    with pytest.raises(ValueError, match="vectors of 7 dimensions, expected 8"):
        code.encode(vectors[:, :7])
    for wrong in (vectors[0], vectors[:, :0], code.encode(vectors)):  # one vector; none; codes instead of vectors
        with pytest.raises(ValueError, match="expected floats in rows and columns"):
            code.encode(wrong)
    for codes in (code.encode(vectors)[:, :0], code.encode(vectors).astype(np.int32), vectors):
        with pytest.raises(ValueError, match=r"codes of shape .*, expected . columns of uint8"):
            code.decode(codes)
    assert code.decode(code.encode(vectors[:0])).shape == (0, 8)
    corpus, other = corpus_and_vectors(9)
    with pytest.raises(ValueError, match=r"8 dimensions, expected 9|9 dimensions, expected 8"):
        scored_rows(other, corpus, [code])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pq7", "pq7: FAISS cannot make PQ7np of 32 dimensions"),
        ("opq64", "takes 64 dimensions, of vectors of 32; expected opq32"),
        ("itq8", "it takes 64 dimensions, of vectors of 32; expected itq4"),
        ("rabitq1-8", "it takes 0 dimensions, of vectors of 32; expected rabitq1-9"),
        ("rabitq4-26", "RaBitQ4 has 24 bytes; expected rabitq4-24"),
        ("lsh8", "it takes 64 dimensions, of vectors of 32"),
        ("pcar32", "it takes 64 dimensions, of vectors of 32"),
    ],
)
def test_what_faiss_cannot_make_says_why(kind: str, why: str) -> None:
    assert why in not_possible(kind, 32)
    with pytest.raises(ValueError, match=why):
        Code.calibrate(kind, some_vectors(300, 32))


def test_names_of_codes() -> None:
    quantisation = TypeAdapter(Quantisation)
    names = "float32 int8 int4 int3 int2 binary opq16 pq8 itq128 rabitq2-64 rq8 tq1-8+int8x10"
    for kind in names.split():
        assert quantisation.validate_python(kind) == kind
        assert kind == "float32" or factory_of(kind, 1024)
    for wrong in ("int5", "opq", "opq0", "pq16x", "sq8", "OPQ16", "tq5-8", "eden", "pq8+int4x4", "pq8+int8"):
        with pytest.raises(ValidationError):
            quantisation.validate_python(wrong)
        with pytest.raises(InputError, match="expected int8, int4, int3, int2, binary"):
            factory_of(wrong, 32)
