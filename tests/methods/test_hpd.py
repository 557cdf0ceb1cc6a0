"""HPD: its targets, its loss, its starts, and that an export is the trained student."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.methods.hpd import Trainable
from distilbench.prepare.prepared import load_prepared
from distilbench.search.trial import build_method
from distilbench.training.loop import Trainer


def build(prepared_folder: Path, **params: Any) -> Trainable:
    merged = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 1, **params}
    method = build_method("hpd", merged, load_prepared(prepared_folder), 0, "cpu")
    assert isinstance(method, Trainable)
    return method


@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_loss_is_the_mean_squared_distance_to_the_centred_pca(prepared_folder: Path, activation: str) -> None:
    method = build(prepared_folder, activation=activation).eval()
    prepared, index = method.prepared, np.array([3, 1, 7])
    rows = prepared.train[index]
    teacher = prepared.vectors.take(rows).astype(np.float64)
    target = (teacher - prepared.pca.mean_D) @ prepared.pca.axes_DD[:, :8]
    wanted = ((method.embed(rows) - target) ** 2).sum(axis=1).mean()
    assert method.loss(index).item() == pytest.approx(wanted, rel=1e-4)


def test_loss_gradient_of_the_projection_equals_finite_differences(prepared_folder: Path) -> None:
    method = build(prepared_folder).eval().double()
    index = np.array([0, 2, 5])
    weight = method.student[-1].linear.weight
    method.targets_Nd = method.targets_Nd.astype(np.float64)
    # The loss is computed in float32, so the step must be coarse.
    method.loss(index).backward()
    step, analytic = 1e-3, weight.grad[0, 0].item()
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            weight[0, 0] += sign * step
            values.append(method.loss(index).item())
            weight[0, 0] -= sign * step
    assert analytic == pytest.approx((values[0] - values[1]) / (2 * step), rel=0.02, abs=1e-3)


def test_regression_starts_nearer_than_random(prepared_folder: Path) -> None:
    index = np.arange(64)
    losses = {
        start: build(prepared_folder, projection_start=start).eval().loss(index).item()
        for start in ("random", "regression")
    }
    assert losses["regression"] < 0.8 * losses["random"]


def test_training_lowers_the_loss_and_the_export_is_the_student(prepared_folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    method = build(prepared_folder, activation="tanh")
    trainer = Trainer(method, 0, 40)
    first = trainer.train_until(5)
    assert trainer.train_until(40) < 0.9 * first
    rows = method.prepared.train[:20]
    vectors = method.embed(rows)
    method.export(tmp_path / "student")
    sentences = (prepared_folder / "sentences.txt").read_text().split("\n")
    outside = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    assert outside.encode([sentences[r] for r in rows]) == pytest.approx(vectors, abs=1e-5)
    assert len(outside[0].model.encoder.layer) == 2


def test_steps_are_whole_batches_of_the_epochs_within_the_budget(prepared_folder: Path) -> None:
    method = build(prepared_folder, epochs=2)
    assert method.steps(10_000) == 2 * (method.examples // 16)
    assert method.steps(3) == 3
