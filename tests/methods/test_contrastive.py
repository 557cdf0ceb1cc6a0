"""Contrastive fine-tuning: its loss, its projection; Matryoshka: its widths, and a loss that is their mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from distilbench.methods.contrastive import Contrastive
from distilbench.methods.matryoshka import Matryoshka
from distilbench.methods.parts.losses import info_nce
from distilbench.training.loop import Trainer


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return a @ b.T


@pytest.mark.parametrize("output_dim", [8, 32])
@pytest.mark.parametrize("labelled", ["triplets", "pairs"])
def test_loss_is_that_of_the_students_vectors(
    build: Callable[..., Contrastive], output_dim: int, labelled: str
) -> None:
    method = build("contrastive", hard_negatives=2, tau=0.2, output_dim=output_dim, labelled=labelled).eval()
    index = np.array([4, 0, 9])
    rows = {"triplets": method.prepared.triplets_T3, "pairs": method.prepared.pairs_P2}[labelled][index]
    a, p = (method.embed(rows[:, side]).astype(np.float64) for side in (0, 1))
    n = [method.embed(method.labelled.negative_TK[i]).astype(np.float64) for i in index]
    total = 0.0
    for i in range(3):
        logits = cosines(a[[i]], np.vstack([p, *n]))[0] / 0.2
        total += math.log(np.exp(logits).sum()) - logits[i]
    assert method.loss(index).item() == pytest.approx(total / 3, rel=1e-4)


@pytest.mark.parametrize(("output_dim", "layers"), [(8, 1), (32, 0)])
def test_a_projection_only_below_the_students_width(
    build: Callable[..., Contrastive], tmp_path: Path, output_dim: int, layers: int
) -> None:
    method = build("contrastive", output_dim=output_dim)
    assert (method.projection is not None) == bool(layers)
    method.export(tmp_path / "student")
    assert len(list((tmp_path / "student").glob("*_Dense"))) == layers


def test_training_lowers_the_loss(build: Callable[..., Contrastive]) -> None:
    method = build("contrastive", epochs=7.0)
    trainer = Trainer(method, 0, 42)
    first = trainer.train_until(6)
    trainer.train_until(36)
    assert trainer.train_until(42) < first - 0.2


def test_steps_are_those_of_the_labelled_examples(build: Callable[..., Contrastive]) -> None:
    (triplets,) = build("contrastive", epochs=2.0).phases()
    (pairs,) = build("contrastive", epochs=2.0, labelled="pairs").phases()
    assert (triplets.examples, triplets.steps) == (48, 12) and (pairs.examples, pairs.steps) == (64, 16)


@pytest.mark.parametrize(
    ("params", "told"),
    [({"labelled": "triplets"}, ""), ({"labelled": "pairs"}, "pairs"), ({"whiten_from": 16}, "whitened")],
)
def test_a_table_tells_what_is_unusual(params: dict[str, Any], told: str) -> None:
    assert Contrastive.variant(params) == told


@pytest.mark.parametrize(
    ("output_dim", "halvings", "widths"),
    [
        (8, 1, (8, 4)),
        (8, 3, (8, 4, 2)),  # 1 is too narrow to rank by
        (50, 2, (50, 25, 12)),  # rounded down
        (256, 3, (256, 128, 64, 32)),
        (1, 3, (1,)),  # the embedding itself always counts
    ],
)
def test_widths(output_dim: int, halvings: int, widths: tuple[int, ...]) -> None:
    assert Matryoshka.widths_of({"output_dim": output_dim, "halvings": halvings}) == widths


def test_loss_is_the_mean_over_the_widths(build: Callable[..., Any]) -> None:
    method = build("matryoshka", halvings=2, tau=0.2).eval()
    index = np.array([4, 0, 9])
    anchor, *others = (torch.from_numpy(method.embed(rows)) for rows in method.prepared.triplets_T3[index].T)
    losses = [info_nce(anchor[:, :w], torch.cat(others)[:, :w], 0.2).item() for w in (8, 4, 2)]
    assert np.ptp(losses) > 0.01
    assert method.loss(index).item() == pytest.approx(np.mean(losses), rel=1e-4)
    whole = build("contrastive", tau=0.2).eval()
    assert whole.loss(index).item() == pytest.approx(losses[0], rel=1e-4)


def test_no_whitening(build: Callable[..., Any]) -> None:
    """It would mix the trained first numbers with the others."""
    with pytest.raises(ValidationError, match="whiten_from"):
        build("matryoshka", whiten_from=16)


def test_a_table_tells_the_width_that_was_trained() -> None:
    assert Matryoshka.variant({"output_dim": 8, "halvings": 2}) == "of 8"
    assert Matryoshka.variant({"output_dim": 8, "halvings": 2, "labelled": "pairs"}) == "pairs, of 8"
