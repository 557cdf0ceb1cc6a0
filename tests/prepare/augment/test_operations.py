"""What every operation promises, on all that are installed here."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import ROUND_TRIPS, SENTENCES

from distilbench.errors import InputError
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.operation import Copies, Operation, same, versions
from distilbench.prepare.augment.synonym import Synonym

PLAIN: dict[str, Operation] = {
    "synonym": Synonym(),
}


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
        assert replace(operation, share=0.5).identity() == {**told, "share": 0.5}
    assert versions("no-such-package") == {"no-such-package": ""}


def test_more_is_changed_at_a_larger_share(operation: Operation, copies: Copies, sentences: list[str]) -> None:
    if not isinstance(operation, Synonym):
        pytest.skip("a translation has no share")

    def changed(made: list[str]) -> float:
        pairs = zip(sentences, made, strict=True)
        return sum(1 - SequenceMatcher(None, a.lower().split(), b.lower().split()).ratio() for a, b in pairs)

    assert changed(replace(operation, share=0.9).load()(sentences, 0)) > changed(copies(sentences, 0))


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
