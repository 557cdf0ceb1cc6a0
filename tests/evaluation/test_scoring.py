"""Rows of one encoder: their identity, their widths and quantisations, and what a job hands over to be scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import scored_rows

from distilbench.choices import EVERY_TASK
from distilbench.data import sampling
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.sampling import calibration_rows
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import Code
from distilbench.evaluation.sts import spearman
from distilbench.methods import get_method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.records import Score
from distilbench.trials import scoring
from distilbench.trials.rung_training import build_method
from distilbench.trials.scoring import (
    Candidate,
    Encoded,
    Scoring,
    across,
    count_parameters,
    encode_method,
    encode_teacher,
    parameters_of,
    remove_encoded,
    score_candidate,
)

MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}


@pytest.fixture(scope="module")
def prepared(prepared_folder: Path) -> Prepared:
    return load_prepared(prepared_folder)


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    """That of `prepared`."""
    return folder_corpus(data_folder, Limits(), Requirements(triplets=True))


def params(method: str, **given: Any) -> dict[str, Any]:
    return get_method(method).params_type.model_validate(given).model_dump(mode="json", by_alias=True)


STUDENT = Candidate("r", "student", "mcr2", 8, params("mcr2", **MCR2), 0, trial=3)
TASK_SCORE = Score(task="pairs", set="MRPC", split="dev", metric="f1", variant="all", value=70.0, n=9)


# Identity


def test_whatever_a_number_depends_on_changes_the_id(prepared: Prepared, corpus: Corpus) -> None:
    candidates = [
        STUDENT,
        replace(STUDENT, run="s"),
        replace(STUDENT, seed=1),
        replace(STUDENT, trial=4),
        replace(STUDENT, trial=None, configuration="A"),
        replace(STUDENT, trial=None, configuration="B"),
        replace(STUDENT, params={**STUDENT.params, "lr": 0.004}),
        Candidate("r", "baseline", "pca", 8, {"output_dim": 8}, 0),
        Candidate("r", "baseline", "random_projection", 8, {"output_dim": 8}, 0),
        Candidate("r", "teacher", "teacher", 8, {}, 0),
    ]
    ids = [c.identity(prepared, corpus, 8, "float32")["record_id"] for c in candidates]
    ids += [STUDENT.identity(prepared, corpus, 4, "float32")["record_id"]]
    ids += [STUDENT.identity(prepared, corpus, 8, kind)["record_id"] for kind in ("int8", "binary")]
    other_corpus = replace(corpus, sts=corpus.sts[1:])
    other_vectors = replace(prepared, vectors=replace(prepared.vectors, folder=Path("embeddings-of-another-teacher")))
    ids += [STUDENT.identity(prepared, other_corpus, 8, "float32")["record_id"]]
    ids += [STUDENT.identity(prepared, corpus, 8, "float32", tasks)["record_id"] for tasks in (("sts",), EVERY_TASK)]
    assert ids[0] == STUDENT.identity(prepared, corpus, 8, "float32", ("retrieval", "sts"))["record_id"]
    ids += [STUDENT.identity(other_vectors, corpus, 8, "float32")["record_id"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("candidate", "label", "start"),
    [
        (Candidate("r", "teacher", "teacher", 32, {}, 0), "tiny d=8", "teacher (frozen)"),
        (Candidate("r", "baseline", "pca", 8, {"output_dim": 8}, 0), "PCA d=8", "teacher (frozen)"),
        (STUDENT, "MCR2 (duplicates) d=8", "teacher (frozen)"),
        (replace(STUDENT, params={**STUDENT.params, "pairs": "noise"}), "MCR2 (noise) d=8", "teacher (frozen)"),
        (
            Candidate("r", "student", "hpd", 8, params("hpd", output_dim=8, lr=0.1, batch_size=16), 0),
            "HPD d=8",
            "tiny layers:0,2",
        ),
        (
            Candidate(
                "r", "student", "hpd", 8, params("hpd", output_dim=8, lr=0.1, batch_size=16, student="auto:1"), 0
            ),
            "HPD (auto:1) d=8",
            "tiny layers:3",
        ),
    ],
)
def test_labels_and_starts(prepared: Prepared, corpus: Corpus, candidate: Candidate, label: str, start: str) -> None:
    named = replace(prepared, students={"auto:1": replace(prepared, student="layers:3")})
    found = candidate.identity(named, corpus, 8, "float32")
    assert (found["label"], found["start"], found["dim"]) == (label, start, 8)


# What a job hands over


def test_encoded_vectors_come_back_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    made = Encoded(
        rng.standard_normal((7, 4), dtype=np.float32),
        rng.standard_normal((5, 4), dtype=np.float32),
        "students/a",
        [TASK_SCORE],
    )
    assert Encoded.load(tmp_path) is None
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(scoring, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            made.save(tmp_path)
    assert Encoded.load(tmp_path) is None
    made.save(tmp_path)
    found = Encoded.load(tmp_path)
    assert found is not None
    assert np.array_equal(found.vectors_ND, made.vectors_ND)
    assert np.array_equal(found.calibration_ND, made.calibration_ND)
    assert (found.model, found.task_scores) == ("students/a", [TASK_SCORE])
    (tmp_path / "rung-1.safetensors").touch()
    remove_encoded(tmp_path)
    remove_encoded(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["rung-1.safetensors"]
    assert Encoded.load(tmp_path) is None


def test_a_method_is_encoded_with_its_task(prepared: Prepared, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    method = build_method("mcr2", STUDENT.params, prepared, 0, "cpu")
    monkeypatch.setattr(
        type(method), "task_scores", lambda self, split: [TASK_SCORE.model_copy(update={"split": split})]
    )
    encoded = encode_method(method, corpus, "students/a")
    assert np.array_equal(encoded.vectors_ND, method.embed(corpus.scored_rows))
    assert np.array_equal(encoded.calibration_ND, method.embed(calibration_rows(prepared.train)))
    assert [s.split for s in encoded.task_scores] == ["dev", "test"] and encoded.model == "students/a"


def test_quantisers_are_calibrated_on_training_sentences_alone(
    prepared: Prepared, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = calibration_rows(prepared.train)
    assert np.array_equal(rows, prepared.train)
    assert not np.isin(rows, corpus.scored_rows).any()
    monkeypatch.setattr(sampling, "CALIBRATION", 10)
    few = calibration_rows(prepared.train)
    assert len(set(few)) == 10 and set(few) <= set(rows) and {rows[0], rows[-1]} <= set(few)


# Scoring


def score(
    prepared: Prepared, corpus: Corpus, run: Path, encoded: Encoded, widths: list[int], kinds: list[Any]
) -> dict[tuple[int, str], Any]:
    scored = list(score_candidate(STUDENT, encoded, Scoring(run, prepared, corpus), widths, kinds))
    for record, predictions in scored:  # what is kept is what was scored
        own = ("sts", "test", "spearman", "all")
        test = [s for s in record.scores if (s.task, s.split, s.metric, s.variant) == own]
        assert {"STSB", "STS12"} == {s.set for s in test}
        for s in test:
            items = predictions.test[f"sts/{s.set}/spearman"]
            assert spearman(items.value_P, items.gold_P) == pytest.approx(s.value, abs=1e-9)
    records = [record for record, _ in scored]
    assert [(r.dim, r.quantisation) for r in records] == [(w, k) for w in widths for k in ("float32", *kinds)]
    return {(r.dim, r.quantisation): r for r in records}


@pytest.mark.parametrize("widths", [[8], [8, 4, 2]])
def test_a_row_for_each_width_and_quantisation(
    tmp_path: Path, prepared: Prepared, corpus: Corpus, widths: list[int]
) -> None:
    teacher = encode_teacher(prepared, corpus)
    parts = teacher.vectors_ND[:, :8], teacher.calibration_ND[:, :8]
    encoded = Encoded(*parts, "students/a", [TASK_SCORE])
    found = score(prepared, corpus, tmp_path, encoded, widths, ["int8", "binary"])
    rows = corpus.scored_rows
    for width in widths:
        whole = np.full((len(corpus.sentences), width), np.nan, dtype=np.float32)  # what no set asks about is not read
        whole[rows] = encoded.vectors_ND[:, :width]
        folder = tmp_path / "students" / "a" / ("" if widths == [8] else f"d{width}")
        plain = found[width, "float32"]
        own = [TASK_SCORE] if width == 8 else []
        [expected] = scored_rows(whole, corpus)
        assert plain.scores == [*expected.scores, *own]
        assert {s.metric for s in plain.scores if s.task == "retrieval"} == {
            "mrr@10", "ndcg@10", "map@100", "recall@1", "recall@10",
        }  # fmt: skip
        assert all(s.low is not None and s.high is not None for s in expected.scores)
        assert any("recall@100 is left out: with 60 documents" in note for note in plain.notes)
        assert [(i.split, i.kind) for i in plain.indexes] == [("dev", "flat")]  # no test set, so no lists
        assert plain.bytes_per_vector == 4 * width
        for kind, size in (("int8", width), ("binary", -(-width // 8))):
            record = found[width, kind]
            saved = Code.load(kind, folder, width)  # what is saved with the student is what was scored
            assert record.scores == scored_rows(whole, corpus, [saved])[1].scores
            assert [i.kind for i in record.indexes] == [kind] and record.bytes_per_vector == size
    for record in found.values():
        assert (record.parameters, record.model, record.trial, record.seed) == (0, "students/a", 3, 0)
        assert record.provenance.versions
    assert len({r.record_id for r in found.values()}) == 3 * len(widths)


def test_vectors_without_a_direction_are_refused(tmp_path: Path, prepared: Prepared, corpus: Corpus) -> None:
    teacher = encode_teacher(prepared, corpus)
    rows = corpus.scored_rows
    [quora] = corpus.retrieval
    pair, document = corpus.sts[0].left_P[3], quora.documents[7]
    for bad, message in (
        (pair, f"encoder 'MCR2 .*': the vector of {corpus.sentences[pair]!r} is zero or not finite"),
        (document, "quora .dev.: document 7: norm 0, expected finite float32 numbers"),
    ):
        broken = np.array(teacher.vectors_ND)
        broken[np.searchsorted(rows, bad)] = 0
        with pytest.raises(InputError, match=message):
            score(prepared, corpus, tmp_path, replace(teacher, vectors_ND=broken), [32], [])
    broken = np.array(teacher.vectors_ND)
    broken[np.searchsorted(rows, pair)] = np.inf
    with pytest.raises(InputError, match=rf"the vector of row {pair} is"):  # the data forbid showing text
        score(prepared, replace(corpus, show=False), tmp_path, replace(teacher, vectors_ND=broken), [32], [])
    broken = np.array(teacher.vectors_ND)
    broken[np.searchsorted(rows, pair), :8] = 0  # a direction at 32 dimensions, none at 8
    with pytest.raises(InputError, match=r"is zero or not finite"):
        score(prepared, corpus, tmp_path, replace(teacher, vectors_ND=broken), [32, 8], [])
    broken = np.array(teacher.calibration_ND)
    broken[5] = np.nan
    with pytest.raises(InputError, match=r"is zero or not finite"):
        score(prepared, corpus, tmp_path, replace(teacher, calibration_ND=broken), [32], ["int8"])


# Parameters


def test_parameters_of_a_row_are_those_of_the_whole_encoder(
    tmp_path: Path, prepared: Prepared, corpus: Corpus, encoder_folder: Path
) -> None:
    teacher = count_parameters(encoder_folder)
    assert parameters_of(prepared, "teacher", 32, None) == teacher
    assert parameters_of(prepared, "pca", 8, None) == teacher + 32 * 8
    build_method("pca", {"output_dim": 8}, prepared, 0, "cpu").export(tmp_path / "pca")
    saved = parameters_of(prepared, "pca", 8, tmp_path / "pca")
    assert saved == teacher + 32 * 8 + 8
    Code.calibrate("int8", np.random.default_rng(0).standard_normal((9, 8))).save(tmp_path / "pca")
    assert parameters_of(prepared, "pca", 8, tmp_path / "pca") == saved  # a quantiser is no part of the encoder


# Queries by a student, documents by the teacher


def test_a_student_of_the_teachers_space_searches_the_teachers_documents(
    prepared: Prepared, corpus: Corpus, tmp_path: Path
) -> None:
    space = build_method("hpd", {"output_dim": 8, "lr": 0.01, "batch_size": 16}, prepared, 0, "cpu").shared_space()
    documents = encode_teacher(prepared, corpus)
    # The student whose queries are the targets themselves.
    perfect = replace(documents, vectors_ND=space.documents(documents.vectors_ND), space=space, model="students/a")
    perfect.save(tmp_path)
    again = Encoded.load(tmp_path)
    assert again is not None and again.space is not None
    setting = Scoring(tmp_path, prepared, corpus)
    student = Candidate("r", "student", "hpd", 8, params("hpd", output_dim=8, lr=0.01, batch_size=16), 0)
    found = across(student, setting)
    assert found is not None
    pair, widths = found
    assert widths == [8] and pair.documents == f"{prepared.teacher.title}, its PCA"
    records = [record for record, _ in score_candidate(pair, again, setting, widths, ["int8"])]
    pca = Candidate("r", "baseline", "pca", 8, {"output_dim": 8}, 0)
    encoded = replace(
        documents, vectors_ND=perfect.vectors_ND, calibration_ND=space.documents(documents.calibration_ND)
    )
    wanted = [record for record, _ in score_candidate(pca, encoded, setting, [8], ["int8"])]
    for made, own in zip(records, wanted, strict=True):
        assert made.documents == pair.documents and made.label.endswith("teacher's documents")
        scores = {(s.set, s.split, s.metric): s.value for s in made.scores}
        assert scores == {(s.set, s.split, s.metric): s.value for s in own.scores if s.task == "retrieval"}
        assert scores and {s.task for s in made.scores} == {"retrieval"}, "there is nothing else to score of a pair"
        assert [c.kind for c in made.indexes] == [c.kind for c in own.indexes]
    kept = scoring.space_folder(tmp_path, perfect.model)
    assert Code.load("int8", kept, 8).bytes_per_vector == 8 and not (tmp_path / "students").exists()
    remove_encoded(tmp_path)
    assert Encoded.load(tmp_path) is None and not (tmp_path / "space").exists() and kept.exists()
