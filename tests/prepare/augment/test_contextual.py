"""Words replaced by a masked language model's, each family of models as transformers has it now."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from small_models import SENTENCES, make_masked_language_model
from transformers import AutoTokenizer

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment.words import Contextual

SPACED = "two dogs run through the field a man is playing the guitar on a stage"
"""Words that are single pieces."""


def test_a_share_of_the_words_is_replaced(masked_language_model: EncoderSpec) -> None:
    tokens = len(AutoTokenizer.from_pretrained(masked_language_model.name).tokenize(SPACED))
    words = SPACED.split()
    for share in (0.1, 0.3):
        load = Contextual(share, masked_language_model).load()
        for seed in range(4):
            copy = load([SPACED], seed)[0].split()
            assert len(copy) == len(words)
            assert 0 < sum(a != b for a, b in zip(words, copy, strict=True)) <= math.ceil(share * tokens)


def test_a_sentence_longer_than_the_models_positions_keeps_its_end_or_has_no_copy(
    masked_language_model: EncoderSpec,
) -> None:
    sentence = "two dogs run " * 40 + "on a stage"
    for seed in range(3):
        copy = Contextual(model=masked_language_model).load()([sentence], seed)[0]
        assert copy == "" or (copy.endswith("run on a stage") and copy != sentence)


def test_a_copy_with_an_unknown_token_is_none(tmp_path: Path) -> None:
    make_masked_language_model(tmp_path, "bert")
    copies = Contextual(model=EncoderSpec(str(tmp_path))).load()
    assert copies(["two dogs run through the 漢 field", "two dogs run"], 0)[0] == ""


def test_a_model_of_another_family(tmp_path: Path) -> None:
    make_masked_language_model(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "t5"}))
    with pytest.raises(InputError, match=r"contextual: .* 't5'; expected .* bert, distilbert,"):
        Contextual(model=EncoderSpec(str(tmp_path))).check()


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    make_masked_language_model(tmp_path, "bert")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(InputError, match="tokenizer"):
        Contextual(model=EncoderSpec(str(tmp_path))).load()


def test_two_folders_of_one_name_are_two_models(tmp_path: Path) -> None:
    """nlpaug keeps models by the last part of their path."""
    for parent, family in (("a", "bert"), ("b", "distilbert")):
        (tmp_path / parent / "model").mkdir(parents=True)
        make_masked_language_model(tmp_path / parent / "model", family)
    first, second = (
        Contextual(model=EncoderSpec(str(tmp_path / name / "model"))).load()(SENTENCES, 0) for name in "ab"
    )
    assert first != second
