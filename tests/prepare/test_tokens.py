"""The student's token arrays: its tokenizer's ids, made once, never of something else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import token_ids
from distilbench.prepare import tokens as module
from distilbench.prepare.tokens import load_tokens, tokens_artifact
from distilbench.settings.place import PoolSize
from distilbench.storage.store import ArtifactStore

SENTENCES = ("the dog runs in the park", "", "a", "zq?", "how do i open the door " * 30)


@pytest.fixture(scope="module")
def spec(encoder_folder: Path) -> EncoderSpec:
    return EncoderSpec(str(encoder_folder))


def test_ids_are_the_tokenizers(spec: EncoderSpec, tmp_path: Path) -> None:
    tokens = load_tokens(tokens_artifact(CorpusText(SENTENCES, "key"), spec, ArtifactStore(tmp_path)))
    model = spec.load()
    wanted = [model.tokenizer(s, truncation=True, max_length=64)["input_ids"] for s in SENTENCES]
    assert [tokens[i].tolist() for i in range(len(SENTENCES))] == wanted
    assert tokens.lengths_of(np.arange(len(SENTENCES))).tolist() == [8, 2, 3, len(wanted[3]), 64]
    assert tokens.lengths_of(np.array([4, 0, 4])).tolist() == [64, 8, 64]
    assert tokens.lengths_of(np.array([], dtype=np.int64)).tolist() == []
    assert tokens.ids.dtype == np.int32 and tokens.offsets.dtype == np.int64


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_shards_leave_no_trace(
    spec: EncoderSpec, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    one = tokens_artifact(CorpusText(SENTENCES, "key"), spec, ArtifactStore(tmp_path / "one"))
    monkeypatch.setattr(module, "SHARD_ROWS", 2)
    if many:
        request.getfixturevalue("cluster")
        monkeypatch.setattr(module, "ONE_PROCESS", 2)
    two = tokens_artifact(CorpusText(SENTENCES, "key"), spec, ArtifactStore(tmp_path / "two"), PoolSize(1))
    assert sorted(p.name for p in two.iterdir()) == ["ids.npy", "manifest.json", "offsets.npy"]
    for name in ("ids.npy", "offsets.npy", "manifest.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.parametrize("prompt", ["", "how "])
def test_many_texts_have_the_ids_of_each(spec: EncoderSpec, prompt: str) -> None:
    model = spec.load()
    model.max_seq_length = 6
    many = [sentence for i in range(40) for sentence in (*SENTENCES, "dog " * i)]
    assert token_ids(model, many, prompt) == [token_ids(model, [one], prompt)[0] for one in many]


def test_max_tokens_and_prompt_count(spec: EncoderSpec, tmp_path: Path) -> None:
    read = replace(spec, max_tokens=5, prompt="how ")
    tokens = load_tokens(tokens_artifact(CorpusText(SENTENCES, "key"), read, ArtifactStore(tmp_path)))
    assert tokens.lengths_of(np.arange(len(SENTENCES))).max() == 5
    tokenizer = spec.load().tokenizer
    assert tokenizer.convert_ids_to_tokens(tokens[0]) == ["[CLS]", "how", "the", "dog", "[SEP]"]


def test_tokens_of_anything_else_are_never_reused(spec: EncoderSpec, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    folder = Path(shutil.copytree(spec.name, tmp_path / "other"))
    vocabulary = next(folder.rglob("tokenizer.json"))
    vocabulary.write_text(vocabulary.read_text().replace('"dog"', '"fox"'))
    paths = [
        tokens_artifact(CorpusText(SENTENCES, "key"), spec, store),
        tokens_artifact(CorpusText(SENTENCES[::-1], "another key"), spec, store),
        tokens_artifact(CorpusText(SENTENCES, "key"), replace(spec, max_tokens=5), store),
        tokens_artifact(CorpusText(SENTENCES, "key"), replace(spec, prompt="how "), store),
        tokens_artifact(CorpusText(SENTENCES, "key"), EncoderSpec(str(folder)), store),
    ]
    assert len(set(paths)) == 5
    assert len({load_tokens(path).ids.tobytes() for path in paths}) == 5
