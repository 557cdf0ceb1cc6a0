"""Kept predictions: what is in them, and files that are not what they should be."""

from __future__ import annotations

import pickle
from dataclasses import replace
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
        builder.add_retrieval("quora", split, queries, documents, [{i: 1} for i in range(15)])
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
    assert [name for name in found.test if name.startswith("sts/")] == ["sts/STS12/spearman", "sts/STSB/spearman"]
    sts12, stsb, dev = found.test["sts/STS12/spearman"], found.test["sts/STSB/spearman"], found.dev["sts/STSB/spearman"]
    a, b = corpus.sts[0], corpus.sts[3]
    expected = [cosine(vectors[s.left_P], vectors[s.right_P]) for s in (a, b)]
    assert sts12.value_P == pytest.approx(np.concatenate(expected), abs=1e-15)
    assert sts12.gold_P is not None and sts12.gold_P.tolist() == [*a.score_P, *b.score_P]
    assert spearman(*stsb[:2]) == pytest.approx(values["STSB", "test", "spearman", "all"])
    assert list(found.dev) == ["sts/STSB/spearman"] and spearman(*dev[:2]) == values["STSB", "dev", "spearman", "all"]
    ranks = found.test["retrieval/quora/mrr@10"]
    assert 100 * ranks.value_P.mean() == pytest.approx(values["quora", "test", "mrr@10", "all"])


def test_what_is_saved_comes_back(made: Predictions, tmp_path: Path) -> None:
    path = predictions_path(tmp_path, "0123456789abcdef" * 4)
    assert path == tmp_path / "predictions" / "0123456789abcdef01234567.npz"
    made.save(path)
    found = Predictions.load(path)
    for before, after in ((made.test, found.test), (made.dev, found.dev)):
        assert before.keys() == after.keys()
        for name, items in before.items():
            assert (
                np.array_equal(items.value_P, after[name].value_P) and items.value_P.dtype == after[name].value_P.dtype
            )
            assert (items.gold_P is None) == (after[name].gold_P is None)
    assert made.first.keys() == found.first.keys() == {"quora"}
    assert np.array_equal(made.first["quora"], found.first["quora"]) and found.first["quora"].shape == (15, 10)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_of_an_earlier_version_has_no_first_documents(made: Predictions, tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    replace(made, first={}).save(path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    np.savez(path, **arrays)  # as they were written
    found = Predictions.load(path)
    assert found.first == {} and found.test.keys() == made.test.keys()


class Boom:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("unpickled",))


ROW = {"test/value/S": [0.1, 0.2], "test/gold/S": [1.0, 2.0]}


@pytest.mark.parametrize(
    "arrays",
    [
        {**ROW, "test/gold/S": np.array([Boom(), Boom()], dtype=object)},
        {**ROW, "test/gold/S": [1.0, 2.0, 3.0]},
        {**ROW, "test/gold/S": [1.0, np.nan]},
        {**ROW, "test/value/S": [[0.1], [0.2]]},
        {**ROW, "test/value/S": ["a", "b"]},
        {**ROW, "test/value/S": 0},
        {**ROW, "test/other/S": [1.0]},
        {"test/value/S": []},
        {**ROW, "test/first/S": np.array([1, 2])},
        {**ROW, "test/first/S": [[0.5, 1.5]]},
        {**ROW, "dev/first/S": np.array([[1, 2]])},
        {**ROW, "dev/gold/S": [0.1]},
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


@pytest.mark.parametrize("record_id", ["../../elsewhere", "a\\b", "a\0b"])
def test_an_id_that_leads_elsewhere(tmp_path: Path, record_id: str) -> None:
    with pytest.raises(InputError, match="file name"):
        predictions_path(tmp_path, record_id)
