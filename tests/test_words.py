"""Reading text word by word: the same tokens as the tokenizer has, each word tokenised once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel, WordPiece

from distilbench.encoders import encoding
from distilbench.encoders.encoding import encode, encode_documents, word_reader
from distilbench.encoders.words import WordReader, reads_by_word

PIECES = ["[UNK]", "[MASK]", *"abcdeé中国.,!?'-", *(f"##{c}" for c in "abcde"), "bad", "##ad", "cab"]


def bert(limit: int | None = None) -> Tokenizer:
    """A tokenizer as BERT has it, with a few pieces."""
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[MASK]"])
    if limit is not None:
        tokenizer.enable_truncation(limit)
    return tokenizer


def expected(tokenizer: Tokenizer, texts: list[str]) -> tuple[list[int], list[int]]:
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return [i for row in rows for i in row], [sum(map(len, rows[:n])) for n in range(len(rows))]


TEXTS = [
    *("bad cab", "", " ", "  bad\tcab\n", "Bád[MASK]cab", "[MASK] bad", "中国bad"),
    *("a\u0301 \u0301a", "é\x1cb \x00c", "cab\u00a0bad ẞ Σ."),
]


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_tokens_are_those_of_the_tokenizer(limit: int | None) -> None:
    tokenizer = bert(limit)
    reader = WordReader(tokenizer)
    for _ in range(2):  # words that are new, then remembered ones
        ids, begins = reader.ids(TEXTS)
        assert (ids.tolist(), begins.tolist()) == expected(tokenizer, TEXTS)


@pytest.mark.parametrize("limit", [None, 2, 5])
@pytest.mark.parametrize("common", [True, False])
def test_any_text(limit: int | None, common: bool) -> None:
    rng, tokenizer = np.random.default_rng(0), bert(limit)
    reader = WordReader(tokenizer, most_letters=300)
    for _ in range(100):
        points = rng.choice([ord(c) for c in "abcdeé .,-\t"], 60) if common else rng.integers(1, 0xD800, 60)
        text = "".join(" " if rng.random() < 0.1 else chr(point) for point in points)
        texts = [text[: rng.integers(60)] for _ in range(rng.integers(5))]
        ids, begins = reader.ids(texts)
        assert (ids.tolist(), begins.tolist()) == expected(tokenizer, texts)


def test_a_word_is_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, asked = bert(), list[str]()

    class Counted:
        truncation = None

        def encode_batch_fast(self, words: list[str], **options: bool) -> object:
            asked.extend(words)
            return tokenizer.encode_batch_fast(words, **options)

    reader = WordReader(Counted(), most_letters=7)  # type: ignore[arg-type]
    for texts in (["bad cab", "bad"], ["cab bad a b"]):
        reader.ids(texts)
    assert asked == ["bad", "cab", "a", "b"]
    reader.ids(["bad"])  # eight letters are more than seven: the words are forgotten
    assert asked[4:] == ["bad"]


OTHERS: list[Callable[[Tokenizer], object]] = [
    lambda t: setattr(t, "model", WordLevel({"[UNK]": 0}, unk_token="[UNK]")),
    lambda t: setattr(t, "normalizer", normalizers.Replace(" ", "")),
    lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Metaspace()),
    lambda t: t.enable_padding(),
    lambda t: t.enable_truncation(5, direction="left"),
    lambda t: t.add_tokens([AddedToken("bad cab")]),
]


@pytest.mark.parametrize("change", OTHERS)
def test_other_tokenizers_are_not_read_so(change: Callable[[Tokenizer], object]) -> None:
    tokenizer = bert()
    assert reads_by_word(tokenizer)
    change(tokenizer)
    assert not reads_by_word(tokenizer)


@pytest.mark.parametrize("dense", [False, True])
def test_vectors_are_those_of_sentence_transformers(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "AT_ONCE", 3)
    modules = [StaticEmbedding(bert(), embedding_dim=8), *([Dense(8, 5)] if dense else [])]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "cab "})
    assert word_reader(model) is not None
    for prompt in ("", "cab: "):
        wanted = model.encode(TEXTS, prompt=prompt)
        assert np.allclose(encode(model, TEXTS, prompt=prompt), wanted, atol=1e-6)
    assert encode(model, []).shape == (0, 5 if dense else 8)
    model.truncate_dim = 3
    assert np.allclose(encode(model, TEXTS), model.encode(TEXTS), atol=1e-6)
    assert encode(model, []).shape == (0, 3)


def test_documents_are_read_by_word_with_their_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [StaticEmbedding(bert(), embedding_dim=8)]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "cab ", "document": "bad "})
    model.truncate_dim = 5
    wanted = model.encode_document(TEXTS)
    assert not np.allclose(wanted, model.encode(TEXTS))
    monkeypatch.setattr(model, "encode_document", None)  # it tokenises every word again
    assert np.allclose(encode_documents(model, TEXTS, 4), wanted, atol=1e-6)


def test_another_static_embedding_is_left_to_sentence_transformers(tmp_path: Path) -> None:
    tokenizer = bert()
    tokenizer.normalizer = normalizers.Lowercase()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    assert word_reader(model) is None
    assert np.array_equal(encode(model, TEXTS), model.encode(TEXTS))
    assert np.array_equal(encode_documents(model, TEXTS, 4), model.encode_document(TEXTS))
