"""Tokens that a student shares with its teacher: made once, and the teacher's vectors from them are those from its text."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from samples import make_encoder
from sentence_transformers import SentenceTransformer

from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.roles import with_roles
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare import encode as module
from distilbench.prepare import pool, stage
from distilbench.prepare.encode import CorpusEncoding
from distilbench.prepare.stage import prepare_corpus
from distilbench.prepare.tokens import load_tokens, tokens_artifact
from distilbench.settings.run import RunSettings
from distilbench.storage.store import ArtifactStore

# Of every length, long and short ones mixed; no two alike.
SENTENCES = tuple(f"{i} " + " ".join(["the dog runs in a park today"] * 9)[: 5 + 47 * i % 190] for i in range(80))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 32 sentences, without Ray."""
    monkeypatch.setitem(module.SHARD_ROWS, "cpu", 32)
    for where in (module, pool):
        monkeypatch.setattr(where, "run_pool", lambda task, shards, *_, **__: pool.run_in_process(task, shards, "test"))


def no_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "encode", lambda *_, **__: pytest.fail("the teacher read text"))


def every(vectors: Any) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.asarray(vectors.take(np.arange(vectors.rows)))


# --- Encoding


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("given", [{}, {"prompt": "how ", "max_tokens": 12}])
def test_vectors_from_tokens_are_those_from_text(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], bf16: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"bf16": True})
    spec, store, text = (
        EncoderSpec(str(encoder_folder), **given),
        ArtifactStore(tmp_path / "one"),
        CorpusText(SENTENCES, "k"),
    )
    how: dict[str, Any] = {"stored": "float32", "backend": "bf16" if bf16 else "torch", "in_process": True}
    from_text, _ = CorpusEncoding(spec, ArtifactStore(tmp_path / "two"), "test", **how).vectors(text)
    no_text(monkeypatch)
    encoding = CorpusEncoding(spec, store, "test", tokens=lambda: tokens_artifact(text, spec, store), **how)
    found, count = encoding.vectors(text)
    assert count == 80 and found.folder.name == from_text.folder.name
    np.testing.assert_array_equal(every(found), every(from_text))


def test_the_tokens_of_rows_are_views_of_each(encoder_folder: Path, tmp_path: Path) -> None:
    spec = EncoderSpec(str(encoder_folder))
    tokens = load_tokens(tokens_artifact(CorpusText(SENTENCES, "k"), spec, ArtifactStore(tmp_path)))
    for start, stop in ((0, 80), (32, 64), (79, 80)):
        found = tokens.between(start, stop)
        assert [row.tolist() for row in found] == [tokens[i].tolist() for i in range(start, stop)]


