"""Distillation from unlabelled sentences: also from augmented ones, and from a share of queries or from these alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.mse import MSE
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer


def without_training(prepared: Prepared) -> np.ndarray:
    """Rows of the corpus that are not trained on, in the part of augmented ones."""
    return np.setdiff1d(np.arange(prepared.vectors.rows), prepared.train)[:30]


@pytest.mark.parametrize("name", ["crd", "hpd", "ibkd", "mse"])
def test_augmented_sentences_are_examples_like_the_others(
    build: Callable[..., Any], prepared: Prepared, name: str
) -> None:
    more = replace(prepared, augmented=without_training(prepared))
    plain, augmented = (build(name, on=more, augmentation=wanted).eval() for wanted in (False, True))
    count = len(prepared.train)
    assert plain.phases()[0].examples == count and augmented.phases()[0].examples == count + 30
    assert augmented.rows[count:].tolist() == more.augmented.tolist()
    last = np.arange(count + 20, count + 30)
    if name == "hpd":  # the target of an augmented sentence is that of its own embedding
        target = prepared.pca.project(prepared.vectors.take(more.augmented[20:]), 8)
        wanted_loss = ((augmented.embed(more.augmented[20:]) - target) ** 2).sum(axis=1).mean()
        assert augmented.loss(last).item() == pytest.approx(wanted_loss, rel=1e-4)
    trainer = Trainer(augmented, 0, 3)
    trainer.train_until(3)
    assert np.isfinite(augmented.loss(last).item())


def corpus() -> Corpus:
    builder = CorpusBuilder("test")
    builder.train_on([f"sentence {i}" for i in range(20)])
    return builder.build()


def possible(**given: Any) -> Callable[[str], list[Any]]:
    return {"batch_size": [8], "augmentation": [False], "output_dim": [8], **given}.__getitem__


def test_augmented_sentences_are_needed_where_they_may_be_asked_for() -> None:
    assert MSE.needs(possible(augmentation=[False, True])).augmentation
    assert not MSE.needs(possible()).augmentation


def test_what_the_corpus_cannot_give_is_said() -> None:
    MSE.check_corpus(possible(), corpus(), 32)
    with pytest.raises(InputError, match="batch_size is 32, but the corpus has only 20 training sentences"):
        MSE.check_corpus(possible(batch_size=[8, 32]), corpus(), 32)
