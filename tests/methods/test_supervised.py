"""Labelled examples: their rows, their mined negatives, and the loss of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.parts import supervised
from distilbench.methods.parts.supervised import LabelledExamples, LabelledParams, check_labelled, labelled_needs
from distilbench.prepare.prepared import Prepared


def nearest(prepared: Prepared, anchor: int, without: set[int], count: int) -> list[int]:
    """Training rows by falling cosine to the anchor, in double precision."""
    vectors = prepared.vectors.take(np.arange(prepared.vectors.rows)).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = sorted((r for r in prepared.train.tolist() if r not in without), key=lambda r: -vectors[r] @ vectors[anchor])
    return rows[:count]


@pytest.mark.parametrize("hard_negatives", [0, 1])
def test_triplets_bring_their_own_negative(prepared: Prepared, hard_negatives: int) -> None:
    examples = LabelledExamples(LabelledParams(hard_negatives=hard_negatives), prepared)
    assert len(examples) == len(prepared.triplets_T3) == 48
    assert examples.negative_TK.shape == (48, hard_negatives)
    anchors, positives, negatives = np.split(prepared.triplets_T3[[5, 0, 7]], 3, axis=1)
    wanted = [*anchors.ravel(), *positives.ravel(), *negatives.ravel()[: 3 * hard_negatives]]
    assert examples.rows(np.array([5, 0, 7])).tolist() == wanted


def test_further_negatives_of_triplets_are_mined(prepared: Prepared) -> None:
    """Anchor, positive and the contradiction that is there already are left out, also where they are the nearest."""
    triplets = prepared.triplets_T3.copy()
    anchor = int(triplets[0, 0])
    triplets[0] = [anchor, *nearest(prepared, anchor, {anchor}, 2)]
    examples = LabelledExamples(
        LabelledParams(hard_negatives=4, max_negative_share=0.0), replace(prepared, triplets_T3=triplets)
    )
    for triplet, negatives in zip(triplets.tolist(), examples.negative_TK.tolist(), strict=True):
        assert negatives == [triplet[2], *nearest(prepared, triplet[0], set(triplet), 3)]


def test_all_negatives_of_pairs_are_mined(prepared: Prepared) -> None:
    examples = LabelledExamples(LabelledParams(labelled="pairs", hard_negatives=3, max_negative_share=0.0), prepared)
    assert len(examples) == len(prepared.pairs_P2) == 64
    for pair, negatives in zip(prepared.pairs_P2.tolist(), examples.negative_TK.tolist(), strict=True):
        assert negatives == nearest(prepared, pair[0], set(pair), 3)
    index = np.array([9, 2])
    # Each anchor's negatives are together: the loss cuts them apart again.
    assert examples.rows(index)[4:].tolist() == examples.negative_TK[index].ravel().tolist()


def test_no_positive_is_mined_where_it_is_the_nearest(prepared: Prepared) -> None:
    """An anchor that comes twice, each time with its nearest sentence or the second nearest as positive."""
    anchor = int(prepared.train[0])
    first, second, third = nearest(prepared, anchor, {anchor}, 3)
    pairs = np.array([[anchor, first], [anchor, second]])
    examples = LabelledExamples(
        LabelledParams(labelled="pairs", hard_negatives=2, max_negative_share=0.0), replace(prepared, pairs_P2=pairs)
    )
    assert examples.negative_TK.tolist() == [[second, third], [first, third]]


def test_negatives_come_from_the_training_sentences_alone(prepared: Prepared) -> None:
    few = replace(prepared, train=prepared.train[:6], pairs_P2=prepared.pairs_P2[-3:])
    mined = LabelledExamples(LabelledParams(labelled="pairs", hard_negatives=4), few).negative_TK
    assert set(mined.ravel().tolist()) <= set(few.train.tolist())
    assert all(len(set(row)) == 4 for row in mined.tolist())


def test_the_most_negatives_are_within_what_is_searched() -> None:
    """Of the nearest ones, three at most are left out: anchor, positive, contradiction."""
    most = next(m.le for m in LabelledParams.model_fields["hard_negatives"].metadata if hasattr(m, "le"))
    assert most + 3 <= supervised.MINED_FROM


def corpus(pairs: int, triplets: int) -> Corpus:
    builder = CorpusBuilder("test")
    left, right = ([f"{side} {i}" for i in range(pairs)] for side in ("left", "right"))
    builder.add_pairs(left, right)
    builder.train_on([*left, *right])
    builder.train_triplets(*([f"{side} {i}" for i in range(triplets)] for side in "apn"))
    return builder.build()


def possible(**given: Any) -> Callable[[str], list[Any]]:
    values = {"labelled": ["triplets"], "batch_size": [8], "hard_negatives": [1], **given}
    return lambda name: values[name]


@pytest.mark.parametrize(
    ("pairs", "triplets", "given", "message"),
    [
        (9, 4, {}, "batch_size is 8, but the corpus has only 4 triplets"),
        (4, 9, {"labelled": ["triplets", "pairs"]}, "batch_size is 8, but the corpus has only 4 similar pairs"),
        (9, 9, {"batch_size": [4, 32]}, "batch_size is 32, but the corpus has only 9 triplets"),
        (
            8,
            0,
            {"labelled": ["pairs"], "hard_negatives": [0, 15]},
            "hard_negatives is 15, but the corpus has only 14 sentences to mine",
        ),
    ],
)
def test_what_the_corpus_cannot_give_is_said(pairs: int, triplets: int, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_labelled(possible(**given), corpus(pairs, triplets), "batch_size")


@pytest.mark.parametrize(
    ("pairs", "triplets", "given"),
    [
        (0, 8, {}),
        (8, 0, {"labelled": ["pairs"], "hard_negatives": [14]}),
        (8, 8, {"labelled": ["pairs", "triplets"]}),
    ],
)
def test_a_sufficient_corpus_passes(pairs: int, triplets: int, given: dict[str, Any]) -> None:
    check_labelled(possible(**given), corpus(pairs, triplets), "batch_size")


def test_triplets_are_needed_where_they_may_be_asked_for() -> None:
    assert labelled_needs(possible(labelled=["pairs", "triplets"])).triplets
    assert not labelled_needs(possible(labelled=["pairs"])).triplets


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_false_negatives_are_left_out(prepared: Prepared, share: float) -> None:
    """Candidates above that share of the positive's cosine go; where too few remain, the least similar of them fill."""
    params = LabelledParams(labelled="pairs", hard_negatives=3, max_negative_share=share)
    examples = LabelledExamples(params, prepared)
    vectors = prepared.vectors.take(np.arange(prepared.vectors.rows)).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    filled = 0
    for (anchor, positive), negatives in zip(prepared.pairs_P2.tolist(), examples.negative_TK.tolist(), strict=True):
        near = nearest(prepared, anchor, {anchor}, supervised.MINED_FROM - 1)
        near = [row for row in near if row != positive]
        limit = share * vectors[anchor] @ vectors[positive]
        true = [row for row in near if vectors[row] @ vectors[anchor] <= limit]
        false = [row for row in near if vectors[row] @ vectors[anchor] > limit]
        assert negatives == [*true, *reversed(false)][:3]
        filled += len(true) < 3
    assert share != 1.0 or 0 < filled < len(prepared.pairs_P2)  # both cases are seen


def test_a_share_of_zero_keeps_all(prepared: Prepared) -> None:
    kept, given = (
        LabelledExamples(LabelledParams(labelled="pairs", hard_negatives=3, max_negative_share=share), prepared)
        for share in (0.0, 100.0)
    )
    assert np.array_equal(kept.negative_TK, given.negative_TK)
