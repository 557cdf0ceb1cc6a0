"""Where a student starts: the right layers of the teacher, or another encoder."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.student import (
    StudentSpec,
    aliases,
    check_student,
    describe_student,
    load_student,
    resolved_student,
    setting_for,
    student_layers,
    student_pooling,
    student_source,
    student_width,
    with_encoder,
)
from distilbench.errors import InputError
from distilbench.prepare.prepared import StudentArtifacts

SENTENCES = ["the dog runs in the park", "a cat", "how do i open the red door quickly today"]


@pytest.fixture(scope="module")
def teacher(encoder_folder: Path) -> EncoderSpec:
    return EncoderSpec(str(encoder_folder), prompt="how ", max_tokens=20)


def layers(model: SentenceTransformer) -> list[torch.nn.Module]:
    return list(model[0].model.encoder.layer)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("student", "kept"),
    [("layers:0,2", [0, 2]), ("layers:3", [3]), ("layers:0,1,2,3", [0, 1, 2, 3])],
)
def test_the_layers_asked_for_are_kept(teacher: EncoderSpec, student: str, kept: list[int]) -> None:
    check_student(student, teacher)
    whole, model = teacher.load(), load_student(student, teacher, "cpu")
    assert len(layers(model)) == model[0].model.config.num_hidden_layers == len(kept)
    for own, index in zip(layers(model), kept, strict=True):
        assert [same(own, layer) for layer in layers(whole)] == [i == index for i in range(4)]
    assert same(model[0].model.embeddings, whole[0].model.embeddings)
    assert model.max_seq_length == 20
    assert not model.training


def test_another_encoder_is_taken_whole_with_mean_pooling(teacher: EncoderSpec, encoder_folder: Path) -> None:
    student = str(encoder_folder)
    check_student(student, teacher)
    model = load_student(student, teacher, "cpu")
    assert len(layers(model)) == 4
    assert model[1].pooling_mode == "mean" and len(model) == 2  # the teacher's unit norm is not the student's
    assert model.max_seq_length == 20


def test_a_student_reads_sentences_without_a_prompt(teacher: EncoderSpec, encoder_folder: Path) -> None:
    for student in ("half", str(encoder_folder)):
        source = student_source(student, teacher)
        assert (source.name, source.prompt, source.max_tokens) == (teacher.name, "", 20)


@pytest.mark.parametrize(
    "student",
    [
        "layers:",
        "layers:a",
        "layers:0,,2",
        "layers:4",  # the teacher has 0 to 3
        "layers:0,-1",
        "layers:2,0",  # not rising
        "layers:1,1",
        "layers:0.5",
    ],
)
def test_layers_that_the_teacher_does_not_have(teacher: EncoderSpec, student: str) -> None:
    expected = rf"--student {student}: expected rising layer numbers from 0 to 3, such as layers:0,2,4"
    with pytest.raises(InputError, match=expected):
        check_student(student, teacher)
    with pytest.raises(InputError, match=expected):
        load_student(student, teacher, "cpu")


@pytest.mark.parametrize("student", ["/no/such/place", "whole", ""])
def test_an_encoder_that_is_not_there(teacher: EncoderSpec, student: str) -> None:
    with pytest.raises(InputError, match=rf"encoder '{student}': no such folder"):
        check_student(student, teacher)


def test_auto_is_what_a_ranking_chooses(teacher: EncoderSpec, narrow_encoder_folder: Path) -> None:
    assert resolved_student("auto:3", teacher, (0, 1, 3)) == "layers:0,1,3"
    assert resolved_student("auto:3", teacher) == "layers:0,2,3"  # to measure how long it takes
    assert [student_layers(s, teacher) for s in ("auto", "auto:1", "auto:4", "half", "layers:0,1,2")] == [2, 1, 4, 2, 3]
    other = f"auto:1@{narrow_encoder_folder}"
    assert resolved_student(other, teacher, (0,)) == f"layers:0@{narrow_encoder_folder}"
    assert (
        resolved_student("layers:1", teacher) == "layers:1"
        and resolved_student("/some/where", teacher) == "/some/where"
    )
    with pytest.raises(InputError):
        load_student("auto:2", teacher, "cpu")


def test_layers_of_another_encoder(teacher: EncoderSpec, encoder_folder: Path, tmp_path: Path, monkeypatch) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "at@home" / "other"))
    student = f"layers:0,2@{folder}"
    check_student(student, teacher)
    model = load_student(student, teacher, "cpu")
    assert [same(own, layer) for own, layer in zip(layers(model), layers(teacher.load())[::2], strict=True)] == [
        True
    ] * 2
    source = student_source(student, teacher)
    assert (source.name, source.prompt, source.max_tokens) == (str(folder), "", 20)
    assert describe_student(student, teacher) == "other layers:0,2" and student_width(student, teacher) == 32
    monkeypatch.chdir(folder.parent)
    for name, absolute in (("auto:2@other", f"auto:2@{folder}"), ("auto:2", "auto:2"), ("half@owner/name",) * 2):
        assert StudentArtifacts(name).described()["student"] == absolute
    named = [StudentSpec.parse(name).encoder for name in (student, "half", "x/y")]
    assert named == [str(folder), None, "x/y"]


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", "max"])
def test_a_student_pools_as_its_source(encoder_folder: Path, tmp_path: Path, mode: str) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / mode))
    [file] = folder.glob("*Pooling/config.json")
    old = {f"pooling_mode_{name}": False for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    flag = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "lasttoken": "lasttoken"}[mode]
    for written in ({"pooling_mode": mode}, {**old, f"pooling_mode_{flag}": True}):  # the second before version 6
        file.write_text(json.dumps({"embedding_dimension": 32, **written}))
        source = EncoderSpec(str(folder))
        assert student_pooling("half", source) == student_pooling(str(folder), EncoderSpec("x/y")) == mode
        student = load_student("layers:0,1,2,3", source, "cpu", mode)
        pooled = encode(SentenceTransformer(modules=list(source.load())[:2], device="cpu"), SENTENCES)
        np.testing.assert_allclose(encode(student, SENTENCES), pooled, atol=1e-5)


def test_joined_poolings_and_none_are_means(encoder_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "joined"))
    [file] = folder.glob("*Pooling/config.json")
    file.write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": ["mean", "cls"]}))
    assert student_pooling("half", EncoderSpec(str(folder))) == "mean"
    plain = EncoderSpec(str(encoder_folder.with_name("tiny-raw")))
    assert student_pooling("half", plain) == "mean"


def test_a_static_student_has_no_layers(teacher: EncoderSpec, encoder_folder: Path) -> None:
    check_student("static", teacher)
    assert StudentSpec.parse("static").encoder is None and resolved_student("static", teacher) == "static"
    assert student_width("static", teacher) == 32 and student_pooling("static", teacher) == "mean"
    assert describe_student("static", teacher) == f"{encoder_folder.name} tokens (static)"
    with pytest.raises(InputError, match="--student static: it has no layers"):
        student_layers("static", teacher)
    with pytest.raises(InputError, match="--student static: it has no transformer to load"):
        load_student("static", teacher, "cpu")


@pytest.mark.parametrize("student", ["static:+10", "static:+0k", "static:corpus+", "static:words"])
def test_a_static_student_of_no_vocabulary_is_named(student: str, teacher: EncoderSpec) -> None:
    with pytest.raises(InputError, match=rf"--student {re.escape(student)}: expected .*static:corpus\+10k"):
        check_student(student, teacher)


@pytest.mark.parametrize("start", ["static", "teacher", "half", "auto:2", "layers:0,2", "half@F", "auto:1@F", "F"])
def test_fewer_tokens_change_nothing_else_of_a_name(start: str, teacher: EncoderSpec, encoder_folder: Path) -> None:
    start = start.replace("F", str(encoder_folder))
    student = f"{start}:corpus"
    check_student(student, teacher)
    assert aliases(student) == (student, start) and aliases(start) == (start,)
    spec = StudentSpec.parse(student)
    assert str(spec) == student and spec.fewer_tokens and replace(spec, fewer_tokens=False) == StudentSpec.parse(start)
    for of in (student_source, student_width, student_pooling):
        assert of(student, teacher) == of(start, teacher)
    for of in (lambda name: StudentArtifacts(name).described()["student"], lambda name: with_encoder(name, str.upper)):
        assert of(student) == f"{of(start)}:corpus"
    assert resolved_student(student, teacher) == f"{resolved_student(start, teacher)}:corpus"
    if start != "static":
        assert not spec.made_of("PRUNED").fewer_tokens, "that encoder has fewer tokens itself"
        assert student_layers(student, teacher) == student_layers(start, teacher)
        assert describe_student(student, teacher) == describe_student(start, teacher)


def test_a_static_student_may_have_words_beside_its_tokens(teacher: EncoderSpec) -> None:
    for student, fewer in (("static:+20k", False), ("static:corpus+5k", True)):
        spec = StudentSpec.parse(student)
        assert str(spec) == student and spec.is_static and spec.fewer_tokens == fewer
        assert spec.words == (5 if fewer else 20) and aliases(student) == (student, "static")
        check_student(student, teacher)
    with pytest.raises(InputError, match=r"auto:2:\+20k.*static:\+20k"):
        check_student("auto:2:+20k", teacher)
    for folder in ("F:", "F:+0k", "F:+20", "F:corpus20k"):
        assert StudentSpec.parse(folder) == StudentSpec(None, folder)


def test_what_is_said_of_a_student_holds_with_fewer_tokens_unless_something_else_is_said() -> None:
    said = {"static": 1, "auto:1": 2, "auto:1:corpus": 3}
    asked = ("static", "static:corpus", "auto:1", "auto:1:corpus", "auto:2:corpus", "")
    assert [setting_for(student, said) for student in asked] == [1, 1, 2, 3, None, None]
    assert setting_for("static", None) is None
