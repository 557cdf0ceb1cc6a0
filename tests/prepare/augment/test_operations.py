"""What every operation promises, on all that are installed here; how a user names them; round trips of two small models."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import ROUND_TRIPS, SENTENCES

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment import operations
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.operation import Copies, Operation, same, versions
from distilbench.prepare.augment.synonym import Synonym

PLAIN: dict[str, Operation] = {"synonym": Synonym()}


def installed(operation: Operation) -> bool:
    try:
        operation.check()
    except InputError:
        return False
    return True


@pytest.fixture(scope="module", params=[*PLAIN, "marian"])
def operation(request: pytest.FixtureRequest) -> Operation:
    made: Operation = PLAIN.get(request.param) or request.getfixturevalue("marian")
    if not installed(made):
        pytest.skip(f"{request.param} is not installed")
    return made


@pytest.fixture(scope="module")
def copies(operation: Operation) -> Copies:
    return operation.load()


@pytest.fixture(scope="module")
def sentences(operation: Operation) -> list[str]:
    return list(ROUND_TRIPS if isinstance(operation, BackTranslation) else SENTENCES)


def test_one_changed_copy_of_each_in_order(copies: Copies, sentences: list[str]) -> None:
    made = copies(sentences, 0)
    assert len(made) == len(sentences) and all(isinstance(copy, str) for copy in made)
    assert all(copy == copy.strip() for copy in made)
    assert sum(same(copy) != same(sentence) for copy, sentence in zip(made, sentences, strict=True)) >= 3
    for copy, sentence in zip(made, sentences, strict=True):  # it is that sentence's copy: they share words
        assert {w.strip(".,?").lower() for w in copy.split()} & {w.strip(".,?").lower() for w in sentence.split()}


@pytest.mark.slow
def test_a_copy_depends_on_no_other_sentence(copies: Copies, sentences: list[str]) -> None:
    whole = copies(sentences, 3)
    assert copies(sentences[::-1], 3) == whole[::-1]
    assert [copies([sentence], 3)[0] for sentence in sentences] == whole
    assert copies([sentences[1], sentences[0], sentences[1]], 3) == [whole[1], whole[0], whole[1]]


def test_a_seed_says_everything(operation: Operation, copies: Copies, sentences: list[str]) -> None:
    random.seed(1)
    torch.manual_seed(1)
    first = copies(sentences, 0)
    random.seed(2)
    np.random.seed(2)
    torch.manual_seed(2)
    assert copies(sentences, 0) == first
    assert (copies(sentences, 1) != first) == (operation.name == "synonym")


def test_random_states_are_given_back(copies: Copies, sentences: list[str]) -> None:
    def draws() -> tuple[float, ...]:
        return random.random(), np.random.random(), torch.rand(()).item()

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    wanted = draws()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    copies(sentences, 0)
    assert draws() == wanted


def test_nothing_to_copy(copies: Copies, sentences: list[str]) -> None:
    assert copies([], 0) == []
    assert copies(["", " \n"], 0) == ["", ""]
    assert copies(["", sentences[0]], 0) == ["", copies([sentences[0]], 0)[0]]


def test_it_is_small_and_can_be_sent(operation: Operation) -> None:
    sent = pickle.dumps(operation)
    assert pickle.loads(sent) == operation and len(sent) < 2000  # noqa: S301


@pytest.mark.slow
def test_a_worker_makes_the_same_copies(tmp_path: Path) -> None:
    """Another process, in another folder, that hashes strings otherwise."""
    sent = [*filter(installed, PLAIN.values())]
    (tmp_path / "sent").write_bytes(pickle.dumps(sent))
    (tmp_path / "sentences").write_text(json.dumps(SENTENCES))
    code = (
        "import json, pickle; s = json.load(open('sentences'));"
        "print(json.dumps([[o.identity(), o.load()(s, 4)] for o in pickle.load(open('sent', 'rb'))]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [operation.identity(), operation.load()(SENTENCES, 4)] for operation in sent
    ]


def test_identity_tells_what_the_copies_depend_on(operation: Operation) -> None:
    told = operation.identity()
    assert json.loads(json.dumps(told)) == told and told["operation"] == operation.name
    if isinstance(operation, Synonym):
        assert told["packages"]["nlpaug"] == versions("nlpaug")["nlpaug"] != ""
    assert versions("no-such-package") == {"no-such-package": ""}


WHOLE = (
    "Don't pay $1,000.50 (or 20 %) for the state-of-the-art set, it isn't worth it!",
    "बच्चे स्कूल में हिंदी पढ़ते हैं और फिर खेलते हैं।",
    "เขาไม่ได้ไป ที่นั่น เมื่อวานนี้",
    "I said: 'no', and i meant it...",
)


def test_no_word_is_torn(operation: Operation, copies: Copies) -> None:
    """Neither a letter from its marks, nor a price, nor a contraction."""
    if not isinstance(operation, Synonym):
        pytest.skip("a translation has words of its own")
    for seed in range(5):
        for copy, sentence in zip(copies(WHOLE, seed), WHOLE, strict=True):
            whole = {w for w in sentence.split() if not w.isascii() or w in ("Don't", "$1,000.50")}
            assert whole <= set(copy.split())


@pytest.mark.parametrize(
    ("names", "made"),
    [
        ((), []),
        (("synonym", "synonym"), [Synonym()]),
        (("hpd",), [Synonym(), BackTranslation()]),
        (("back-translation", "hpd"), [BackTranslation(), Synonym()]),
    ],
)
def test_each_name_and_recipe_once_in_order(names: tuple[str, ...], made: list[object]) -> None:
    assert operations(names) == made


def test_models_are_named_for_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    translated = operations(["back-translation@there+owner/back"])
    assert translated == [BackTranslation(EncoderSpec(str(tmp_path / "there")), EncoderSpec("owner/back"))]


@pytest.mark.parametrize("name", ["shuffle", "synonym@model"])
def test_unknown_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}.*synonym, back-translation.*hpd \(synonym"):
        operations(["synonym", name])


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
