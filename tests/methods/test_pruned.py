"""Students with the tokens of the training sentences alone: they read these as before, are smaller, and load without us."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architectures import make_architecture
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel

from distilbench.commands.run_folder import check_student_encoder
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode, token_ids
from distilbench.encoders.student import StudentSpec, describe_student
from distilbench.errors import InputError
from distilbench.prepare.layer_ranking import FILE
from distilbench.prepare.prepared import Artifacts, Prepared, StudentArtifacts
from distilbench.prepare.pruned_students import pruned_encoder, training_rows
from distilbench.prepare.stage import prepare_student
from distilbench.prepare.static_start import load_static_start
from distilbench.prepare.tokens import load_tokens
from distilbench.settings.run import RunSettings
from distilbench.storage.store import ArtifactStore
from distilbench.training.loop import Trainer

FEW = 6
"""Training sentences, which use few of the words."""


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    whole = folder_corpus(data_folder, Limits(), Requirements(triplets=True))
    nothing = np.empty(0, dtype=np.int64)
    return replace(whole, train=whole.train[:FEW], pairs_P2=nothing.reshape(0, 2), triplets_T3=whole.triplets_T3[:1])


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    return ArtifactStore(tmp_path_factory.mktemp("pruned") / "store")


@pytest.fixture
def student(prepared: Prepared, corpus: Corpus, room: ArtifactStore) -> Callable[..., Prepared]:
    """What a student of this name is trained from."""

    def made(name: str, teacher: EncoderSpec = prepared.teacher) -> Prepared:
        settings = RunSettings(store=room.root, teacher=teacher.name)
        artifacts = Artifacts(corpus, teacher, prepared.vectors, Path(), StudentArtifacts(name))
        inputs = prepare_student(settings, name, artifacts)
        return replace(
            prepared,
            student=inputs.student,
            pooling=inputs.pooling,
            tokens=load_tokens(inputs.tokens),
            static=load_static_start(inputs.static) if inputs.static else None,
        )

    return made


def test_what_some_method_may_train_on(corpus: Corpus) -> None:
    rows = training_rows(corpus)
    assert set(rows) == {*corpus.train, *corpus.triplets_T3.reshape(-1)} and (np.diff(rows) > 0).all()


@pytest.mark.parametrize("name", ["static", "layers:0,2", "teacher"])
def test_it_starts_as_the_whole_one_and_its_export_is_smaller(
    name: str, student: Callable[..., Prepared], corpus: Corpus, build: Callable[..., Any], tmp_path: Path
) -> None:
    rows, embedded, models, sizes = training_rows(corpus), [], [], []
    for vocabulary in ("", ":corpus"):
        on = student(name + vocabulary)
        method = build("hpd", on=on, sif=0.0).eval()
        if name == "static":  # the mean of all tokens, which is taken away, is of other tokens
            vectors_VD = on.static.vectors_VD
            method.static.start(np.array(vectors_VD @ on.pca.axes_DD[:, :8], dtype=np.float32))
        embedded.append(method.embed(rows))
        method.export(tmp_path / f"student{vocabulary}")
        models.append(SentenceTransformer(str(tmp_path / f"student{vocabulary}"), device="cpu"))
        sizes.append(sum(p.stat().st_size for p in (tmp_path / f"student{vocabulary}").rglob("*") if p.is_file()))
    np.testing.assert_allclose(*embedded, atol=1e-5)
    assert sizes[1] < sizes[0]
    texts = [corpus.sentences[int(row)] for row in rows]
    for model in models:
        np.testing.assert_allclose(encode(model, texts), embedded[0], atol=1e-5)
    assert len(models[1].tokenizer.get_vocab()) < len(models[0].tokenizer.get_vocab())
    # A word that the text does not have is read in pieces.
    other = models[1].encode(["the zzxq of nowhere"])
    assert np.isfinite(other).all() and np.abs(other).max() > 0


def test_it_is_trained_and_reads_all_sentences_as_its_export_does(
    student: Callable[..., Prepared], corpus: Corpus, build: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("static", "layers:0,2"):
        method = build("hpd", on=student(f"{name}:corpus"))
        Trainer(method, seed=0, budget=3).train_until(3)
        embedded_Nd = method.eval().embed(np.arange(40))
        method.export(tmp_path / name)
        model = SentenceTransformer(str(tmp_path / name), device="cpu")
        np.testing.assert_allclose(encode(model, list(corpus.sentences[:40])), embedded_Nd, atol=1e-5)


def test_the_layers_of_students_with_and_without_all_tokens_are_ranked_once(
    student: Callable[..., Prepared], room: ArtifactStore
) -> None:
    few, whole = student("auto:2:corpus"), student("auto:2")
    assert few.student.partition("@")[0] == whole.student, "the same layers"
    rankings = [json.loads(file.read_text()) for file in room.root.glob(f"layers-*/{FILE}")]
    assert [r["student"] for r in rankings if r["depth"] == 2] == ["auto:2"]


def test_words_that_join_start_from_the_teachers_vectors_and_load_without_us(
    student: Callable[..., Prepared], corpus: Corpus, build: Callable[..., Any], encoder_folder: Path, tmp_path: Path
) -> None:
    texts = [corpus.sentences[int(row)] for row in training_rows(corpus)]
    cut = sorted({word for text in texts for word in text.split() if word.isalpha() and len(word) > 3})[:5]
    teacher = EncoderSpec(str(shutil.copytree(encoder_folder, tmp_path / "teacher")))
    file = tmp_path / "teacher" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    for word in cut:  # the first letter and the rest
        vocab[f"##{word[1:]}"] = vocab.pop(word)
    file.write_text(json.dumps(content))
    for name in ("static:+1k", "static:corpus+1k"):
        on = student(name, teacher)
        reader = Tokenizer.from_file(str(on.static.tokenizer))
        place_W = [reader.token_to_id(word) for word in cut]
        assert len(cut) == 5 and [reader.encode(word, add_special_tokens=False).ids for word in cut] == [
            [place] for place in place_W
        ]
        assert len(on.static.vectors_VD) == reader.get_vocab_size() and min(place_W) == reader.get_vocab_size() - 5
        np.testing.assert_allclose(on.static.vectors_VD[place_W], encode(teacher.load(), cut), atol=1e-5)
        assert (reader.token_to_id(f"##{cut[0][1:]}") is None) == ("corpus" in name), "no word is read with it now"
        method = build("hpd", on=on)
        Trainer(method, seed=0, budget=3).train_until(3)
        embedded_Nd = method.eval().embed(np.arange(40))
        method.export(tmp_path / name)
        model = SentenceTransformer(str(tmp_path / name), device="cpu")
        sentences = list(corpus.sentences[:40])
        np.testing.assert_allclose(model.encode(sentences), embedded_Nd, atol=1e-5)
        np.testing.assert_allclose(encode(model, sentences), embedded_Nd, atol=1e-5)


def test_its_start_says_so(student: Callable[..., Prepared], prepared: Prepared) -> None:
    on = student("layers:0,2:corpus")
    title = prepared.teacher.title
    assert describe_student(on.student, on.teacher) == f"{title}-pruned layers:0,2"
    named = [str(StudentSpec.parse(name).made_of("F")) for name in ("auto:2", "half@X", "teacher", "X")]
    assert named == ["auto:2@F", "half@F", "F", "F"]


@pytest.mark.parametrize("kind", ["roberta", "mpnet", "distilbert", "electra", "modernbert", "qwen3"])
def test_every_architecture_reads_the_text_as_before(
    kind: str, encoder_folder: Path, corpus: Corpus, room: ArtifactStore, tmp_path: Path
) -> None:
    from distilbench.prepare.tokens import tokens_artifact

    whole = EncoderSpec(str(make_architecture(kind, encoder_folder, tmp_path / kind)))
    rows = training_rows(corpus)
    folder = pruned_encoder(whole, tokens_artifact(corpus.text, whole, room), corpus, ["zebra: "], room)
    texts = [corpus.sentences[int(row)] for row in rows]
    one, other = whole.load(), EncoderSpec(str(folder)).load()
    assert other[0].model.get_input_embeddings().num_embeddings == other[0].model.config.vocab_size < len(one.tokenizer)
    names = [
        model.tokenizer.convert_ids_to_tokens(ids[0]) for model in (one, other) if (ids := token_ids(model, texts))
    ]
    assert names[0] == names[1]
    padded = [model[0](model.tokenize(texts))["token_embeddings"] for model in (one, other)]
    np.testing.assert_allclose(*(states.detach().numpy() for states in padded), atol=1e-5)
    pieces = other.tokenizer.tokenize("zebra")
    assert one.tokenizer.tokenize("zebra") == pieces, "the prompt's tokens stay"


def test_what_cannot_lose_tokens_is_refused_before_anything_is_made(encoder_folder: Path, tmp_path: Path) -> None:
    def check(teacher: Path, student: str) -> None:
        check_student_encoder(RunSettings(store=tmp_path, teacher=str(teacher)), student)

    check(encoder_folder, "layers:0:corpus")
    check(encoder_folder, "static:corpus+2k")
    slow = make_architecture("bert", encoder_folder, tmp_path / "slow")
    Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(str(slow / "tokenizer.json"))
    with pytest.raises(InputError, match=r"^--student static:corpus: teacher .* WordLevel"):
        check(slow, "static:corpus")
    Tokenizer(BPE()).save(str(slow / "tokenizer.json"))
    check(slow, "static:corpus")
    with pytest.raises(InputError, match=r"^--student static:\+2k: teacher .* BPE; .* WordPiece$"):
        check(slow, "static:+2k")
    (slow / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"^--student layers:0:corpus: teacher .* tokenizer.json"):
        check(slow, "layers:0:corpus")
    check(slow, "layers:0")
