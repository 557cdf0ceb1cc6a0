"""MSE: its loss, and the map to the teacher's width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from distilbench.errors import InputError
from distilbench.methods.mse import MSE
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer


def test_loss_is_the_mean_squared_distance_to_the_teacher(build: Callable[..., MSE]) -> None:
    method = build("mse").eval()
    index = np.array([3, 1, 7])
    rows = method.prepared.train[index]
    difference = method.embed(rows).astype(np.float64) - method.prepared.vectors.take(rows)
    assert method.loss(index).item() == pytest.approx((difference**2).sum(axis=1).mean(), rel=1e-5)
    assert isinstance(method.map, torch.nn.Identity)


def test_a_student_of_another_width_is_mapped(build: Callable[..., MSE], narrow: Prepared, tmp_path: Path) -> None:
    method = build("mse", on=narrow, output_dim=16).eval()
    index = np.array([3, 1, 7])
    rows = method.prepared.train[index]
    mapped = method.embed(rows).astype(np.float64) @ method.map.weight.detach().double().numpy().T
    wanted = ((mapped - method.prepared.vectors.take(rows)) ** 2).sum(axis=1).mean()
    assert method.loss(index).item() == pytest.approx(wanted, rel=1e-5)
    method.export(tmp_path / "student")
    assert not list((tmp_path / "student").glob("*_Dense"))  # the map is no part of the student


def test_training_lowers_the_loss(build: Callable[..., MSE]) -> None:
    trainer = Trainer(build("mse"), 0, 40)
    first = trainer.train_until(5)
    trainer.train_until(35)
    assert trainer.train_until(40) < 0.5 * first


def test_only_the_students_own_width() -> None:
    given = {"output_dim": [8, 32]}
    with pytest.raises(InputError, match="output_dim: 8: MSE has no projection; expected 32"):
        MSE.check_student(given.__getitem__, "auto", 32)
    given["output_dim"] = [32]
    MSE.check_student(given.__getitem__, "auto", 32)
