"""A tokenizer that loses tokens reads the text that it was cut to as before, and other text in smaller pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from distilbench.encoders.pruned_tokenizer import PRUNABLE, check_kind, frequent_words, grown, pruned, token_count
from distilbench.errors import InputError

TEXT = [
    "the quick brown foxes are jumping over the lazy dogs",
    "reading newspapers in the morning is relaxing",
    "she sells sea shells by the sea shore",
    "unbelievable happenings at the railway station",
    "newspapers and shells and foxes",
] * 3
OTHER = ["the unhappy sailor reads about railways", "lazy shells over the mornings"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def trained(kind: str) -> Tokenizer:
    """A tokenizer of the kind, trained on all of the text and much more of it than a run would have."""
    if kind == "WordPiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=220, special_tokens=SPECIAL)
    elif kind == "BPE":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=450, special_tokens=SPECIAL, initial_alphabet=alphabet)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>")
    tokenizer.train_from_iterator([*TEXT, *OTHER], trainer)
    start, end = (tokenizer.token_to_id(token) for token in ("<s>", "</s>"))
    if kind == "BPE":
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", end), ("<s>", start))
    else:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", start), ("</s>", end)]
        )
    tokenizer.add_special_tokens(["<later>"])  # beyond the model's own vocabulary
    return tokenizer


def contents(tokenizer: Tokenizer) -> dict[str, Any]:
    return dict(json.loads(tokenizer.to_str()))


@pytest.mark.parametrize("kind", ["WordPiece", "BPE", "Unigram"])
def test_the_text_is_read_as_before_and_other_text_in_smaller_pieces(kind: str) -> None:
    whole = trained(kind)
    used = {i for text in TEXT[:3] for i in whole.encode(text, add_special_tokens=False).ids}
    before = contents(whole)
    found = pruned(before, used, "x")
    assert before == contents(whole), "what was given is as it was"
    smaller = Tokenizer.from_str(json.dumps(found.tokenizer))
    assert smaller.get_vocab_size() == len(found.kept_V) < whole.get_vocab_size()
    assert (np.diff(found.kept_V) > 0).all() and used <= set(found.kept_V.tolist())
    for text in TEXT[:3]:
        one, other = whole.encode(text), smaller.encode(text)
        assert one.tokens == other.tokens and one.ids == found.kept_V[other.ids].tolist()
    for text in OTHER:
        one, other = whole.encode(text), smaller.encode(text)
        assert len(other.tokens) >= len(one.tokens) and "<unk>" not in other.tokens
        assert other.tokens[0] == "<s>" and other.tokens[-1] == "</s>"
    pieces = [sum(len(t.encode(text).ids) for text in OTHER) for t in (whole, smaller)]
    assert pieces[0] < pieces[1] or kind == "Unigram"
    for token, number in smaller.get_vocab().items():
        assert whole.token_to_id(token) == found.kept_V[number]
    assert {*SPECIAL, "<later>"} <= smaller.get_vocab().keys()


def test_frequent_words_that_are_cut_are_read_whole() -> None:
    whole = trained("WordPiece")
    small = Tokenizer.from_str(json.dumps(pruned(contents(whole), [], "x").tokenizer))  # which cuts every word
    ids_T = np.array([i for text in TEXT for i in small.encode(text, add_special_tokens=False).ids])
    words = frequent_words(contents(small), ids_T, 4)
    assert next(iter(words)) == "the" and len(words) == 4, "fifteen times; the next ones are there six times"
    assert all(sum(text.split().count(word) for text in TEXT) >= 6 for word in words)
    assert all(small.encode(word, add_special_tokens=False).ids == list(pieces) for word, pieces in words.items())
    more = Tokenizer.from_str(json.dumps(grown(contents(small), words)))
    first = token_count(contents(small))
    for place, word in enumerate(words):
        assert more.encode(word, add_special_tokens=False).ids == [first + place]
    longer = more.encode("theo" + "x" * 3, add_special_tokens=False).tokens
    assert longer[:2] == ["the", "##o"], "the longest piece from the start"
    endless = "the" * 40  # longer than the words that WordPiece reads
    assert more.encode(endless, add_special_tokens=False).tokens == ["<unk>"]
    assert more.encode("quick").tokens == small.encode("quick").tokens


def test_single_characters_stay_in_both_forms() -> None:
    whole = trained("WordPiece")
    found = pruned(contents(whole), [], "x").tokenizer["model"]["vocab"]
    characters = {token for token in whole.get_vocab() if len(token.removeprefix("##")) == 1}
    assert characters <= found.keys() and found.keys() <= characters | {*SPECIAL}


def test_padding_and_the_unknown_piece_are_renumbered() -> None:
    whole = trained("Unigram")
    whole.enable_padding(pad_id=whole.token_to_id("<mask>"), pad_token="<mask>")
    found = pruned(contents(whole), [], "x").tokenizer
    smaller = Tokenizer.from_str(json.dumps(found))
    assert found["padding"]["pad_id"] == smaller.token_to_id("<mask>")
    assert found["model"]["vocab"][found["model"]["unk_id"]][0] == "<unk>"
    assert smaller.token_to_id("<unk>") in smaller.encode("日").ids


def test_a_tokenizer_of_whole_words_is_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    with pytest.raises(
        InputError, match=r"^teacher 'x': its tokenizer is WordLevel; expected one of WordPiece, BPE, Uni"
    ):
        check_kind(contents(words), "teacher 'x'", PRUNABLE)
    with pytest.raises(InputError, match="of no known kind"):
        check_kind({}, "x", PRUNABLE)
