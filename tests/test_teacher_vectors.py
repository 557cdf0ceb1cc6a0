"""A teacher whose vectors are given in a file: what is trained on it, what is scored, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from samples import write_tsv

from distilbench.commands.corpus import load_corpus
from distilbench.commands.evaluate import evaluate
from distilbench.commands.export import export
from distilbench.commands.run_folder import check_encoders, check_student_encoder
from distilbench.commands.sweep import sweep
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import NO_REQUIREMENTS, Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.stage import prepare_corpus
from distilbench.records import ScoreRecord, read_records
from distilbench.reporting.choice import NO_LIMIT
from distilbench.settings.commands import EvaluateSettings
from distilbench.settings.run import RunSettings
from distilbench.settings.sweep import SweepSettings
from distilbench.trials.rung_training import build_method

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory, data_folder: Path, encoder_folder: Path) -> Path:
    """The vectors of every text of the small data folder, in another order, but for one of a test set and a document."""
    corpus = folder_corpus(data_folder, Limits())
    left_out = {int(next(s for s in corpus.sts if s.name == "STS12.OnWN").left_P[3])}
    left_out |= {int(corpus.train[5]), int(corpus.retrieval[0].documents[-1])}
    rows = [int(row) for row in np.random.default_rng(0).permutation(len(corpus.sentences)) if row not in left_out]
    texts = [corpus.sentences[row] for row in rows]
    found = encode(EncoderSpec(str(encoder_folder)).load(), texts)
    path = tmp_path_factory.mktemp("given") / "api-vectors.parquet"
    pq.write_table(pa.table({"text": texts, "vector": pa.array(found.tolist(), pa.list_(pa.float32()))}), path)
    return path


def settings(root: Path, data: Path, vectors: Path, **given: Any) -> RunSettings:
    known = {"data": str(data), "teacher_vectors": vectors, "store": root / "store", "quantise": ()}
    return RunSettings(**{**known, "runs": root / "runs", **given})


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, data_folder: Path, vectors: Path, narrow_encoder_folder: Path
) -> tuple[Corpus, Prepared]:
    """Prepared from the file, with a student's folder."""
    root = tmp_path_factory.mktemp("given-made")
    own = settings(root, data_folder, vectors, student=str(narrow_encoder_folder))
    check_encoders(own)
    check_student_encoder(own, own.student)
    inputs = prepare_corpus(own, load_corpus(own, NO_REQUIREMENTS, QUIET), Requirements(students=(None,)), QUIET)
    (root / "prepared").mkdir()
    inputs.save(root / "prepared")
    return inputs.corpus, load_prepared(root / "prepared")


def test_the_vectors_are_those_of_the_texts(made: tuple[Corpus, Prepared], encoder_folder: Path) -> None:
    corpus, prepared = made
    assert len(corpus.sentences) == prepared.vectors.rows and prepared.vectors.width == 32
    rows = np.concatenate([corpus.train, *(side for s in corpus.sts for side in (s.left_P, s.right_P))])
    direct = encode(EncoderSpec(str(encoder_folder)).load(), [corpus.sentences[int(row)] for row in rows])
    np.testing.assert_allclose(prepared.vectors.take(rows), direct, atol=1e-3)
    assert prepared.teacher.title == "api-vectors"


def test_sets_with_a_text_that_has_no_vector_are_left_out_and_told(
    made: tuple[Corpus, Prepared], data_folder: Path
) -> None:
    corpus, whole = made[0], folder_corpus(data_folder, Limits())
    assert [s.name for s in corpus.sts] == [s.name for s in whole.sts if s.name != "STS12.OnWN"]
    assert corpus.retrieval == ()
    for own, old in zip(corpus.sts, (s for s in whole.sts if s.name != "STS12.OnWN"), strict=True):
        assert [corpus.sentences[int(i)] for i in own.left_P] == [whole.sentences[int(i)] for i in old.left_P]
        assert own.score_P.tolist() == old.score_P.tolist()
    lines = [line for line in corpus.missing if "have no vector" in line]
    assert [line.split(":")[0] for line in lines] == ["STS12.OnWN (test)", "quora retrieval, dev"]
    assert " 1 of its " in lines[0]
    # The texts of the file are trained on: the folder's and the documents, but none that a set asks about.
    asked = {int(i) for s in corpus.sts for side in (s.left_P, s.right_P) for i in side}
    assert not asked & set(corpus.train.tolist())
    known = {corpus.sentences[int(i)] for i in corpus.train}
    assert {whole.sentences[int(i)] for i in whole.train} - known == {whole.sentences[int(whole.train[5])]}


@pytest.mark.parametrize("name", ["pca", "mcr2", "neighbours"])
def test_a_head_is_exported_alone(made: tuple[Corpus, Prepared], tmp_path: Path, name: str) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    _, prepared = made
    params: dict[str, dict[str, Any]] = {
        "pca": {},
        "mcr2": {"lambda": 50.0, "clusters": 4, "lr": 0.01, "batch_size": 16},
        "neighbours": {"lr": 0.003, "batch_size": 16, "steps": 20},
    }
    method = build_method(name, {"output_dim": 8, **params[name]}, prepared, 0, "cpu")
    rows = prepared.train[:9]
    expected = method.embed(rows)
    method.export(tmp_path / "student")
    student = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    given = torch.from_numpy(prepared.vectors.take(rows))
    found = student({"sentence_embedding": given})["sentence_embedding"].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(InputError, match=r"it begins with Dense, and reads no text: .* a head on them"):
        EncoderSpec(str(tmp_path / "student")).load()


