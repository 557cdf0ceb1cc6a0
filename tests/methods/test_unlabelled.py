"""Distillation from unlabelled sentences: also from augmented ones, and from a share of queries or from these alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.parts.unlabelled import Unlabelled, asks_for_queries
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer, epoch_batches


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
    asked = {"query_share": [None], "query_epochs": [0]}
    return {"batch_size": [8], "augmentation": [False], "output_dim": [8], **asked, **given}.__getitem__


def test_augmented_sentences_are_needed_where_they_may_be_asked_for() -> None:
    assert Unlabelled.needs(possible(augmentation=[False, True])).augmentation
    assert not Unlabelled.needs(possible()).augmentation


def test_what_the_corpus_cannot_give_is_said() -> None:
    Unlabelled.check_corpus(possible(), corpus(), 32)
    with pytest.raises(InputError, match="batch_size is 32, but the corpus has only 20 training sentences"):
        Unlabelled.check_corpus(possible(batch_size=[8, 32]), corpus(), 32)


# --- Queries


@pytest.fixture
def asked(prepared: Prepared) -> Prepared:
    """Prepared inputs of which 20 of the training sentences are queries."""
    return replace(prepared, queries=prepared.train[5:25])


def examples(method: Any, phase: int, epoch: int) -> np.ndarray:
    """Corpus rows of an epoch's examples."""
    of = method.phases()[phase]
    rows = method.prepared.train[epoch_batches(of.examples, 1, [0, phase, epoch], of.order).ravel()]
    assert len(rows) == of.examples
    return np.asarray(rows)


@pytest.mark.parametrize(("share", "queries"), [(0.25, 0.25), (0.75, 0.75), (0.0, 0.0), (1.0, 1.0)])
def test_a_share_of_each_epoch_is_queries(
    build: Callable[..., Any], asked: Prepared, share: float, queries: float
) -> None:
    method, count = build("hpd", on=asked, query_share=share), len(asked.train)
    epochs = [examples(method, 0, epoch) for epoch in range(2)]
    assert method.phases()[0].examples == count and epochs[0].tolist() != epochs[1].tolist()
    for rows in epochs:
        is_query = np.isin(rows, asked.queries)
        assert is_query.sum() == round(queries * count)
        for part in (rows[is_query], rows[~is_query]):  # none far more often than another
            assert not len(part) or np.ptp(np.unique(part, return_counts=True)[1]) <= 1
    if 0 < share < 1:
        assert set(epochs[0].tolist()) != set(epochs[1].tolist())  # not the same ones are left out


@pytest.mark.parametrize("name", ["crd", "hpd", "ibkd", "mcr2_distil", "mse"])
def test_a_phase_on_the_queries_alone_follows_at_a_lower_rate(
    build: Callable[..., Any], asked: Prepared, name: str, tmp_path: Path
) -> None:
    given = {
        "query_epochs": 2.0,
        "query_lr_factor": 0.5,
        "query_share": 0.5,
        **({"ft_epochs": 0} if name == "ibkd" else {}),
    }
    given |= {"output_dim": 32} if name == "ibkd" else {}
    method = build(name, on=asked, **given)
    before, after = method.phases()[-2:]
    assert [before.name, after.name] == ["distil", "queries"]
    assert (after.steps, after.examples, after.lr) == (2, 20, before.lr / 2)
    assert after.loss == before.loss and after.trained == before.trained
    assert sorted(examples(method, len(method.phases()) - 1, 0)) == asked.queries.tolist()
    whole = Trainer(method, 0, 1000)
    whole.train_until(whole.total_steps)
    first, second = (Trainer(build(name, on=asked, **given), 0, 1000) for _ in range(2))
    first.train_until(whole.total_steps - 1)
    first.save(tmp_path, 1)
    assert second.resume(tmp_path) == 1
    second.train_until(second.total_steps)
    for one, other in zip(whole.method.parameters(), second.method.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_targets_of_the_phase_on_queries_are_those_of_the_distillation(
    build: Callable[..., Any], asked: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not made again, nor kept twice on a GPU."""
    method, made = build("mcr2_distil", on=asked, query_epochs=1.0), list[np.ndarray]()
    embed = method.compression.embed
    monkeypatch.setattr(method.compression, "embed", lambda rows: made.append(rows) or embed(rows))
    trainer = Trainer(method, 0, 1000)
    trainer.train_until(trainer.total_steps)
    assert trainer.phases[trainer.phase].name == "queries"
    assert sum(rows is asked.train for rows in made) == 1


def test_without_them_the_phases_are_those_of_before(build: Callable[..., Any], asked: Prepared) -> None:
    [phase] = build("hpd", on=asked).phases()
    assert phase.order is None and phase.name == "distil"
    assert [p.name for p in build("hpd", on=asked, query_epochs=1, head_steps=3).phases()] == [
        "distil",
        "queries",
        "head",
    ]


def test_queries_are_needed_where_they_may_be_asked_for() -> None:
    assert not asks_for_queries(possible())
    for given in ({"query_share": [None, 0.5]}, {"query_epochs": [0, 1]}):
        assert Unlabelled.needs(possible(**given)).queries


@pytest.mark.parametrize(
    ("count", "given", "message"),
    [
        (
            0,
            {"query_share": [None, 0.5]},
            "query_share: 0.5, but none of the 20 training sentences is known to be a query",
        ),
        (0, {"query_epochs": [0, 2]}, "query_epochs: 2, but none .* expected unlabeled/queries"),
        (4, {"query_epochs": [1]}, "batch_size is 8, but the corpus has only 4 queries to train on"),
        (20, {"query_share": [0.5]}, "query_share: 0.5, but all 20 training sentences are queries"),
        (20, {"query_share": [1.0], "query_epochs": [1]}, ""),
        (4, {"query_share": [0.0, 1.0]}, ""),
    ],
)
def test_a_corpus_without_the_queries_is_refused(count: int, given: dict[str, Any], message: str) -> None:
    own = replace(corpus(), queries=corpus().train[:count])
    if not message:
        Unlabelled.check_corpus(possible(**given), own, 32)
        return
    with pytest.raises(InputError, match=message):
        Unlabelled.check_corpus(possible(**given), own, 32)
