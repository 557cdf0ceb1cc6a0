"""Round trips by two small MarianMT models."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import ROUND_TRIPS

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment.back_translation import BackTranslation


def test_it_says_what_the_models_learnt(marian: BackTranslation) -> None:
    wanted = [back for _, back in ROUND_TRIPS.values()]
    assert marian.load()(list(ROUND_TRIPS), 0) == wanted


def test_each_distinct_line_is_translated_once(marian: BackTranslation, monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(sentences: list[str]) -> list[str]:
        assert len(set(sentences)) == len(sentences) and all(sentences)
        return [" ".join(sentence.split()[::-1]) for sentence in sentences]

    monkeypatch.setattr(BackTranslation, "_round_trip", lambda self: backwards)
    assert marian.load()(["a  b", "", "c\nd", "a b", " ", "a " * 400], 0) == ["b a", "", "d c", "b a", "", ""]


def test_identity_has_both_models(marian: BackTranslation) -> None:
    told = marian.identity()
    assert "source.spm" in told["there"] and told["there"] != told["back"]
    turned = replace(marian, there=marian.back, back=marian.there).identity()
    assert turned == {**told, "there": told["back"], "back": told["there"]}


def test_sentencepiece_missing(marian: BackTranslation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs sentencepiece; expected `pip install 'distilbench\[marian\]'`$"):
        marian.check()


def test_another_kind_of_model(marian: BackTranslation, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=r"is of type 't5'; expected two MarianMT models"):
        replace(marian, back=EncoderSpec(str(tmp_path))).check()