@pytest.mark.parametrize(("name", "dim"), [("mse", 16), ("hpd", 8)])
def test_an_encoder_student_starts_from_its_folder(
    made: tuple[Corpus, Prepared], tmp_path: Path, name: str, dim: int
) -> None:
    from sentence_transformers import SentenceTransformer

    corpus, prepared = made
    params = {"output_dim": dim, "lr": 0.003, "batch_size": 16, "epochs": 1.0}
    method = build_method(name, params, prepared, 0, "cpu")
    before = float(method.loss(np.arange(16)).detach())
    optimiser = __import__("torch").optim.Adam(method.parameters(), lr=0.003)
    for _ in range(10):
        optimiser.zero_grad()
        loss = method.loss(np.arange(16))
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < before
    method.eval()
    expected = method.embed(prepared.train[:5])
    method.export(tmp_path / "student")
    model = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    np.testing.assert_allclose(
        model.encode([corpus.sentences[int(i)] for i in prepared.train[:5]]), expected, atol=1e-5
    )


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("hpd", {}, r"--student auto would be made of its layers; expected a folder or hub id"),
        ("hpd", {"student": "layers:0"}, "--student layers:0 would be made of its layers"),
        ("hpd", {"student": "static"}, "--student static starts from a teacher.s tokens"),
        ("pca", {"augment": "synonym"}, "--augment makes sentences that have no vector in it"),
        ("pca", {"prompt": ("query=a ",)}, "--prompt: expected none with --teacher-vectors"),
        ("pca", {"teacher": "another"}, "--teacher: expected none with --teacher-vectors"),
        (
            "mcr2",
            {"objectives": "quality,latency"},
            "--objectives latency: a head of mcr2 costs what the teacher costs, and --teacher-vectors has no teacher",
        ),
        ("pca", {"teacher_vectors": Path("nowhere.parquet")}, r"nowhere\.parquet: no such file; expected NAME"),
    ],
)
def test_what_vectors_cannot_serve_is_refused_before_anything_runs(
    tmp_path: Path, data_folder: Path, vectors: Path, method: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        own = settings(tmp_path, data_folder, given.get("teacher_vectors", vectors))
        sweep(
            SweepSettings(**{**own.model_dump(exclude_unset=True), "method": method, **given}),
            Console(file=io.StringIO()),
        )
    assert not (tmp_path / "runs").exists() and not (tmp_path / "reports").exists()


def test_missing_texts_are_named(tmp_path: Path, data_folder: Path, vectors: Path) -> None:
    table = pq.read_table(vectors)
    write_tsv(tmp_path / "more.tsv", ["text"], [["a cat that nobody has seen"]])
    with pytest.raises(InputError, match=r"no vector of 'a cat that nobody has seen' of --text \(1 of 1 sentences"):
        load_corpus(
            settings(tmp_path, data_folder, vectors, text=(str(tmp_path / "more.tsv"),)), NO_REQUIREMENTS, QUIET
        )
    corpus = folder_corpus(data_folder, Limits())
    asked = next(s for s in corpus.sts if s.split == "dev")
    text = corpus.sentences[int(asked.right_P[7])]
    pq.write_table(table.filter(pa.array([t != text for t in table["text"].to_pylist()])), tmp_path / "less.parquet")
    less = settings(tmp_path, data_folder, tmp_path / "less.parquet")
    taught = load_corpus(less, NO_REQUIREMENTS, QUIET)  # no dev set is whole
    assert str(taught.selection).startswith("fidelity")
    assert any(line.startswith("STSB (dev): 1 of its ") and repr(text)[:40] in line for line in taught.missing)
    with pytest.raises(InputError, match=r"--select sts: .* has no"):
        load_corpus(less.but(select="sts"), NO_REQUIREMENTS, QUIET)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_of_heads(tmp_path: Path, data_folder: Path, vectors: Path, cluster: None) -> None:
    space = tmp_path / "pca.yaml"
    space.write_text(
        "method: pca\nbudget: {trials: 1, steps: 1, confirm: {seeds: 1}}\nparameters: {}\nfixed: {output_dim: 8}\n"
    )
    own = settings(tmp_path, data_folder, vectors, name="s").model_dump(exclude_unset=True)
    page = sweep(SweepSettings(**own, method="pca", space=space, trials=1), QUIET)
    assert "api-vectors" in page.read_text()
    run = tmp_path / "runs" / "s"
    records = [r for r in read_records(run / "scores.jsonl") if isinstance(r, ScoreRecord)]
    assert {r.start for r in records} == {"given vectors"} and {r.teacher for r in records} == {"api-vectors"}
    [student] = [r for r in records if r.role == "student"]
    export([run], tmp_path / "out", NO_LIMIT, student=student.record_id)
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'model({"sentence_embedding": given})' in card and student.parameters == 32 * 8 + 8
    reads = EvaluateSettings(
        model=(str(run / student.model),), data=str(data_folder), store=tmp_path / "store", cost=False
    )
    with pytest.raises(InputError, match="reads no text"):
        evaluate(reads.but(runs=tmp_path / "runs", name="e"), QUIET)


def test_alone_it_is_the_text_too(tmp_path: Path, vectors: Path, data_folder: Path) -> None:
    """Without a data folder the file's texts are all there is: students are selected by fidelity; nothing is generated."""
    own = settings(tmp_path, data_folder, vectors).model_dump(exclude_unset=True)
    corpus = load_corpus(RunSettings(**{**own, "data": None}), NO_REQUIREMENTS, QUIET)
    assert str(corpus.selection).startswith("fidelity") and not corpus.demonstration
    texts = set(pq.read_table(vectors)["text"].to_pylist())
    assert set(corpus.sentences) <= texts and len(corpus.train) and corpus.held_out and not corpus.sts
    assert not {int(i) for held in corpus.held_out for i in held.rows} & set(corpus.train.tolist())
