"""Files of vectors and their texts: what is read, and what is refused with its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import random_sentences

from distilbench.data import vector_file as module
from distilbench.data.sentences import CorpusText
from distilbench.data.vector_file import given_vectors, vector_file
from distilbench.errors import InputError
from distilbench.storage.store import ArtifactStore

TEXTS = random_sentences(50, seed=4)
VECTORS = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
LISTS = VECTORS.tolist()


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD_ROWS", 16)


def parquet(path: Path, texts: list[Any] = TEXTS, vectors: Any = LISTS, name: str = "vector") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, name: pa.array(vectors, pa.list_(pa.float32()))}), path, row_group_size=11)
    return path


@pytest.mark.parametrize("form", ["parquet", "fixed", "views"])
def test_vectors_are_found_by_their_text(tmp_path: Path, form: str) -> None:
    if form == "fixed":
        path = tmp_path / "v.parquet"
        lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 6)
        pq.write_table(pa.table({"text": TEXTS, "embedding": lists}), path)
    elif form == "views":  # as recent Polars and DataFusion write strings and lists
        path = tmp_path / "v.parquet"
        lists = pa.array(LISTS, pa.list_view(pa.float32()))
        pq.write_table(pa.table({"text": pa.array(TEXTS, pa.string_view()), "vector": lists}), path)
    else:
        path = parquet(tmp_path / "v.parquet")
    file = vector_file(path)
    assert file.shape() == (50, 6)
    given = given_vectors(file, ArtifactStore(tmp_path / "store"))
    asked = [TEXTS[7], "no such text", f" {TEXTS[40]} ", TEXTS[0], TEXTS[7]]
    assert given.places(asked).tolist() == [7, -1, 40, 0, 7]
    np.testing.assert_allclose(given.vectors.take(np.array([7, 40, 49])), VECTORS[[7, 40, 49]], atol=2e-3)


def test_of_a_text_without_a_vector_there_are_zeros(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    given = given_vectors(vector_file(parquet(tmp_path / "v.parquet")), store)
    found = given.of_sentences(CorpusText([TEXTS[3], "no such text", TEXTS[1]], "f"), store).take(np.arange(3))
    np.testing.assert_allclose(found, [VECTORS[3], np.zeros(6), VECTORS[1]], atol=2e-3)


def changed(index: int, value: Any) -> list[Any]:
    vectors: list[Any] = VECTORS.tolist()
    vectors[index] = value
    return vectors


@pytest.mark.parametrize(
    ("texts", "vectors", "message"),
    [
        (TEXTS, changed(20, [1.0] * 5), "row 21: a vector of 5 numbers; expected 6, as in the first row"),
        (TEXTS, changed(20, None), "row 21: a vector of no numbers; expected 6"),
        (TEXTS, changed(20, [1.0, None, 1, 1, 1, 1]), "row 21: a number of the vector is missing; expected 6 numbers"),
        (TEXTS, changed(37, [1.0, 2, float("nan"), 1, 1, 1]), "row 38: .* nan is in it .*; expected 6 finite numbers"),
        (TEXTS, changed(37, [1e9, 2, 3, 1, 1, 1]), r"row 38: .* 1000000000.0 is in it \(float16 ends at 65,504\)"),
        (TEXTS, changed(37, [0.0] * 6), "row 38: .* it is zero"),
        ([*TEXTS[:30], TEXTS[4], *TEXTS[31:]], VECTORS.tolist(), "row 31: text .* is there already, in row 5"),
        ([*TEXTS[:30], " ", *TEXTS[31:]], VECTORS.tolist(), "row 31: column 'text' is empty; expected a sentence"),
        ([*TEXTS[:30], None, *TEXTS[31:]], VECTORS.tolist(), "row 31: column 'text' is None; expected a sentence"),
    ],
)
def test_a_bad_row_of_parquet_is_named(tmp_path: Path, texts: list[Any], vectors: Any, message: str) -> None:
    path = parquet(tmp_path / "v.parquet", texts, vectors)
    with pytest.raises(InputError, match=rf"v\.parquet, {message}"):
        given_vectors(vector_file(path), ArtifactStore(tmp_path / "store"))
    assert not list((tmp_path / "store").glob("teacher-vectors-*[0-9a-f]"))


def test_bad_files_are_named(tmp_path: Path) -> None:
    for name, message in {"none.parquet": "no such file", "v.csv": "the format is not known"}.items():
        (tmp_path / "v.csv").write_text("text,vector\n")
        with pytest.raises(InputError, match=message):
            vector_file(tmp_path / name)
    with pytest.raises(InputError, match="no column 'vector'; the columns are"):
        vector_file(parquet(tmp_path / "other.parquet", name="numbers"))
    pq.write_table(pa.table({"text": TEXTS, "vector": TEXTS}), tmp_path / "words.parquet")
    with pytest.raises(InputError, match="column 'vector' holds string; expected lists of numbers"):
        vector_file(tmp_path / "words.parquet")
    with pytest.raises(InputError, match="no column 'words'; the columns are"):
        vector_file(parquet(tmp_path / "v.parquet"), "words").shape()
    (tmp_path / "bad.parquet").write_text("text")
    with pytest.raises(InputError, match=r"bad\.parquet: cannot be read"):
        vector_file(tmp_path / "bad.parquet")
