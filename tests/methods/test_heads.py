"""The heads that are not trained (PCA, whitening, random projection) against independent computations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.methods.parts import heads
from distilbench.methods.parts.heads import whitening_head
from distilbench.prepare.prepared import Prepared

Build = Callable[..., Any]


def up_to_sign(ours: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """`wanted` with each column's sign as in ours: an axis is one up to its sign."""
    return wanted * np.sign((ours * wanted).sum(axis=0))


def train_vectors(prepared: Prepared) -> np.ndarray:
    return prepared.vectors.take(prepared.train).astype(np.float64)


@pytest.mark.parametrize("d", [1, 8, 32])
def test_pca_is_scikit_learns(build: Build, prepared: Prepared, d: int) -> None:
    from sklearn.decomposition import PCA

    rows = np.arange(prepared.vectors.rows)
    fitted = PCA(d, svd_solver="full").fit(train_vectors(prepared))
    ours = build("pca", output_dim=d).embed(rows)
    wanted = fitted.transform(prepared.vectors.take(rows).astype(np.float64))
    assert ours == pytest.approx(up_to_sign(ours, wanted), abs=1e-4)


def test_whitening_is_the_formula(build: Build, prepared: Prepared) -> None:
    """(x - mean) V_d / sigma_d by the singular vectors of the centred sample, another way to U L^{-1/2}."""
    rows = np.arange(prepared.vectors.rows)
    sample = train_vectors(prepared)
    _, singular, axes = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)
    deviations = singular / np.sqrt(len(sample))
    wanted = (prepared.vectors.take(rows) - sample.mean(axis=0)) @ axes[:8].T / deviations[:8]
    ours = build("whitening").embed(rows)
    assert ours == pytest.approx(up_to_sign(ours, wanted), abs=1e-3)


def test_whitened_training_sentences_have_the_identity_as_covariance(build: Build, prepared: Prepared) -> None:
    vectors = build("whitening").embed(prepared.train).astype(np.float64)
    assert vectors.mean(axis=0) == pytest.approx(np.zeros(8), abs=1e-3)
    assert np.cov(vectors, rowvar=False, bias=True) == pytest.approx(np.eye(8), abs=1e-3)


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
def test_a_power_whitens_a_part_of_the_way(build: Build, prepared: Prepared, power: float) -> None:
    sample = train_vectors(prepared).astype(np.float64)
    variances = np.linalg.eigvalsh(np.cov(sample, rowvar=False, bias=True))[::-1][:8]
    vectors = build("whitening", power=power).embed(prepared.train).astype(np.float64)
    covariance = np.cov(vectors, rowvar=False, bias=True)
    assert covariance == pytest.approx(np.diag(variances ** (1 - power)), rel=1e-3, abs=1e-3 * covariance.max())


def test_directions_without_variance_stay_at_zero() -> None:
    flat = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    flat[:, 3:] = flat[:, :3] @ np.ones((3, 3), dtype=np.float32)  # rank 4
    out = whitening_head(flat, 6)(torch.from_numpy(flat)).detach().numpy()
    assert np.cov(out, rowvar=False, bias=True) == pytest.approx(np.diag([1, 1, 1, 0, 0, 0]), abs=1e-3)


def test_a_single_number_can_be_whitened() -> None:
    x = np.array([[1.0], [2.0], [6.0]], dtype=np.float32)
    out = whitening_head(x, 1)(torch.from_numpy(x)).detach().numpy()
    assert np.abs(out[:, 0]) == pytest.approx(np.abs((x[:, 0] - 3) / x.std()), abs=1e-5)


def test_random_projection_is_orthonormal_and_seeded(build: Build, prepared: Prepared) -> None:
    first, again, other = (build("random_projection", seed=seed) for seed in (3, 3, 4))
    basis = first.head[0].linear.weight.double().numpy()
    assert basis @ basis.T == pytest.approx(np.eye(8), abs=1e-6)
    rows = prepared.train[:20]
    assert first.embed(rows) == pytest.approx(prepared.vectors.take(rows) @ basis.T, abs=1e-6)
    assert np.array_equal(first.embed(rows), again.embed(rows))
    assert np.abs(first.embed(rows) - other.embed(rows)).max() > 0.1


@pytest.mark.parametrize("name", ["pca", "mcr2"])
def test_chunks_change_nothing(build: Build, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    method = build(name)
    rows = method.prepared.train[:20]
    whole = method.embed(rows)
    monkeypatch.setattr(heads, "ROWS", 7)
    assert method.embed(rows) == pytest.approx(whole, abs=1e-6)
    assert method.embed(rows[:0]).shape == (0, 8)


def test_an_export_keeps_the_teachers_prompt_and_length(build: Build, prepared: Prepared, tmp_path: Path) -> None:
    from dataclasses import replace

    from sentence_transformers import SentenceTransformer

    teacher = replace(prepared.teacher, prompt="how do i ", max_tokens=12)
    build("pca", on=replace(prepared, teacher=teacher)).export(tmp_path / "student")
    student = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    assert student.max_seq_length == 12
    plain = student.encode(["pay the dog"], prompt="")
    asked = student.encode(["how do i pay the dog"], prompt="")
    assert student.encode(["pay the dog"]) == pytest.approx(asked, abs=1e-6)
    assert np.abs(plain - asked).max() > 1e-3
