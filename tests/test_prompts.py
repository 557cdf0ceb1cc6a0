"""Prompts of queries and documents: by name or as text, from the preparation to exported students and their cards."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from samples import make_data, make_encoder

from distilbench.commands.corpus import load_corpus
from distilbench.commands.evaluate import evaluate
from distilbench.commands.export import export
from distilbench.commands.run_folder import check_encoders, check_student_encoder, run_config
from distilbench.commands.sweep import sweep
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import NO_REQUIREMENTS, Requirements
from distilbench.data.roles import DOCUMENT, PLAIN, QUERY, with_roles
from distilbench.data.sentences import sentences_artifact
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.prompts import Prompts, literal_prompt, reading_notes
from distilbench.errors import InputError
from distilbench.prepare import stage
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.stage import prepare_corpus
from distilbench.records import ScoreRecord, read_records
from distilbench.reporting.choice import NO_LIMIT
from distilbench.settings.commands import EvaluateSettings
from distilbench.settings.run import RunSettings
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.store import ArtifactStore
from distilbench.trials.rung_training import build_method

ASKED, SEARCHED = "what is ", "the red "
BOTH = {"prompt": ("query=query", "document=passage")}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with a prompt for queries and another for passages."""
    return make_encoder(tmp_path_factory.mktemp("prompts") / "prompted", layers=2, prompts=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder where an STS sentence is a query, and a training sentence is a document."""
    folder = make_data(tmp_path_factory.mktemp("prompts-data") / "small")
    dev = (folder / "sts" / "STSB.dev.tsv").read_text().splitlines()[1].split("\t")[0]
    queries, corpus = folder / "quora" / "retrieval" / "queries.dev.tsv", folder / "quora" / "corpus.tsv"
    queries.write_text(queries.read_text().replace(queries.read_text().splitlines()[1], f"q0\t{dev}"))
    text = (folder / "unlabeled" / "sentences.tsv").read_text().splitlines()[1]
    corpus.write_text(corpus.read_text() + f"d60\t{text}\t0\n")
    return folder


def settings(root: Path, data: Path, encoder: Path, **given: Any) -> RunSettings:
    known = {"data": str(data), "teacher": str(encoder), "student": "layers:0", "store": root / "store", "quantise": ()}
    return RunSettings(**{**known, "runs": root / "runs", **given})


# --- Names and texts


@pytest.mark.parametrize(
    ("value", "text"), [("query", ASKED), ("passage", SEARCHED), ("document", ""), ("query: ", "query: "), ("", "")]
)
def test_a_name_is_the_encoders_own_prompt_and_anything_else_is_text(encoder: Path, value: str, text: str) -> None:
    assert literal_prompt(EncoderSpec(str(encoder)), value, "--prompt query=") == text


def test_a_name_that_the_encoder_does_not_have_is_refused(encoder: Path) -> None:
    with pytest.raises(InputError, match=r"--prompt query=question: encoder .*it has query.*expected"):
        literal_prompt(EncoderSpec(str(encoder)), "question", "--prompt query=")


OWN = {"query": ASKED, "passage": SEARCHED}


@pytest.mark.parametrize(
    ("named", "given", "before"),
    [
        (OWN, (), (None, ASKED, SEARCHED)),
        ({**OWN, "document": ""}, (), (None, ASKED, SEARCHED)),
        ({"query": ASKED}, (), (None, ASKED, "")),
        ({"corpus": SEARCHED}, (), (None, "", SEARCHED)),
        ({"query": "", "document": ""}, (), (None, None, None)),
        ({"classification": ASKED}, (), (None, None, None)),
        (OWN, ("query=passage",), (None, SEARCHED, SEARCHED)),
        (OWN, ("query=", "document="), (None, "", "")),
        (OWN, ("every ",), ("every ", "every ", "every ")),
        (OWN, ("every ", "document=passage"), ("every ", "every ", SEARCHED)),
    ],
)
def test_queries_and_documents_without_an_option_have_the_encoders_own_prompts(
    tmp_path: Path, encoder: Path, named: dict[str, str], given: tuple[str, ...], before: tuple[str | None, ...]
) -> None:
    folder = shutil.copytree(encoder, tmp_path / "own")
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**config, "prompts": named}))
    spec = settings(tmp_path, tmp_path, folder, prompt=given).teacher_encoder
    assert tuple(spec.prompt_before(role) for role in (PLAIN, QUERY, DOCUMENT)) == before


def test_what_is_read_with_which_prompt_is_told(tmp_path: Path, encoder: Path) -> None:
    spec = replace(EncoderSpec(str(encoder)), query_prompt=ASKED, document_prompt="")
    assert reading_notes(spec, searches=True) == [
        "prompted reads a query with 'what is ', a document without a prompt, other text without a prompt"
    ]
    assert reading_notes(spec, searches=False) == []


def test_an_encoder_that_cannot_be_loaded_is_told_when_it_is_checked(tmp_path: Path) -> None:
    spec = settings(tmp_path, tmp_path, tmp_path / "none").teacher_encoder
    with pytest.raises(InputError, match=r"no such folder"):
        spec.check("teacher")


@pytest.mark.parametrize(
    ("given", "before"),
    [
        ({}, (None, None, None)),
        ({"prompt": "p "}, ("p ", "p ", "p ")),
        ({"query_prompt": "q "}, (None, "q ", None)),
        ({"document_prompt": "d "}, (None, None, "d ")),
        ({"query_prompt": "q ", "document_prompt": ""}, (None, "q ", "")),
        ({"prompt": "p ", "query_prompt": "q ", "document_prompt": "d "}, ("p ", "q ", "d ")),
        ({"prompt": "p ", "query_prompt": ""}, ("p ", "", "p ")),
    ],
)
def test_what_is_put_before_a_text_by_its_role(given: dict[str, str], before: tuple[str | None, ...]) -> None:
    spec = EncoderSpec("e", **given)  # type: ignore[arg-type]
    assert tuple(spec.prompt_before(role) for role in (PLAIN, QUERY, DOCUMENT)) == before


# --- Roles of rows


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_text_has_a_row_for_each_role(data: Path, tmp_path: Path, on_disk: bool) -> None:
    plain, store = folder_corpus(data, Limits()), ArtifactStore(tmp_path)
    if on_disk:
        plain = replace(plain, sentences=sentences_artifact(plain.sentences, plain.sentences_fingerprint, store))
    corpus = with_roles(plain, store)
    count = len(plain.sentences)
    assert list(corpus.sentences)[:count] == list(plain.sentences) and len(corpus.sentences) == count + 2
    assert corpus.roles_N is not None and corpus.roles_N[count:].tolist() == [QUERY, DOCUMENT]
    [old], [new] = plain.retrieval, corpus.retrieval
    for columns, role in (((old.queries, new.queries), QUERY), ((old.documents, new.documents), DOCUMENT)):
        assert [plain.sentences[i] for i in columns[0]] == [corpus.sentences[i] for i in columns[1]]
        assert set(corpus.roles_N[columns[1]].tolist()) == {role}
    for rows in (corpus.train, corpus.pairs_P2, corpus.sts[0].left_P, corpus.sts[0].right_P):
        assert set(corpus.roles_N[rows].ravel().tolist()) == {PLAIN}
    assert corpus.sentences_fingerprint != plain.sentences_fingerprint
    assert corpus.fingerprint == with_roles(plain, store).fingerprint


# --- Preparation, training targets, exported students


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, data: Path, encoder: Path) -> tuple[RunSettings, Corpus, Prepared]:
    """A corpus that was prepared with both prompts by name, in this process."""
    root = tmp_path_factory.mktemp("prompts-made")
    own = settings(root, data, encoder, **BOTH)
    quiet = Console(quiet=True)
    corpus = load_corpus(own, NO_REQUIREMENTS, quiet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "CorpusEncoding", functools.partial(stage.CorpusEncoding, in_process=True))
        inputs = prepare_corpus(own, corpus, Requirements(students=(None,)), quiet)
    (root / "prepared").mkdir()
    inputs.save(root / "prepared")
    return own, corpus, load_prepared(root / "prepared")


def roles_with_text(corpus: Corpus, before: dict[int, str]) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Some rows of every role, and their texts with what is put before them."""
    assert corpus.roles_N is not None
    rows = np.concatenate([np.flatnonzero(corpus.roles_N == role)[-6:] for role in (PLAIN, QUERY, DOCUMENT)])
    return rows, [before[int(corpus.roles_N[row])] + corpus.sentences[int(row)] for row in rows]


def test_teacher_and_student_read_each_text_by_its_role(made: tuple[RunSettings, Corpus, Prepared]) -> None:
    own, corpus, prepared = made
    rows, texts = roles_with_text(corpus, {PLAIN: "", QUERY: ASKED, DOCUMENT: SEARCHED})
    model = EncoderSpec(own.teacher).load()
    np.testing.assert_allclose(prepared.vectors.take(rows), encode(model, texts), atol=1e-3)
    assert prepared.student_prompts == Prompts("", ASKED, SEARCHED)
    assert prepared.tokens is not None
    assert [prepared.tokens[int(row)].tolist() for row in rows] == [
        model.tokenizer(text)["input_ids"] for text in texts
    ]
    config = run_config(own, corpus)
    assert config["student_prompts"] == {"plain": "", "query": ASKED, "document": SEARCHED}


@pytest.mark.parametrize(("name", "params"), [("pca", {"output_dim": 8}), ("mse", {"output_dim": 32, "epochs": 0.5})])
def test_an_exported_student_reads_as_it_was_made(
    made: tuple[RunSettings, Corpus, Prepared], tmp_path: Path, name: str, params: dict[str, Any]
) -> None:
    from sentence_transformers import SentenceTransformer

    _, corpus, prepared = made
    if name == "mse":
        params = {**params, "lr": 0.001, "batch_size": 16}
    method = build_method(name, params, prepared, 0, "cpu")
    rows = {role: np.flatnonzero(corpus.roles_N == role)[-5:] for role in (PLAIN, QUERY, DOCUMENT)}
    expected = {role: method.embed(own) for role, own in rows.items()}
    method.export(tmp_path / "student")
    student = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    for role, read in ((PLAIN, student.encode), (QUERY, student.encode_query), (DOCUMENT, student.encode_document)):
        np.testing.assert_allclose(read([corpus.sentences[int(i)] for i in rows[role]]), expected[role], atol=1e-3)


def test_a_students_own_prompt_of_the_name_goes_before_the_teachers_text(
    tmp_path: Path, data: Path, encoder: Path, encoder_folder: Path
) -> None:
    named = settings(tmp_path, data, encoder, **BOTH, student=str(encoder_folder))
    assert Prompts.of(named.student_reading(named.student)) == Prompts("", ASKED, SEARCHED)  # it has none of its own
    other = make_encoder(tmp_path / "other", layers=1, prompts=True)
    config = json.loads((other / "config_sentence_transformers.json").read_text())
    config["prompts"]["query"] = "can you "
    (other / "config_sentence_transformers.json").write_text(json.dumps(config))
    both = settings(tmp_path, data, encoder, prompt=(*BOTH["prompt"], "plain "), student=str(other))
    assert Prompts.of(both.student_reading(both.student)) == Prompts("plain ", "can you ", SEARCHED)
    check_encoders(both)
    check_student_encoder(both, both.student)


# --- Evaluation, records, cards


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_and_an_evaluation_of_its_student_give_the_same(
    tmp_path: Path, data: Path, encoder: Path, cluster: None
) -> None:
    given = settings(tmp_path, data, encoder, **BOTH, name="s").model_dump()
    space = tmp_path / "pca.yaml"
    space.write_text(
        "method: pca\nbudget: {trials: 1, steps: 1, confirm: {seeds: 1}}\nparameters: {}\nfixed: {output_dim: 8}\n"
    )
    sweep(SweepSettings(**given, method="pca", space=space, trials=1), Console(quiet=True))
    run = tmp_path / "runs" / "s"
    records = [r for r in read_records(run / "scores.jsonl") if isinstance(r, ScoreRecord)]
    assert {json.dumps(r.prompts) for r in records} == {json.dumps({"query": ASKED, "document": SEARCHED, "text": ""})}
    [student] = [r for r in records if r.role == "student"]
    export([run], tmp_path / "out", NO_LIMIT, student=student.record_id)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f'"{SEARCHED}"' in card and "encode_query(" in card and "encode_document(" in card

    def evaluated(name: str, **prompts: Any) -> ScoreRecord:
        own = EvaluateSettings(
            model=(str(run / student.model),),
            data=str(data),
            tasks=("sts", "retrieval"),
            cost=False,
            **{"store": tmp_path / "store", "runs": tmp_path / "runs"},
            **prompts,
        ).but(name=name)
        evaluate(own, Console(quiet=True))
        rows = [r for r in read_records(tmp_path / "runs" / name / "scores.jsonl") if isinstance(r, ScoreRecord)]
        return rows[-1]

    def values(record: ScoreRecord) -> dict[tuple[str, ...], float]:
        return {(s.task, s.set, s.split, s.metric, s.variant): s.value for s in record.scores}

    own, same = values(student), evaluated("e")
    assert same.prompts == student.prompts
    # Vectors are stored in half precision: one pair of 40 may change its rank.
    assert {key: values(same)[key] for key in own} == pytest.approx(own, abs=0.2)
    alike = evaluated("e", prompt=("query=", "document="))  # beside it, under the same name: the data are the same
    assert set(alike.prompts.values()) == {""} and alike.corpus_fingerprint == same.corpus_fingerprint
    retrieval = [key for key in own if key[0] == "retrieval"]
    assert any(abs(values(alike)[key] - own[key]) > 0.5 for key in retrieval)
    assert {k: v for k, v in values(alike).items() if k[0] == "sts"} == pytest.approx(
        {k: v for k, v in own.items() if k[0] == "sts"}, abs=0.2
    )  # text that is neither has no prompt in both


def test_the_teachers_retrieval_is_that_of_sentence_transformers(tmp_path: Path, data: Path, encoder: Path) -> None:
    """By hand: the rank of each query's document, with the names that the encoder has."""
    from sentence_transformers import SentenceTransformer

    own = EvaluateSettings(
        model=(str(encoder),), data=str(data), tasks=("retrieval",), cost=False, store=tmp_path / "store",
        runs=tmp_path / "runs", name="e", **BOTH,
    )  # fmt: skip
    evaluate(own, Console(quiet=True))
    [record] = read_records(tmp_path / "runs" / "e" / "scores.jsonl")
    assert isinstance(record, ScoreRecord) and record.hyperparameters["document_prompt"] == SEARCHED
    [found] = [s.value for s in record.scores if s.metric == "mrr@10"]
    corpus = folder_corpus(data, Limits())
    [task] = corpus.retrieval
    model = SentenceTransformer(str(encoder), device="cpu")
    asked = model.encode([ASKED + corpus.sentences[i] for i in task.queries])
    searched = model.encode([SEARCHED + corpus.sentences[i] for i in task.documents])
    order = np.argsort(-(asked @ searched.T), axis=1)
    rank = np.array(
        [np.flatnonzero(np.isin(row, relevant))[0] for row, relevant in zip(order, task.relevant, strict=True)]
    )
    assert found == pytest.approx(100 * np.mean(np.where(rank < 10, 1 / (rank + 1), 0)), abs=1e-6)
