"""Codes against slow references written here, retrieval against numpy, files, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import faiss
import numpy as np
import pytest
from samples import scored_rows

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.evaluation.indexes import IndexSpec, faiss_index
from distilbench.evaluation.quantisation import QUANTISERS, RESCORE, Binary, Int8, saved_quantiser
from distilbench.evaluation.retrieval import unit
from distilbench.evaluation.retrieval_task import InMemory, RetrievalTask, evaluate_retrieval
from distilbench.evaluation.sts import cosine, sts_scores
from distilbench.records import IndexCost

KINDS = sorted(QUANTISERS)


def some_vectors(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Off-centre, of every length, with dimensions of unlike spread."""
    rng = np.random.default_rng(seed)
    spread = np.random.default_rng(99).uniform(0.1, 3, width)
    vectors = rng.standard_normal((count, width)) * spread + spread[::-1] / 2
    return (vectors * rng.uniform(0.1, 50, (count, 1))).astype(np.float32)


def clustered(count: int, width: int, seed: int) -> np.ndarray:
    """40 clusters, so that a query has near neighbours that bits cannot tell apart."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((40, width))
    return (centres[rng.integers(0, 40, count)] + 0.5 * rng.standard_normal((count, width))).astype(np.float32)


def hamming(a: np.ndarray, b: np.ndarray) -> int:
    return sum(bin(int(x) ^ int(y)).count("1") for x, y in zip(a, b, strict=True))


def corpus_and_vectors(width: int, documents: int = 150) -> tuple[Corpus, np.ndarray]:
    rng = np.random.default_rng(3)
    builder = CorpusBuilder("test")
    left, right = ([f"{side}{i}" for i in range(40)] for side in "lr")
    builder.add_sts("STSB", "", "test", left, right, rng.uniform(0, 5, 40))
    relevant = [sorted({i, (7 * i) % documents}) for i in range(30)]
    builder.add_retrieval("r", "dev", [f"q{i}" for i in range(30)], [f"d{i}" for i in range(documents)], relevant)
    corpus = builder.build()
    vectors = some_vectors(len(corpus.sentences), width)
    task = corpus.retrieval[0]
    vectors[task.queries] = vectors[task.documents[:30]] + 0.7 * vectors[task.queries]
    return corpus, vectors


def test_int8_codes_equal_a_slow_reference() -> None:
    train, vectors = some_vectors(60, 9), some_vectors(40, 9, seed=1)
    codes = Int8.calibrate(train).encode(vectors)
    assert codes.shape == (40, 9) and codes.dtype == np.int8
    rows = [[float(x) / sum(float(y) ** 2 for y in row) ** 0.5 for x in row] for row in train]
    lows, highs = [min(c) for c in zip(*rows, strict=True)], [max(c) for c in zip(*rows, strict=True)]
    compared = 0
    for row, found in zip(vectors, codes, strict=True):
        length = sum(float(y) ** 2 for y in row) ** 0.5
        for x, low, high, code in zip(row, lows, highs, found, strict=True):
            position = (float(x) / length - low) / (high - low) * 255
            if abs(position % 1 - 0.5) > 1e-3:  # between two steps float32 may round either way
                assert code == min(max(round(position), 0), 255) - 128
                compared += 1
    assert compared > 350


def test_int8_error_is_half_a_step_within_the_range_and_outside_is_clipped() -> None:
    train = some_vectors(300, 24)
    int8 = Int8.calibrate(train)
    error = np.abs(int8.decode(int8.encode(train)) - unit(train))
    assert (error <= int8.step_d * 0.5001 + 1e-7).all()
    # Every end of the range is some training vector's, and codes use all of it.
    assert (int8.encode(train).min(axis=0) == -128).all() and (int8.encode(train).max(axis=0) == 127).all()
    outside = np.eye(24, dtype=np.float32)  # no training vector is an axis
    assert (int8.high_d < 1).all() and (int8.low_d > -1).all()
    assert (np.diag(int8.encode(outside)) == 127).all() and (np.diag(int8.encode(-outside)) == -128).all()
    assert np.diag(int8.decode(int8.encode(outside))) == pytest.approx(int8.high_d, abs=1e-6)


def test_the_bit_of_a_dimension_that_stands_still_is_no_noise() -> None:
    """As two of all-MiniLM-L6-v2's dimensions, which hold about 1e-33 in float32 and 0 in float16."""
    vectors = some_vectors(200, 16)
    vectors[:, [3, 9]] = np.random.default_rng(1).normal(3e-33, 1e-33, (200, 2))
    binary = Binary.calibrate(vectors)
    bits, kept = (np.unpackbits(binary.encode(v), axis=1) for v in (vectors, vectors.astype(np.float16)))
    assert not bits[:, [3, 9]].any() and not kept[:, [3, 9]].any()
    assert (np.delete(bits, [3, 9], axis=1).mean(axis=0) > 0.3).all()
    by_half = Binary.calibrate(vectors.astype(np.float16))
    assert np.array_equal(by_half.encode(vectors.astype(np.float16)), np.packbits(kept, axis=1))


