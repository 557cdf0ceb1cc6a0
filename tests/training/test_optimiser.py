"""Weight decay of matrices alone, no clipping."""

from __future__ import annotations

import math

import pytest
from toy_learner import Toy

from distilbench.training.loop import Trainer, decay_groups


def test_decay_spares_vectors_unless_it_is_for_all() -> None:
    toy = Toy(decay_all=False, weight_decay=0.5)
    groups = decay_groups(list(toy.parameters()), toy.params)
    assert [g["weight_decay"] for g in groups] == [0.5, 0.0]
    assert {q.ndim for q in groups[0]["params"]} == {2} and {q.ndim for q in groups[1]["params"]} == {1}
    (alone,) = decay_groups(list(toy.parameters()), Toy(decay_all=True, weight_decay=0.5).params)
    assert alone["weight_decay"] == 0.5 and len(alone["params"]) == 4


def test_clip_0_leaves_gradients_as_they_are() -> None:
    def moved(clip: float) -> float:
        toy = Toy(clip=clip, factor=50.0)
        Trainer(toy, 0, 12).train_until(1)
        return math.sqrt(sum(q.grad.square().sum().item() for q in toy.first.parameters() if q.grad is not None))

    assert moved(1.0) == pytest.approx(1.0, rel=1e-3) and moved(0.0) > 10
