"""MCR2's loss against a slow double-precision reference, closed forms and finite differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from distilbench.methods.mcr2 import cluster_coding_rates, coding_rate, mcr2_loss


def reference(z1: np.ndarray, z2: np.ndarray, p: np.ndarray, lam: float, eps2: float, gamma: float) -> float:
    """The formulas of the paper, one determinant at a time, in double precision."""
    z = z1 + z2
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    n, d = z.shape
    whole = 0.5 * np.linalg.slogdet(np.eye(d) + d / (n * eps2) * z.T @ z)[1]
    parts = 0.0
    for k in range(p.shape[1]):
        size = p[:, k].sum()
        inner = np.eye(d) + d / (size * eps2) * z.T @ np.diag(p[:, k]) @ z
        parts += size / (2 * n) * np.linalg.slogdet(inner)[1]
    return float(-whole + gamma * parts - lam * (z1 * z2).sum(axis=1).mean())


def draw(n: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z1, z2 = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.standard_normal((2, n, d)))
    p = rng.dirichlet(np.full(k, 0.3), size=n)
    return z1, z2, p


@pytest.mark.parametrize(
    ("n", "d", "k"),
    [
        (32, 8, 4),  # d x d form
        (8, 32, 4),  # B x B form (Sylvester)
        (16, 16, 3),  # the border
        (24, 8, 1),  # one cluster: its rate is the whole's
    ],
)
@pytest.mark.parametrize("eps2", [0.01, 0.5])
def test_loss_equals_the_reference(n: int, d: int, k: int, eps2: float) -> None:
    z1, z2, p = draw(n, d, k)
    ours = mcr2_loss(torch.tensor(z1), torch.tensor(z2), torch.tensor(p), lam=7.0, eps2=eps2, gamma=0.8)
    assert ours.item() == pytest.approx(reference(z1, z2, p, 7.0, eps2, 0.8), rel=1e-6)


@pytest.mark.parametrize(("n", "d"), [(12, 5), (5, 12)])
def test_gradients_equal_finite_differences(n: int, d: int) -> None:
    z1, z2, p = (torch.tensor(v, requires_grad=True) for v in draw(n, d, 3))
    assert torch.autograd.gradcheck(
        lambda a, b, c: mcr2_loss(a, b, c, lam=3.0, eps2=0.1, gamma=1.0), (z1, z2, p), eps=1e-6, atol=1e-5
    )


def test_a_single_cluster_compresses_to_the_whole() -> None:
    z = torch.tensor(draw(20, 6, 1)[0])
    rates = cluster_coding_rates(z, torch.ones(20, 1, dtype=z.dtype), 0.1)
    assert rates.item() == pytest.approx(coding_rate(z, 0.1).item(), rel=1e-9)


def test_orthogonal_clusters_have_the_closed_form() -> None:
    """Two clusters of m copies of e1 and of e2: R = 1/2 log(1 + d m / (n eps2)) x 2, R_k = m/(2n) log(1 + d / eps2)."""
    m, d, eps2 = 10, 4, 0.25
    z = torch.zeros(2 * m, d, dtype=torch.float64)
    z[:m, 0] = z[m:, 1] = 1
    p = torch.zeros(2 * m, 2, dtype=torch.float64)
    p[:m, 0] = p[m:, 1] = 1
    assert coding_rate(z, eps2).item() == pytest.approx(np.log(1 + d * m / (2 * m * eps2)))
    assert cluster_coding_rates(z, p, eps2).item() == pytest.approx(0.5 * np.log(1 + d / eps2), rel=1e-6)


@pytest.mark.parametrize("d", [4, 40])
def test_hard_memberships_and_empty_clusters_stay_finite(d: int) -> None:
    z1, z2, _ = draw(16, d, 1)
    logits = torch.zeros(16, 64, requires_grad=True)
    p = torch.softmax(logits + 200 * torch.eye(64)[torch.arange(16) % 3], dim=-1)
    z = torch.tensor(z1, dtype=torch.float32, requires_grad=True)
    loss = mcr2_loss(z, torch.tensor(z2, dtype=torch.float32), p, lam=1.0, eps2=0.01, gamma=1.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(z.grad).all() and torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("head", ["elu", "residual"])
@pytest.mark.parametrize("pairs", ["duplicates", "noise"])
def test_export_is_the_trained_student(prepared_folder: Path, tmp_path: Path, head: str, pairs: str) -> None:
    from sentence_transformers import SentenceTransformer

    from distilbench.prepare.prepared import load_prepared
    from distilbench.search.trial import build_method
    from distilbench.training.loop import Trainer

    prepared = load_prepared(prepared_folder)
    params = {
        "output_dim": 8,
        "lambda": 50.0,
        "clusters": 4,
        "lr": 0.01,
        "batch_size": 16,
        "head": head,
        "pairs": pairs,
    }
    method = build_method("mcr2", params, prepared, 0, "cpu")
    rows = prepared.train[:20]
    start = method.embed(rows)
    Trainer(method, 0, 5).train_until(5)
    trained = method.embed(rows)
    assert np.abs(trained - start).max() > 1e-3
    assert np.linalg.norm(trained, axis=1) == pytest.approx(1, abs=1e-5)
    method.export(tmp_path / "student")
    sentences = (prepared_folder / "sentences.txt").read_text().split("\n")
    outside = SentenceTransformer(str(tmp_path / "student"), device="cpu").encode([sentences[r] for r in rows])
    assert outside == pytest.approx(trained, abs=5e-3)  # the cached teacher vectors are float16


def test_the_residual_head_starts_as_the_pca(prepared_folder: Path) -> None:
    from distilbench.prepare.prepared import load_prepared
    from distilbench.search.trial import build_method

    prepared = load_prepared(prepared_folder)
    params = {"output_dim": 8, "lambda": 1.0, "clusters": 4, "lr": 0.01, "batch_size": 16, "head": "residual"}
    ours = build_method("mcr2", params, prepared, 0, "cpu").embed(prepared.train)
    pca = prepared.pca.project(prepared.vectors.take(prepared.train), 8)
    assert ours == pytest.approx(pca / np.linalg.norm(pca, axis=1, keepdims=True), abs=1e-4)
