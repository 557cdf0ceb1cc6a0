"""MCR2, mode `distil`: the finished head's features are the targets, and the student learns them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.mcr2_distil import MCR2Distil
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer

Build = Callable[..., MCR2Distil]


def features(method: MCR2Distil, x: np.ndarray) -> np.ndarray:
    """Two ELU layers, a linear one, unit norm: in double precision from the weights."""
    for layer in (*method.compression.trunk, method.compression.features):
        before, weight = x, layer.linear.weight.detach().double().numpy()
        x = x @ weight.T + layer.linear.bias.detach().double().numpy()
        if layer is not method.compression.features:
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + (before if layer.residual else 0)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("head", ["elu", "residual"])
def test_targets_are_the_features_of_the_head_after_its_phase(build: Build, head: str) -> None:
    method = build("mcr2_distil", head=head, distil_epochs=1.0)
    vectors = method.prepared.vectors.take(method.prepared.train).astype(np.float64)
    at_start = features(method, vectors)
    trainer = Trainer(method, 0, 30)
    compress, distil = trainer.phases
    assert (compress.name, distil.name) == ("compress", "distil")
    trainer.train_until(compress.steps + 1)
    wanted = features(method, vectors)
    assert method.targets_Nd == pytest.approx(wanted, abs=1e-5)
    assert np.abs(wanted - at_start).max() > 0.05
    trainer.train_until(30)
    assert features(method, vectors) == pytest.approx(wanted, abs=1e-12)  # the head is finished


@pytest.mark.parametrize("activation", ["tanh", "identity"])
def test_loss_is_the_mean_squared_distance_to_the_targets(build: Build, activation: str) -> None:
    method = build("mcr2_distil", activation=activation).eval()
    method.phases()[1].begin()
    index = np.array([4, 0, 9])
    rows = method.prepared.train[index]
    student, target = method.embed(rows), features(method, method.prepared.vectors.take(rows).astype(np.float64))
    assert (np.abs(method.embed(method.prepared.train)).max() < 1) == (activation == "tanh")
    wanted = ((student - target) ** 2).sum(axis=1).mean()
    assert method.phases()[1].loss(index).item() == pytest.approx(wanted, rel=1e-4)


def test_the_student_learns(build: Build) -> None:
    method = build("mcr2_distil", distil_epochs=4.0)
    trainer = Trainer(method, 0, 10**6)
    boundary = trainer.starts[1]
    trainer.train_until(boundary)
    first = trainer.train_until(boundary + 5)
    trainer.train_until(trainer.total_steps - 5)
    assert trainer.train_until(trainer.total_steps) < 0.7 * first


def test_a_student_of_another_width(build: Build, narrow: Prepared) -> None:
    method = build("mcr2_distil", on=narrow)
    assert method.projection.linear.weight.shape == (8, 16)
    Trainer(method, 0, 6).train_until(6)
    assert method.embed(np.arange(3)).shape == (3, 8)


def test_rates_and_steps_are_those_of_each_phase(build: Build) -> None:
    method = build("mcr2_distil", lr=0.5, distil_lr=0.25, steps=7, distil_epochs=2.0, distil_batch_size=32, decay=False)
    trainer = Trainer(method, 0, 10**6)
    assert trainer.starts == [0, 7, 7 + 2 * (len(method.prepared.train) // 32)]
    assert trainer.learning_rate(6) == 0.5 and trainer.learning_rate(7) == 0.25
    assert [phase.batch_size for phase in trainer.phases] == [16, 32]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"batch_size": 16}, "batch_size is 16, but the corpus has only 10 similar pairs"),
        ({"distil_batch_size": 32}, "distil_batch_size is 32, but the corpus has only 20 training sentences"),
        ({"clusters": 12}, "clusters is 12, but the corpus has only 10 similar pairs"),
        ({"output_dim": 64}, "output_dim: 64 is above the 32"),
    ],
)
def test_what_the_corpus_cannot_give_is_said(params: dict[str, Any], message: str) -> None:
    builder = CorpusBuilder("test")
    left, right = ([f"{side} {i}" for i in range(10)] for side in ("left", "right"))
    builder.add_pairs(left, right)
    builder.train_on([*left, *right])
    given = {"output_dim": 8, "batch_size": 8, "distil_batch_size": 8, "clusters": 4, "pairs": "duplicates"}
    given |= {"nested": False, "widths": ()}
    MCR2Distil.check_corpus(lambda name: [given[name]], builder.build(), 32)
    with pytest.raises(InputError, match=message):
        MCR2Distil.check_corpus(lambda name: [{**given, **params}[name]], builder.build(), 32)


def test_the_head_starts_from_the_methods_seed(build: Build) -> None:
    weights = [build("mcr2_distil", seed=seed).compression.features.linear.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