def test_a_constant_dimension_decodes_to_its_constant() -> None:
    train = some_vectors(50, 6)
    train[:, 2] = 0
    int8 = Int8.calibrate(train)
    train[:, 2] = 5  # later vectors may differ
    codes = int8.encode(train)
    assert (codes[:, 2] == -128).all() and (int8.decode(codes)[:, 2] == 0).all()
    same = Int8.calibrate(np.ones((3, 4), dtype=np.float32))
    assert same.decode(same.encode(some_vectors(5, 4))) == pytest.approx(np.full((5, 4), 0.5))
    assert np.isfinite(Int8.calibrate(np.zeros((3, 4), dtype=np.float32)).decode(same.encode(train[:, :4]))).all()
    tiny = np.ones((2, 4), dtype=np.float32)
    tiny[0, 1] = 1e-42  # denormal
    assert np.isfinite(Int8.calibrate(tiny).decode(Int8.calibrate(tiny).encode(-tiny))).all()


@pytest.mark.parametrize("width", [5, 8, 20])  # not a multiple of 8: the last byte is filled with zeros
def test_binary_codes_and_similarity_equal_brute_force(width: int) -> None:
    train, left, right = (some_vectors(30, width, seed=s) for s in range(3))
    binary = Binary.calibrate(train)
    codes = [binary.encode(v) for v in (left, right)]
    assert codes[0].shape == (30, -(-width // 8)) and codes[0].dtype == np.uint8
    rows = [[float(x) / sum(float(y) ** 2 for y in row) ** 0.5 for x in row] for row in train]
    means = [sum(c) / len(c) for c in zip(*rows, strict=True)]
    for row, code in zip(left, codes[0], strict=True):
        length = sum(float(y) ** 2 for y in row) ** 0.5
        bits = "".join("1" if float(x) / length > m else "0" for x, m in zip(row, means, strict=True))
        bits += "0" * (-width % 8)
        assert code.tolist() == [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]
    expected = [1 - 2 * hamming(a, b) / width for a, b in zip(*codes, strict=True)]
    assert cosine(binary.decode(codes[0]), binary.decode(codes[1])) == pytest.approx(expected)
    assert set(np.unique(binary.decode(codes[0]))) == {-1, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_length_of_vectors_does_not_matter(kind: str) -> None:
    vectors = some_vectors(50, 12)
    scaled = (vectors * np.random.default_rng(0).uniform(0.01, 100, (50, 1))).astype(np.float64)
    a, b = QUANTISERS[kind].calibrate(vectors), QUANTISERS[kind].calibrate(scaled)
    assert np.mean(a.encode(vectors) != b.encode(scaled)) < 0.01  # float32 rounding may move one across a border


@pytest.mark.parametrize("width", [16, 20, 50, 64])  # 16 and 64: FAISS has other code for multiples of 16
def test_int8_retrieval_equals_numpy(width: int) -> None:
    corpus, vectors = corpus_and_vectors(width)
    int8 = Int8.calibrate(some_vectors(500, width, seed=5))
    [cost] = scored_rows(vectors, corpus, [int8])[1].indexes
    task = corpus.retrieval[0]
    documents = unit(int8.decode(int8.encode(vectors[task.documents])).astype(np.float64))
    ranking = np.argsort(-(unit(vectors[task.queries]) @ documents.T), axis=1)
    exact = np.argsort(-(unit(vectors[task.queries]) @ unit(vectors[task.documents]).T), axis=1)
    assert (cost.mrr10, cost.recall100) == pytest.approx(brute_force(ranking, task.relevant))
    overlap = np.mean([len(set(a[:10]) & set(b[:10])) / 10 for a, b in zip(ranking, exact, strict=True)])
    assert cost.overlap10_with_flat == pytest.approx(100 * overlap)
    assert (cost.kind, cost.nlist, cost.nprobe, cost.documents, cost.queries) == ("int8", None, None, 150, 30)
    assert 150 * width + 8 * width <= cost.bytes <= 150 * width + 8 * width + 200


def brute_force(ranking: np.ndarray, relevant: tuple[np.ndarray, ...]) -> tuple[float, float]:
    gains, shares = [], []
    for order, wanted in zip(ranking, relevant, strict=True):
        hits = [r for r, document in enumerate(order[:10], start=1) if document in wanted]
        gains.append(1 / hits[0] if hits else 0)
        shares.append(np.mean([document in order[:100] for document in wanted]))
    return 100 * float(np.mean(gains)), 100 * float(np.mean(shares))


def test_int8_search_over_several_blocks_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = some_vectors(700, 32)
    int8 = Int8.calibrate(vectors)
    index = faiss.deserialize_index(faiss.serialize_index(int8.index(vectors)))
    assert index.reconstruct_n(0, 700) == pytest.approx(int8.decode(int8.encode(vectors)), abs=1e-6)
    queries = some_vectors(25, 32, seed=1)
    once = int8.search(index, queries, 100)
    monkeypatch.setattr("distilbench.evaluation.codes.code.BLOCK", 90)  # fewer than are wanted of it
    found = int8.search(index, queries, 100)
    assert np.mean(found == once) > 0.999  # between two that float32 cannot tell apart either may come first
    assert np.mean(found[:, :10] == index.search(unit(queries), 10)[1]) > 0.9  # FAISS's own, by squared distance
    assert sorted(int8.search(index, queries, 700)[0]) == list(range(700))


def crowded(count: int, variance: float, seed: int) -> np.ndarray:
    """Unit vectors of 64 dimensions around one of them."""
    centre = unit(np.random.default_rng(7).standard_normal((1, 64)))
    spread = np.random.default_rng(seed).standard_normal((count, 64)) * variance**0.5
    return unit((centre + spread).astype(np.float32))


@pytest.mark.parametrize("variance", [1.0, 1e-4, 1e-6, 1e-7])
def test_the_int8_index_finds_what_the_cosine_of_the_decoded_vectors_finds(variance: float) -> None:
    """Crowded students, every cosine above 0.99, lost all neighbours where the norm of a decoded vector counted."""
    documents, queries = crowded(3_000, variance, seed=1), crowded(100, variance, seed=2)
    assert variance > 1e-6 or (queries @ documents.T).min() > 0.99
    int8 = Int8.calibrate(documents)
    decoded = int8.decode(int8.encode(documents)).astype(np.float64)
    similarity = queries.astype(np.float64) @ unit(decoded).T
    index = int8.index(documents)
    found = np.take_along_axis(similarity, int8.search(index, queries, 10), axis=1)
    expected = -np.sort(-similarity, axis=1)[:, :10]
    assert found == pytest.approx(expected, abs=1e-9)  # the same up to ties
    # FAISS's own search of that index, and "sq8", keep the neighbours too: by inner product they found 2 of 10 at 1e-6.
    best = np.argsort(-similarity, axis=1)[:, :10]
    sq8 = faiss_index(IndexSpec("sq8").resolved(3_000, 64), documents, 3_000)
    sq8.add(documents)
    for other in (index.search(queries, 10)[1], sq8.search(queries, 10)):
        assert np.mean([np.isin(b, o).mean() for b, o in zip(best, other, strict=True)]) > 0.9


@pytest.mark.parametrize("width", [40, 43])
def test_binary_retrieval_with_every_document_a_candidate_equals_numpy(width: int) -> None:
    corpus, vectors = corpus_and_vectors(width)
    binary = Binary.calibrate(some_vectors(500, width, seed=5))
    row = scored_rows(vectors, corpus, [binary])[1]
    [cost] = row.indexes
    assert RESCORE == 2  # candidates: 200 of 150
    task = corpus.retrieval[0]
    signs = np.where(unit(vectors[task.documents]) > binary.threshold_d, 1.0, -1.0)
    ranking = np.argsort(-((unit(vectors[task.queries]) - binary.threshold_d) @ signs.T), axis=1, kind="stable")
    assert (cost.mrr10, cost.recall100) == pytest.approx(brute_force(ranking, task.relevant))
    values = {(s.task, s.metric): s.value for s in row.scores}
    assert values["retrieval", "mrr@10"] == pytest.approx(cost.mrr10)
    assert values["retrieval", "recall@100"] == pytest.approx(cost.recall100)
    assert cost.kind == "binary" and 150 * -(-width // 8) <= cost.bytes <= 150 * -(-width // 8) + 200


def test_binary_candidates_are_the_nearest_by_hamming_distance() -> None:
    vectors, queries = some_vectors(300, 30), some_vectors(10, 30, seed=1)
    binary = Binary.calibrate(vectors)
    found = binary.search(binary.index(vectors), queries, 20, rescore=1)  # rescoring cannot bring in others
    for query, rows in zip(binary.encode(queries), found, strict=True):
        distance = np.array([hamming(query, code) for code in binary.encode(vectors)])
        assert sorted(distance[rows]) == sorted(distance)[:20]
        assert len(set(rows)) == 20


def test_rescoring_finds_more_of_the_true_neighbours_than_hamming_distance() -> None:
    documents, queries = clustered(3_000, 64, seed=1), clustered(200, 64, seed=2)
    binary = Binary.calibrate(documents)
    index = binary.index(documents)
    exact = np.argsort(-(unit(queries) @ unit(documents).T), axis=1)[:, :20]

    def recall(found: np.ndarray) -> float:
        return float(np.mean([np.isin(e, f).mean() for e, f in zip(exact, found, strict=True)]))

    _, by_hamming = index.search(binary.encode(queries), 20)
    once, twice, eight = (recall(binary.search(index, queries, 20, rescore)) for rescore in (1, RESCORE, 8))
    assert once == pytest.approx(recall(by_hamming), abs=0.01)  # the same set, but for ties at its border
    assert twice > once + 0.05 and eight > twice


@pytest.mark.parametrize("kind", KINDS)
def test_sts_is_scored_on_codes_of_both_sides(kind: str) -> None:
    corpus, vectors = corpus_and_vectors(48)
    quantiser = QUANTISERS[kind].calibrate(vectors)
    row = scored_rows(vectors, corpus, [quantiser])[1]
    scores, costs, predictions = row.scores, row.indexes, row.predictions
    decoded = quantiser.decode(quantiser.encode(vectors))
    assert [s for s in scores if s.task == "sts"] == sts_scores(lambda rows: decoded[rows], corpus.sts)
    test = corpus.sts[0]
    assert predictions.similarity["STSB"] == pytest.approx(cosine(decoded[test.left_P], decoded[test.right_P]))
    assert len(costs) == len(corpus.retrieval) == 1
    assert costs[0].threads == 1 and costs[0].ms_per_1000_queries > 0 and costs[0].build_s > 0


def cost_of(corpus: Corpus, vectors: np.ndarray, quantiser: Int8 | Binary, threads: int = 1) -> IndexCost:
    [own] = corpus.retrieval
    task = RetrievalTask(own.name, "dev", own.relevant)
    found = evaluate_retrieval(
        InMemory(vectors[own.documents]), vectors[own.queries], task, kinds=(), quantisers=(quantiser,), threads=threads
    )
    [cost] = found.costs
    return cost


def test_threads_of_faiss_are_as_before_afterwards() -> None:
    corpus, vectors = corpus_and_vectors(16)
    before = faiss.omp_get_max_threads()
    cost = cost_of(corpus, vectors, Int8.calibrate(vectors), threads=2)
    assert cost.threads == 2 and faiss.omp_get_max_threads() == before


def test_fewer_documents_than_results_wanted() -> None:
    corpus, vectors = corpus_and_vectors(16, documents=30)
    for kind in KINDS:
        quantiser = QUANTISERS[kind].calibrate(vectors)
        cost = cost_of(corpus, vectors, quantiser)
        assert cost.recall100 == pytest.approx(100) and cost.documents == 30


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    vectors = some_vectors(40, 21)
    quantiser = QUANTISERS[kind].calibrate(vectors)
    quantiser.save(tmp_path / "model")
    names = [f"quantisation-{kind}.json", f"quantisation-{kind}.safetensors"]
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == names
    for width in (None, 21):
        loaded = QUANTISERS[kind].load(tmp_path / "model", width)
        assert loaded.width == 21 and loaded.bytes_per_vector == {"int8": 21, "int4": 11, "binary": 3}[kind]
        assert np.array_equal(loaded.encode(vectors), quantiser.encode(vectors))


@pytest.mark.parametrize("kind", KINDS)
def test_the_quantiser_that_was_saved_for_a_width(kind: str, tmp_path: Path) -> None:
    wide, narrow = some_vectors(40, 21), some_vectors(40, 8)
    assert saved_quantiser(None, kind, 21) is None and saved_quantiser(tmp_path, kind, 21) is None
    QUANTISERS[kind].calibrate(wide).save(tmp_path / "one")
    QUANTISERS[kind].calibrate(narrow).save(tmp_path / "several" / "d8")
    assert saved_quantiser(tmp_path / "one", kind, 21) == tmp_path / "one"
    assert saved_quantiser(tmp_path / "one", kind, 8) is None  # of other dimensions than the student's first 8
    assert saved_quantiser(tmp_path / "several", kind, 8) == tmp_path / "several" / "d8"
    (tmp_path / "one" / f"quantisation-{kind}.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        saved_quantiser(tmp_path / "one", kind, 21)


@pytest.mark.parametrize("kind", KINDS)
def test_unusable_files_are_named_with_value_and_expectation(kind: str, tmp_path: Path) -> None:
    load = QUANTISERS[kind].load
    card, tensors = tmp_path / f"quantisation-{kind}.json", tmp_path / f"quantisation-{kind}.safetensors"
    with pytest.raises(InputError, match=rf"{card.name}: no such file"):
        load(tmp_path)
    QUANTISERS[kind].calibrate(some_vectors(40, 21)).save(tmp_path)
    with pytest.raises(InputError, match=rf"{card.name}: width is 21, expected 64"):
        load(tmp_path, 64)
    whole, described = tensors.read_bytes(), json.loads(card.read_text())
    tensors.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # one bit
    with pytest.raises(InputError, match=r"sha256 is .*, expected .*damaged"):
        load(tmp_path)
    tensors.unlink()
    with pytest.raises(InputError, match=rf"{tensors.name}: no such file"):
        load(tmp_path)
    tensors.write_bytes(whole)
    for change, message in [
        ({"kind": "int2"}, f"kind is 'int2', expected '{kind}'"),
        ({"format": 2}, "format is 2, expected 1"),
        ({"width": 20}, rf"{tensors.name}: 21 dimensions, expected 20"),
    ]:
        card.write_text(json.dumps({**described, **change}))
        with pytest.raises(InputError, match=message):
            load(tmp_path)
    for text, message in [("{", "not JSON"), ("[1]", r"\[1\], expected a JSON object"), ("{}", "format is None")]:
        card.write_text(text)
        with pytest.raises(InputError, match=message):
            load(tmp_path)


def test_tensors_that_are_no_calibration_are_refused(tmp_path: Path) -> None:
    good = np.zeros(3, dtype=np.float32)
    for bad, message in [
        (good.astype(np.float64), "low has .*float64, expected float32"),
        (good[:0], r"low has shape \(0,\)"),
        (np.array([0, np.nan, 0], dtype=np.float32), "dimension 1: low is nan"),
        (good + 1, "dimension 0: low is 1.0, expected at most high, 0.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            Int8(bad, good)
    with pytest.raises(ValueError, match="high has shape"):
        Int8(good, good[:2])
    # Such a file is the user's: the same message, with its name.
    Binary(good).save(tmp_path)
    card = tmp_path / "quantisation-binary.json"
    Int8(good, good).save(tmp_path)
    other = (tmp_path / "quantisation-int8.safetensors").read_bytes()
    (tmp_path / "quantisation-binary.safetensors").write_bytes(other)
    described = json.loads((tmp_path / "quantisation-int8.json").read_text())
    card.write_text(json.dumps({**described, "kind": "binary"}))
    with pytest.raises(InputError, match=r"quantisation-binary.safetensors: tensors \['high', 'low'\], expected"):
        Binary.load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_bad_vectors_are_refused(kind: str) -> None:
    vectors = some_vectors(10, 8)
    quantiser = QUANTISERS[kind].calibrate(vectors)
    for value in (np.nan, np.inf, -np.inf):
        bad = vectors.copy()
        bad[3, 5] = value
        for call in (QUANTISERS[kind].calibrate, quantiser.encode):
            with pytest.raises(ValueError, match=f"vector 3, dimension 5 is {value}, expected a finite"):
                call(bad)
    for few in (vectors[:0], vectors[:1], vectors[:, :0]):
        with pytest.raises(ValueError, match="expected at least 2 rows and 1 column"):
            QUANTISERS[kind].calibrate(few)
    with pytest.raises(ValueError, match="vectors of 7 dimensions, expected 8"):
        quantiser.encode(vectors[:, :7])
    for wrong in (vectors[0], quantiser.encode(vectors)):  # one vector; codes instead of vectors
        with pytest.raises(ValueError, match="expected floats in rows and columns"):
            quantiser.encode(wrong)
    for codes in (quantiser.encode(vectors)[:, :0], quantiser.encode(vectors).astype(np.int32), vectors):
        with pytest.raises(ValueError, match=r"codes of shape .*, expected . columns of u?int8"):
            quantiser.decode(codes)
    assert quantiser.decode(quantiser.encode(vectors[:0])).shape == (0, 8)
    corpus, other = corpus_and_vectors(9)
    with pytest.raises(ValueError, match="8 dimensions, expected 9"):
        scored_rows(other, corpus, [quantiser])
    with pytest.raises(ValueError, match="vectors of 9 dimensions, expected 8"):
        quantiser.encode(other)
    if isinstance(quantiser, Binary):
        with pytest.raises(ValueError, match="rescore is 0"):
            quantiser.search(quantiser.index(vectors), vectors, 3, rescore=0)
