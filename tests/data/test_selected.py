"""What students are selected by on some data: what was asked for, or what the data has; and sentences held out."""

from __future__ import annotations

import numpy as np
import pytest

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.selected import with_selection
from distilbench.errors import InputError
from distilbench.selection import Selection

TEXT = [f"sentence number {i}" for i in range(400)]


def corpus(*, sts: str = "", retrieval: str = "", text: int = 400) -> Corpus:
    builder = CorpusBuilder("mine")
    if sts:
        builder.add_sts("OWN", "", sts, ["a", "b"], ["c", "d"], [1, 2])
    if retrieval:
        builder.add_retrieval("own", retrieval, ["a question"], ["an answer", "another"], [{0: 1}])
    builder.add_pairs(TEXT[: text // 4], TEXT[text // 4 : text // 2])
    builder.train_triplets(TEXT[: text // 4], TEXT[text // 4 : text // 2], TEXT[text // 2 : 3 * text // 4])
    builder.train_on(TEXT[:text])
    return builder.build()


@pytest.mark.parametrize(
    ("made", "taken", "why"),
    [
        ({"sts": "dev", "retrieval": "dev"}, "sts", "an STS dev set"),
        ({"sts": "test", "retrieval": "dev"}, "retrieval", "no STS dev set, and a retrieval dev set"),
        ({"sts": "test", "retrieval": "test"}, "fidelity", "no labelled dev set"),  # a test set never selects
        ({}, "fidelity", "no labelled dev set"),
    ],
)
def test_the_best_that_the_data_can_serve(made: dict[str, str], taken: str, why: str) -> None:
    found, because = with_selection(corpus(**made), None)
    assert str(found.selection) == taken and not found.selection.asked and why in because
    assert bool(found.held_out) == (taken == "fidelity")


def test_what_is_asked_for_is_taken() -> None:
    found, because = with_selection(corpus(sts="dev", retrieval="dev"), Selection.parse("mrr@10=0.7,fidelity=0.3"))
    assert str(found.selection) == "mrr@10=0.7,fidelity=0.3" and "--select" in because
    assert [held.split for held in found.held_out] == ["dev", "test"]


def test_who_asked_is_told() -> None:
    with pytest.raises(InputError, match=r"^about\.json sts: "):
        with_selection(corpus(retrieval="dev"), Selection.parse("sts"), "about.json")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("sts", r"--select sts: the data of mine has no sts set to select by; expected an STS dev set"),
        ("retrieval", r"no retrieval set to select by; expected queries and judgements of a dev split"),
    ],
)
def test_a_measure_that_the_data_cannot_serve_is_refused(asked: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_selection(corpus(sts="test", retrieval="test"), Selection.parse(asked))


def test_too_little_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"--select fidelity: .* no text to hold out; expected at least 200 sentences"):
        with_selection(corpus(text=80), Selection.parse("fidelity"))
    with pytest.raises(InputError, match=r"mine: nothing to select students by; expected an STS dev set, .*, or "):
        with_selection(corpus(text=80), None)


def test_nothing_is_trained_on_held_out_sentences() -> None:
    before = corpus()
    found, _ = with_selection(before, None)
    dev, test = (held.rows for held in found.held_out)
    assert len(dev) == len(test) == 40 and not set(dev) & set(test)
    for trained in (found.train, found.pairs_P2.ravel(), found.triplets_T3.ravel()):
        assert not set(trained.tolist()) & {*dev.tolist(), *test.tolist()} and len(trained)
    assert len(found.train) == len(before.train) - 80 and len(found.pairs_P2) < len(before.pairs_P2)
    assert found.fingerprint != before.fingerprint
    again, _ = with_selection(corpus(), None)
    np.testing.assert_array_equal(again.held_out[0].rows, dev)
