"""A corpus: each sentence once, sets as rows, fingerprints that see every change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from distilbench.data.corpus import Corpus, CorpusBuilder


def make() -> Corpus:
    builder = CorpusBuilder("c")
    builder.add_sts("STS12", "MSRpar", "test", ["a", "b"], ["b", "c"], [0, 5])
    builder.add_sts("STSB", "", "dev", ["a", "d"], ["a", "c"], [5, 1.5])
    builder.add_retrieval("quora", "dev", ["q"], ["d", "e", "f"], [{2: 1, 0: 1}])
    builder.add_pairs(["g", "h"], ["h", "a"])
    builder.train_on(["g", "h", "a", "i", "g", "i"])
    builder.found.append("something")
    return builder.build()


def test_sentences_are_distinct_and_rows_point_at_them() -> None:
    corpus = make()
    assert corpus.sentences == tuple("abcdqefghi")  # in order of arrival

    def text(rows: object) -> str:
        return "".join(np.array(corpus.sentences)[rows])

    first, second = corpus.sts
    assert (text(first.left_P), text(first.right_P), first.score_P.tolist()) == ("ab", "bc", [0, 5])
    assert (text(second.left_P), text(second.right_P)) == ("ad", "ac")
    assert (first.name, second.name) == ("STS12.MSRpar", "STSB")
    (task,) = corpus.retrieval
    assert (text(task.queries), text(task.documents), task.relevant[0].tolist()) == ("q", "def", [2, 0])
    assert [text(pair) for pair in corpus.pairs_P2] == ["gh", "ha"]
    assert text(corpus.train) == "aghi"  # each once, by row
    assert corpus.found == ("something",)


def test_an_empty_corpus_keeps_its_shapes() -> None:
    corpus = CorpusBuilder("empty").build()
    assert corpus.sentences == ()
    assert corpus.train.shape == (0,) and corpus.pairs_P2.shape == (0, 2)


def test_what_is_printed_does_not_change_the_fingerprints() -> None:
    assert replace(make(), name="other", found=(), missing=("x",)).fingerprint == make().fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(c, train=c.train[1:]),
        lambda c: replace(c, pairs_P2=c.pairs_P2[::-1].copy()),
        lambda c: replace(c, sts=c.sts[:1]),
        lambda c: replace(c, sts=c.sts[::-1]),
        lambda c: replace(c, sts=(replace(c.sts[0], score_P=c.sts[0].score_P + 1), c.sts[1])),
        lambda c: replace(c, sts=(replace(c.sts[0], split="dev"), c.sts[1])),
        lambda c: replace(c, sts=(replace(c.sts[0], left_P=c.sts[0].right_P, right_P=c.sts[0].left_P), c.sts[1])),
        lambda c: replace(c, retrieval=()),
        lambda c: replace(c, retrieval=(replace(c.retrieval[0], relevant=(np.array([2]),)),)),
        lambda c: replace(c, retrieval=(replace(c.retrieval[0], documents=c.retrieval[0].documents[::-1].copy()),)),
    ],
)
def test_every_change_of_a_set_changes_the_corpus_but_not_its_sentences(change: Callable[[Corpus], Corpus]) -> None:
    corpus = make()
    changed = change(corpus)
    assert changed.fingerprint != corpus.fingerprint
    assert changed.sentences_fingerprint == corpus.sentences_fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("b", "a")),
        (("ab", "c"), ("a", "bc")),  # the same characters, cut elsewhere
        (("a",), ("a", "")),
        (("é",), ("e\u0301",)),  # looks the same, is not
    ],
)
def test_every_change_of_the_sentences_changes_both_fingerprints(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    empty = CorpusBuilder("c").build()
    first, second = replace(empty, sentences=one), replace(empty, sentences=other)
    assert first.sentences_fingerprint != second.sentences_fingerprint
    assert first.fingerprint != second.fingerprint
