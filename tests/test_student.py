"""Where a student starts: the right layers of the teacher, or another encoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from distilbench.encoder import EncoderSpec, encode
from distilbench.errors import InputError
from distilbench.student import check_student, describe_student, load_student, student_source

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
    [("half", [1, 3]), ("layers:0,2", [0, 2]), ("layers:3", [3]), ("layers:0,1,2,3", [0, 1, 2, 3])],
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


def test_dropped_layers_change_the_vectors_and_all_layers_do_not(teacher: EncoderSpec) -> None:
    vectors = {
        student: encode(load_student(student, teacher, "cpu"), SENTENCES)
        for student in ("half", "layers:0,2", "layers:0,1,2,3")
    }
    whole = teacher.load()
    mean_pooled = encode(SentenceTransformer(modules=list(whole)[:2], device="cpu"), SENTENCES)
    np.testing.assert_allclose(vectors["layers:0,1,2,3"], mean_pooled, atol=1e-5)
    assert np.abs(vectors["half"] - mean_pooled).max() > 1e-2
    assert np.abs(vectors["half"] - vectors["layers:0,2"]).max() > 1e-2


def test_a_student_of_dropped_layers_survives_saving(teacher: EncoderSpec, tmp_path: Path) -> None:
    model = load_student("half", teacher, "cpu")
    model.save(str(tmp_path / "student"), create_model_card=False)
    again = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    np.testing.assert_allclose(again.encode(SENTENCES), encode(model, SENTENCES), atol=1e-5)


def test_two_students_share_no_parameters(teacher: EncoderSpec) -> None:
    one, two = (load_student("half", teacher, "cpu") for _ in range(2))
    with torch.no_grad():
        next(one.parameters()).add_(1)
    assert not same(one, two)


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


def test_half_of_one_layer_is_none(teacher: EncoderSpec, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(teacher.name, tmp_path / "one"))
    (path,) = (p for p in folder.rglob("config.json") if p.with_name("model.safetensors").exists())
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 1}))
    with pytest.raises(InputError, match="--student half"):
        check_student("half", EncoderSpec(str(folder)))


def test_a_teacher_whose_layers_cannot_be_told_apart(encoder_folder: Path, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

    tokenizer = AutoTokenizer.from_pretrained(str(encoder_folder))
    tokenizer.save_pretrained(tmp_path / "raw")
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=16, n_layers=2, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(tmp_path / "raw")
    model = SentenceTransformer(modules=[Transformer(str(tmp_path / "raw")), Pooling(16)], device="cpu")
    model.save(str(tmp_path / "distilbert"), create_model_card=False)
    teacher = EncoderSpec(str(tmp_path / "distilbert"))
    for check in (lambda: check_student("half", teacher), lambda: load_student("half", teacher, "cpu")):
        with pytest.raises(InputError, match=r"--student half: .*no encoder\.layer list"):
            check()


@pytest.mark.parametrize(
    ("student", "title"), [("half", "mpnet half"), ("layers:0,2", "mpnet layers:0,2"), ("/models/small", "small")]
)
def test_how_tables_name_the_start(student: str, title: str) -> None:
    assert describe_student(student, EncoderSpec("/models/mpnet")) == title
