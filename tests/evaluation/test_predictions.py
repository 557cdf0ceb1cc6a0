"""Kept predictions: what is in them, and files that are not what they should be."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from samples import scored_rows

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import cosine, spearman


def corpus_and_vectors() -> tuple[Corpus, np.ndarray]:
    rng = np.random.default_rng(0)
    builder = CorpusBuilder("test")
    for group, subset, split, count in (
        ("STS12", "a", "test", 10),
        ("STSB", "", "dev", 20),
        ("STSB", "", "test", 25),
        ("STS12", "b/c", "test", 30),
    ):
        left, right = ([f"{group}{subset}{split}{side}{i}" for i in range(count)] for side in "lr")
        builder.add_sts(group, subset, split, left, right, rng.uniform(0, 5, count))
    for split in ("dev", "test"):
        queries, documents = [f"q{split}{i}" for i in range(15)], [f"d{i}" for i in range(60)]
        builder.add_retrieval("quora", split, queries, documents, [[i] for i in range(15)])
    corpus = builder.build()
    return corpus, rng.standard_normal((len(corpus.sentences), 6)).astype(np.float32)


@pytest.fixture
def made() -> Predictions:
    corpus, vectors = corpus_and_vectors()
    return scored_rows(vectors, corpus)[0].predictions


def test_test_sets_by_group_with_their_subsets_and_retrieval_by_query() -> None:
    corpus, vectors = corpus_and_vectors()
    [row] = scored_rows(vectors, corpus)
    found = row.predictions
    values = {(s.set, s.split, s.metric, s.variant): s.value for s in row.scores}
    assert list(found.similarity) == list(found.gold) == list(found.subset) == ["STS12", "STSB"]
    a, b = corpus.sts[0], corpus.sts[3]
    expected = [cosine(vectors[s.left_P], vectors[s.right_P]) for s in (a, b)]
    assert found.similarity["STS12"] == pytest.approx(np.concatenate(expected), abs=1e-15)
    assert found.gold["STS12"].tolist() == [*a.score_P, *b.score_P]
    assert found.subset["STS12"].tolist() == [0] * 10 + [1] * 30
    assert spearman(found.similarity["STSB"], found.gold["STSB"]) == pytest.approx(
        values["STSB", "test", "spearman", "all"]
    )
    assert list(found.dev_similarity) == list(found.dev_gold) == ["STSB"]
    assert found.dev_gold["STSB"].tolist() == list(corpus.sts[1].score_P)
    assert spearman(found.dev_similarity["STSB"], found.dev_gold["STSB"]) == values["STSB", "dev", "spearman", "all"]
    part = found.subset["STS12"] == 1
    assert spearman(found.similarity["STS12"][part], found.gold["STS12"][part]) == pytest.approx(
        values["STS12", "test", "spearman", "b/c"]
    )
    assert list(found.reciprocal_rank) == ["quora"]
    assert 100 * found.reciprocal_rank["quora"].mean() == pytest.approx(values["quora", "test", "mrr@10", "all"])
    flat = next(i for i in row.indexes if (i.kind, i.split) == ("flat", "test"))
    assert 100 * found.reciprocal_rank["quora"].mean() == pytest.approx(flat.mrr10)


def test_no_pair_is_embedded_or_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, vectors = corpus_and_vectors()
    compared = []

    def counted(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        compared.append(len(left))
        return cosine(left, right)

    monkeypatch.setattr("distilbench.evaluation.encoders.cosine", counted)
    scored_rows(vectors, corpus)
    assert compared == [10, 20, 25, 30]


def test_what_is_saved_comes_back(made: Predictions, tmp_path: Path) -> None:
    path = predictions_path(tmp_path, "0123456789abcdef" * 4)
    assert path == tmp_path / "predictions" / "0123456789abcdef01234567.npz"
    made.save(path)
    found = Predictions.load(path)
    for kind in ("similarity", "gold", "subset", "reciprocal_rank", "item", "dev_similarity", "dev_gold"):
        before, after = getattr(made, kind), getattr(found, kind)
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        assert all(before[name].dtype == after[name].dtype for name in before)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_no_corpus_without_test_sets_is_in_the_way(tmp_path: Path) -> None:
    Predictions({}, {}, {}).save(tmp_path / "none.npz")
    assert Predictions.load(tmp_path / "none.npz").similarity == {}


class Boom:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("unpickled",))


ROW = {"similarity/S": [0.1, 0.2], "gold/S": [1.0, 2.0], "subset/S": [0, 0]}


@pytest.mark.parametrize(
    "arrays",
    [
        {**ROW, "gold/S": np.array([Boom(), Boom()], dtype=object)},
        {**ROW, "gold/S": [1.0, 2.0, 3.0]},
        {**ROW, "gold/S": [1.0, np.nan]},
        {**ROW, "similarity/S": [[0.1], [0.2]]},
        {**ROW, "similarity/S": ["a", "b"]},
        {**ROW, "subset/S": 0},
        {**ROW, "reciprocal_rank/quora": [1.0, np.inf]},
        {**ROW, "other/S": [1.0]},
        {"similarity/S": [], "gold/S": [], "subset/S": []},
        {"similarity/S": [0.1], "gold/S": [0.1]},
        {**ROW, "dev_similarity/S": [0.1, 0.2], "dev_gold/S": [0.1]},
        {**ROW, "dev_gold/S": [0.1]},
    ],
)
def test_arrays_that_are_no_predictions(tmp_path: Path, arrays: dict[str, object]) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    with pytest.raises(InputError, match=str(path)):
        Predictions.load(path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 torn", pickle.dumps(Boom())])
def test_files_that_are_no_predictions(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=str(path)):
        Predictions.load(path)
    with pytest.raises(InputError, match="missing"):
        Predictions.load(tmp_path / "missing.npz")
    np.save(tmp_path / "plain.npy", np.ones(3))
    with pytest.raises(InputError, match="plain"):
        Predictions.load(tmp_path / "plain.npy")


def test_any_damage_is_told_as_bad_input(made: Predictions, tmp_path: Path) -> None:
    path, rng = tmp_path / "p.npz", np.random.default_rng(0)
    made.save(path)
    whole = path.read_bytes()
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for position in rng.integers(len(whole), size=3):
            damaged[position] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(len(whole))] if rng.random() < 0.3 else damaged)
        try:
            Predictions.load(path)  # what the archive does not check, such as a time stamp, may be anything
        except InputError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("record_id", ["../../elsewhere", "a\\b", "a\0b"])
def test_an_id_that_leads_elsewhere(tmp_path: Path, record_id: str) -> None:
    with pytest.raises(InputError, match="file name"):
        predictions_path(tmp_path, record_id)
