"""The nearest others of each sentence; candidates for hard negatives: by the teacher, never what answers the query."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from samples import write_tsv

from distilbench.commands.corpus import load_corpus
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError
from distilbench.methods.parts.supervised import LabelledExamples, LabelledParams, judged_negatives
from distilbench.prepare import nearest
from distilbench.prepare.nearest import Candidates, candidates_artifact, load_candidates
from distilbench.prepare.pca import Pca
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.stage import prepare_corpus
from distilbench.settings.run import RunSettings
from distilbench.storage.arrays import ShardedArray, load_array, save_array, shard_name
from distilbench.storage.store import ArtifactStore

WORDS = ["apple", "river", "stone", "cloud", "tiger", "piano", "lemon", "chair"]


def made_corpus(folder: Path, passages: int = 30, queries: int = 5) -> tuple[Corpus, ShardedArray]:
    """Queries of two words each, passages of three; every query has two answers, and a passage with its own text."""
    rng = np.random.default_rng(3)
    asked = [f"{WORDS[i]} {WORDS[(i + 1) % 8]} number{i}" for i in range(queries)]
    texts = [" ".join(rng.choice(WORDS, 3)) + f" passage{i}" for i in range(passages - queries)] + asked
    builder = CorpusBuilder("judged")
    query_rows = np.array([builder.rows([f"{text} "])[0] for text in asked])  # the same text but for a blank
    rows = builder.rows(texts)
    pairs = np.array([(q, rows[i + k * queries]) for i, q in enumerate(query_rows) for k in (0, 1)])
    builder.train_on(list(builder.sentences))
    corpus = replace(builder.build(), judged_P2=pairs, passages=np.sort(rows))
    vectors_ND = rng.standard_normal((len(corpus.sentences), 8)).astype(np.float32)
    save_array(folder / shard_name(0), vectors_ND)
    return corpus, ShardedArray(folder, len(vectors_ND), 8, len(vectors_ND))


def unit(vectors: ShardedArray) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    all_ND = vectors.take(np.arange(vectors.rows)).astype(np.float64)
    return all_ND / np.linalg.norm(all_ND, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [4, 1000])
def test_the_nearest_are_those_of_all_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(nearest, "BLOCK", block)
    corpus, vectors = made_corpus(tmp_path)
    queries = np.unique(corpus.judged_P2[:, 0])
    cosine = unit(vectors)[queries] @ unit(vectors)[corpus.passages].T
    found, cosines = nearest.nearest_documents(vectors.take, queries, corpus.passages, 7)
    assert found.tolist() == np.argsort(-cosine, axis=1)[:, :7].tolist()
    np.testing.assert_allclose(cosines, np.take_along_axis(cosine, found, axis=1), atol=1e-5)


def test_answers_and_the_querys_own_text_are_no_candidates(tmp_path: Path) -> None:
    corpus, vectors = made_corpus(tmp_path / "vectors")
    folder = candidates_artifact(corpus, vectors, ArtifactStore(tmp_path / "store"))
    assert folder is not None
    found, all_ND = load_candidates(folder), unit(vectors)
    for query, rows, cosines in zip(found.queries, found.rows_QM, found.cosine_QM, strict=True):
        answers = {int(d) for q, d in corpus.judged_P2 if q == query}
        own = {int(r) for r in corpus.passages if corpus.sentences[int(r)] == corpus.sentences[int(query)].strip()}
        assert len(own) == 1 and len(answers) == 2
        left = [int(r) for r in rows if r >= 0]
        assert set(left) == set(corpus.passages.tolist()) - answers - own
        np.testing.assert_allclose(cosines[: len(left)], all_ND[left] @ all_ND[query], atol=1e-5)
        assert (np.diff(cosines[: len(left)]) <= 1e-6).all() and (rows[len(left) :] == -1).all()
    assert candidates_artifact(replace(corpus, judged_P2=corpus.judged_P2[:0]), vectors, None) is None  # type: ignore[arg-type]


@pytest.fixture
def toy(tmp_path: Path) -> Prepared:
    """Two queries (0 and 1), the second with two answers (10, 11); cosine 0.8 of every query to its answer."""
    vectors_ND = np.tile(np.array([0, 0, 0, 1], dtype=np.float32), (12, 1))
    vectors_ND[[0, 1]] = [1, 0, 0, 0]
    vectors_ND[[9, 10, 11]] = [0.8, 0.6, 0, 0]
    save_array(tmp_path / shard_name(0), vectors_ND)
    candidates = Candidates(
        np.array([0, 1]),
        np.array([[2, 3, 4, 5], [3, 2, 6, -1]]),
        np.array([[0.79, 0.7, 0.6, 0.1], [0.9, 0.78, 0.2, 0.0]], dtype=np.float32),
    )
    return Prepared(
        teacher=EncoderSpec("teacher"),
        student="auto",
        vectors=ShardedArray(tmp_path, 12, 4, 12),
        pca=Pca(np.zeros(4, dtype=np.float32), np.eye(4, dtype=np.float32)),
        tokens=None,
        train=np.arange(12),
        pairs_P2=np.empty((0, 2), dtype=np.int64),
        dev=(),
        judged_P2=np.array([(0, 9), (1, 10), (1, 11)]),
        candidates=candidates,
    )


@pytest.mark.parametrize(
    ("given", "negatives"),
    [
        ({"hard_negatives": 2, "max_negative_share": 0.0}, [[2, 3], [3, 2], [3, 2]]),
        # 0.95 x 0.8 = 0.76: 2 is left out of the first query, 3 and 2 of the second, and come last, the least similar first.
        ({"hard_negatives": 2, "max_negative_share": 0.95}, [[3, 4], [6, 2], [6, 2]]),
        ({"hard_negatives": 4, "max_negative_share": 0.95}, None),
        ({"hard_negatives": 0}, [[], [], []]),
    ],
)
def test_the_negatives_of_a_judged_pair(
    toy: Prepared, given: dict[str, object], negatives: list[list[int]] | None
) -> None:
    params = LabelledParams(**given)  # type: ignore[arg-type]
    if negatives is None:
        with pytest.raises(InputError, match="hard_negatives is 4, but a judged query has fewer passages"):
            judged_negatives(params, toy)
    else:
        assert judged_negatives(params, toy).tolist() == negatives


def test_labelled_examples_of_judgements(toy: Prepared) -> None:
    examples = LabelledExamples(LabelledParams(labelled="retrieval", hard_negatives=2, max_negative_share=0.0), toy)
    assert len(examples) == 3
    assert examples.rows(np.array([2, 0])).tolist() == [1, 0, 11, 9, 3, 2, 2, 3]


def test_from_the_data_folder_to_what_a_trial_reads(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, narrow_encoder_folder: Path
) -> None:
    """With given vectors, for which no Ray is needed; every text of the folder has one."""
    data = Path(shutil.copytree(data_folder, tmp_path / "data"))
    documents = [line.split("\t") for line in (data / "quora" / "corpus.tsv").read_text().splitlines()[1:]]
    asked = [f"what is {text}" for _, text, _ in documents[30:50]]
    inner = data / "quora" / "retrieval"
    write_tsv(inner / "queries.train.tsv", ["query_id", "text"], [[f"t{i}", text] for i, text in enumerate(asked)])
    judged: list[list[object]] = [[f"t{i}", documents[30 + i][0], 1] for i in range(20)]
    write_tsv(inner / "qrels.train.tsv", ["query_id", "doc_id", "score"], judged)
    quiet, needs = Console(quiet=True), Requirements(negatives=True)
    known = {"data": str(data), "store": tmp_path / "store", "student": str(narrow_encoder_folder)}
    whole = load_corpus(RunSettings(**known, teacher=str(encoder_folder)), needs, quiet)
    texts = list(whole.sentences)
    vectors = encode(EncoderSpec(str(encoder_folder)).load(), texts)
    table = pa.table({"text": texts, "vector": pa.array(vectors.tolist(), pa.list_(pa.float32()))})
    pq.write_table(table, tmp_path / "v.parquet")
    own = RunSettings(**known, teacher_vectors=tmp_path / "v.parquet")
    corpus = load_corpus(own, needs, quiet)
    assert len(corpus.judged_P2) == 20 and len(corpus.passages) == 60
    wanted = Requirements(negatives=True, students=(None,))
    inputs = prepare_corpus(own, corpus, wanted, quiet)
    (tmp_path / "prepared").mkdir()
    inputs.save(tmp_path / "prepared")
    prepared = load_prepared(tmp_path / "prepared")
    np.testing.assert_array_equal(prepared.judged_P2, corpus.judged_P2)
    taken = judged_negatives(LabelledParams(hard_negatives=4), prepared)
    assert taken.shape == (20, 4) and set(taken.ravel().tolist()) <= set(corpus.passages.tolist())
    for (_, answer), negatives in zip(corpus.judged_P2.tolist(), taken.tolist(), strict=True):
        assert answer not in negatives and len(set(negatives)) == 4


@pytest.mark.parametrize("exact", [True, False])
def test_the_nearest_others_are_found(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    """All of them among few sentences; among many nearly all."""
    if not exact:
        monkeypatch.setattr(nearest, "EXACT", 100)
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(40, 1, 16)) + 0.4 * rng.normal(size=(40, 50, 16))).reshape(-1, 16).astype(np.float32)
    vectors[1] = vectors[0]
    found = nearest.nearest_others(3 * vectors, 7)
    unit_ND = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit_ND @ unit_ND.T
    np.fill_diagonal(cosines, -np.inf)
    best = np.sort(cosines, axis=1)[:, ::-1][:, :7]
    given = np.take_along_axis(cosines, found, axis=1)
    assert found.shape == (2000, 7) and found[0, 0] == 1 and found[1, 0] == 0
    assert (np.abs(given - best) < 1e-5).mean() > (0.999 if exact else 0.9)
    for count in (0, 2000):
        with pytest.raises(ValueError, match="expected 1 to 1999"):
            nearest.nearest_others(vectors, count)


def test_the_artifact_is_made_once_of_the_training_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float16)
    save_array(tmp_path / "vectors" / shard_name(0), values)
    vectors, train = ShardedArray(tmp_path / "vectors", 60, 5, 60), np.arange(10, 50)
    store = ArtifactStore(tmp_path / "store")
    found = load_array(nearest.nearest_artifact(vectors, train, 6, store) / nearest.NEAREST)
    assert found.dtype == np.int32 and found.shape == (40, 6)
    np.testing.assert_array_equal(found, nearest.nearest_others(values[10:50].astype(np.float32), 6))
    made = nearest.nearest_artifact(vectors, train, 3, store), nearest.nearest_artifact(vectors, train[:30], 6, store)
    monkeypatch.setattr(nearest, "nearest_others", None)
    again = nearest.nearest_artifact(vectors, train, 3, store), nearest.nearest_artifact(vectors, train[:30], 6, store)
    assert made == again and load_array(made[0] / nearest.NEAREST).shape == (40, 3)