def test_a_vector_from_tokens_that_is_not_finite_names_its_sentence(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, store, text = EncoderSpec(str(encoder_folder)), ArtifactStore(tmp_path), CorpusText(SENTENCES, "k")
    real = module.encode_ids

    def broken(model: SentenceTransformer, ids: list[Any], **given: Any) -> Any:
        vectors = real(model, ids, **given)
        vectors[5:] = np.nan if len(ids) == 16 else vectors[5:]  # of the last shard, which begins at 64
        return vectors

    monkeypatch.setattr(module, "encode_ids", broken)
    encoding = CorpusEncoding(spec, store, "test", in_process=True, tokens=lambda: tokens_artifact(text, spec, store))
    with pytest.raises(InputError, match=re.escape(f"not finite for {SENTENCES[69]!r}")):
        encoding.vectors(text)


# --- Preparation


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    return folder_corpus(data_folder, Limits(), Requirements())


def settings(root: Path, teacher: Path, **given: Any) -> RunSettings:
    return RunSettings(
        **{"store": root / "store", "teacher": str(teacher), "student": "layers:0,2", "quantise": (), **given}
    )


def artifacts(root: Path, kind: str) -> list[Path]:
    return sorted((root / "store").glob(f"{kind}-*/manifest.json"))


def prepared(own: RunSettings, corpus: Corpus, students: tuple[str | None, ...] = (None,)) -> np.ndarray[Any, Any]:
    return every(prepare_corpus(own, corpus, Requirements(students=students), Console(quiet=True)).vectors)


def from_text(own: RunSettings, corpus: Corpus, root: Path) -> np.ndarray[Any, Any]:
    return every(
        CorpusEncoding(own.teacher_encoder, ArtifactStore(root), "test", in_process=True).vectors(corpus.text)[0]
    )


@pytest.mark.parametrize("students", [(None,), ("static", "layers:0"), ("auto:2@TEACHER",)])
def test_a_student_and_its_teacher_are_tokenised_once(
    corpus: Corpus,
    encoder_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    students: tuple[str | None, ...],
) -> None:
    own = settings(tmp_path, encoder_folder)
    copied = shutil.copytree(encoder_folder, tmp_path / "copy")
    named = tuple(name and name.replace("TEACHER", str(copied)) for name in students)
    direct = from_text(own, corpus, tmp_path / "direct")
    with monkeypatch.context() as patch:
        no_text(patch)
        np.testing.assert_array_equal(prepared(own, corpus, named), direct)
    assert len(artifacts(tmp_path, "tokens")) == len(students)  # a static student has tokens of its own
    monkeypatch.setattr(stage, "_shared_tokens", lambda *_: pytest.fail("tokens were wanted, where nothing is encoded"))
    np.testing.assert_array_equal(prepared(own, corpus, named), direct)


def test_prompts_of_both_are_read_in_shared_tokens(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = make_encoder(tmp_path / "prompted", layers=3, prompts=True)
    own = settings(tmp_path, teacher, prompt=("query=query", "document=passage"))
    read = with_roles(corpus, own.artifacts)
    direct = from_text(own, read, tmp_path / "direct")
    no_text(monkeypatch)
    np.testing.assert_array_equal(prepared(own, read), direct)
    assert len(artifacts(tmp_path, "tokens")) == 1


def test_a_teacher_whose_student_has_no_prompt_reads_text(corpus: Corpus, tmp_path: Path, encoder_folder: Path) -> None:
    own = settings(tmp_path, encoder_folder, prompt=("how ",))
    found = prepared(own, corpus)
    np.testing.assert_array_equal(found, from_text(own, corpus, tmp_path / "direct"))
    plain = from_text(settings(tmp_path, encoder_folder), corpus, tmp_path / "plain")
    assert np.abs(found - plain).max() > 1e-3 and len(artifacts(tmp_path, "tokens")) == 1


def test_a_teacher_with_a_default_prompt_reads_text(corpus: Corpus, tmp_path: Path, encoder_folder: Path) -> None:
    teacher = Path(shutil.copytree(encoder_folder, tmp_path / "default"))
    card = teacher / "config_sentence_transformers.json"
    default = {"prompts": {"all": "how "}, "default_prompt_name": "all"}
    card.write_text(json.dumps(json.loads(card.read_text()) | default))
    own, plain = settings(tmp_path, teacher), settings(tmp_path / "plain", encoder_folder)
    found = prepared(own, corpus)
    np.testing.assert_array_equal(found, from_text(own, corpus, tmp_path / "direct"))
    assert np.abs(found - from_text(plain, corpus, tmp_path / "plain")).max() > 1e-3


def test_without_a_student_that_shares_them_no_tokens_are_made(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path
) -> None:
    prepared(settings(tmp_path, encoder_folder), corpus, ())
    assert artifacts(tmp_path, "embeddings") and not artifacts(tmp_path, "tokens")
    other = make_encoder(tmp_path / "other", layers=2, seed=3)
    prepared(settings(tmp_path / "b", encoder_folder, student=str(other)), corpus)
    assert len(artifacts(tmp_path / "b", "tokens")) == 1


@pytest.mark.parametrize(("new", "from_text", "made"), [(20, 20, 0), (70, 0, 1)])
def test_of_text_that_grew_a_small_part_is_read_as_text(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: int, from_text: int, made: int
) -> None:
    spec, store = EncoderSpec(str(encoder_folder)), ArtifactStore(tmp_path)
    CorpusEncoding(spec, store, "test", in_process=True).vectors(CorpusText(SENTENCES[new:], "old"))
    text, texts, real = CorpusText(SENTENCES, "all"), list[str](), module.encode

    def noted(model: SentenceTransformer, sentences: list[str], **given: Any) -> Any:
        texts.extend(sentences)
        return real(model, sentences, **given)

    monkeypatch.setattr(module, "encode", noted)
    encoding = CorpusEncoding(spec, store, "test", in_process=True, tokens=lambda: tokens_artifact(text, spec, store))
    found, _ = encoding.vectors(text)
    assert (len(texts), len(list(tmp_path.glob("tokens-*/manifest.json")))) == (from_text, made)
    direct, _ = CorpusEncoding(spec, ArtifactStore(tmp_path / "direct"), "test", in_process=True).vectors(text)
    np.testing.assert_allclose(every(found), every(direct), rtol=2**-10, atol=1e-5)
