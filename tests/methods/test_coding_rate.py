"""MCR2's loss against a slow double-precision reference, closed forms and differences; its extremes, its memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from distilbench.methods.parts import coding_rate as module
from distilbench.methods.parts.coding_rate import (
    can_replay,
    cluster_coding_rates,
    coding_rate,
    mcr2_loss,
    working_dtype,
)


def reference(z1: np.ndarray, z2: np.ndarray, p: np.ndarray, lam: float, eps2: float, gamma: float) -> float:
    """The formulas of the paper, one determinant at a time, in double precision."""
    z = z1 + z2
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    n, d = z.shape
    whole = 0.5 * np.linalg.slogdet(np.eye(d) + d / (n * eps2) * z.T @ z)[1]
    parts = 0.0
    for k in range(p.shape[1]):
        if (size := p[:, k].sum()) > 0:
            inner = np.eye(d) + d / (size * eps2) * z.T @ np.diag(p[:, k]) @ z
            parts += size / (2 * n) * np.linalg.slogdet(inner)[1]
    return float(-whole + gamma * parts - lam * (z1 * z2).sum(axis=1).mean())


def reference_gradients(z: torch.Tensor, p: torch.Tensor, eps2: float) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The clusters' rate and its gradients by autograd through an LU determinant per cluster, in double precision."""
    z, p = (v.detach().double().requires_grad_() for v in (z, p))
    (n, d), size = z.shape, p.sum(dim=0)
    eye = torch.eye(d, dtype=torch.float64)
    members = [k for k in range(p.shape[1]) if size[k] > 0]
    inner = {k: eye + d / (size[k] * eps2) * z.T @ (p[:, k, None] * z) for k in members}
    total = torch.stack([size[k] / (2 * n) * torch.linalg.slogdet(inner[k])[1] for k in members]).sum()
    return total.item(), *torch.autograd.grad(total, (z, p))


def draw(n: int, d: int, k: int, seed: int = 0, spread: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z1, z2 = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.standard_normal((2, n, d)))
    p = rng.dirichlet(np.full(k, spread), size=n)
    return z1, z2, p


def unit(n: int, d: int, kind: str = "random") -> torch.Tensor:
    """Rows of norm 1: independent, in five copies, all but equal, or all equal."""
    z = torch.tensor(draw(n, d, 1)[0])
    if kind == "copies":
        z = z[torch.arange(n) % 5 % n]
    if kind == "near":
        z = functional.normalize(z[:1] + 1e-3 * z, dim=1)
    if kind == "equal":
        z = z[:1].expand(n, d)
    return z.clone()


def memberships(n: int, k: int, kind: str = "gumbel") -> torch.Tensor:
    """Gumbel-softmax at the paper's temperature, all equal, or one cluster each (with k > 3 most are empty)."""
    if kind == "even":
        return torch.full((n, k), 1 / k, dtype=torch.float64)
    if kind == "hard":
        return torch.eye(k, dtype=torch.float64)[torch.arange(n) % 3 % k]
    generator = torch.Generator().manual_seed(0)
    gumbel = -torch.empty(n, k, dtype=torch.float64).exponential_(generator=generator).log()
    return torch.softmax(gumbel / 0.2, dim=1)


def value_and_gradients(
    z: torch.Tensor, p: torch.Tensor, eps2: float, **how: int
) -> tuple[float, torch.Tensor, torch.Tensor]:
    z, p = (v.detach().requires_grad_() for v in (z, p))
    rate = cluster_coding_rates(z, p, eps2, **how)
    return rate.item(), *torch.autograd.grad(rate, (z, p))


def difference(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference, relative to the expected norm."""
    return float((ours.double() - expected).norm() / expected.norm())


SHAPES = [
    (32, 8, 4),  # d x d form
    (8, 32, 4),  # B x B form (Sylvester)
    (16, 16, 3),  # the border
    (24, 8, 1),  # one cluster: its rate is the whole's
    (24, 40, 60),  # more clusters than rows
    (2, 2, 1),  # the smallest
]


@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
@pytest.mark.parametrize("spread", [0.3, 0.002])  # 0.002: most memberships are below rounding
@pytest.mark.parametrize("eps2", [0.01, 0.5])
def test_loss_equals_the_reference(n: int, d: int, k: int, spread: float, eps2: float) -> None:
    z1, z2, p = draw(n, d, k, spread=spread)
    ours = mcr2_loss(torch.tensor(z1), torch.tensor(z2), torch.tensor(p), lam=7.0, eps2=eps2, gamma=0.8)
    assert ours.item() == pytest.approx(reference(z1, z2, p, 7.0, eps2, 0.8), rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(12, 5), (5, 12), (2, 2)])
def test_gradients_equal_finite_differences(n: int, d: int) -> None:
    z1, z2, p = (torch.tensor(v, requires_grad=True) for v in draw(n, d, 3, spread=3))
    assert torch.autograd.gradcheck(
        lambda a, b, c: mcr2_loss(a, b, c, lam=3.0, eps2=0.1, gamma=1.0), (z1, z2, p), eps=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["gumbel", "even", "hard"])
@pytest.mark.parametrize(("n", "d", "k"), [(32, 8, 4), (8, 32, 4), (24, 40, 60), (40, 24, 100)])
def test_gradients_equal_autograd_through_lu(n: int, d: int, k: int, kind: str) -> None:
    """Also for rows that are no members (hard), for which one-sided differences would be needed."""
    z, p = unit(n, d), memberships(n, k, kind)
    rate, dz, dp = reference_gradients(z, p, 0.01)
    ours = value_and_gradients(z, p, 0.01)
    used = p.sum(dim=0) > 0  # an empty cluster has no two-sided derivative
    assert ours[0] == pytest.approx(rate, rel=1e-9)
    assert difference(ours[1], dz) < 1e-8
    assert difference(ours[2][:, used], dp[:, used]) < 1e-8


def test_an_empty_cluster_has_its_one_sided_derivative() -> None:
    z, p, step = unit(6, 4), torch.zeros(6, 3, dtype=torch.float64), 1e-7
    p[:, 0] = 1
    rate, _, dp = value_and_gradients(z, p, 0.1)
    for row, cluster in ((0, 1), (5, 2)):
        moved = p.clone()
        moved[row, cluster] += step
        slope = (cluster_coding_rates(z, moved, 0.1).item() - rate) / step
        assert dp[row, cluster].item() == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("wanted", ["z", "p"])
def test_one_gradient_alone_is_the_same(wanted: str) -> None:
    z, p = unit(12, 5), memberships(12, 7)
    _, dz, dp = value_and_gradients(z, p, 0.1)
    leaf = (z if wanted == "z" else p).requires_grad_()
    cluster_coding_rates(z, p, 0.1).mul(3).backward()
    assert leaf.grad is not None
    assert difference(leaf.grad, 3 * (dz if wanted == "z" else dp)) < 1e-12


def test_without_gradients_the_value_is_the_same() -> None:
    z, p = unit(12, 5).requires_grad_(), memberships(12, 7)
    with torch.no_grad():
        alone = cluster_coding_rates(z, p, 0.1)
    assert not alone.requires_grad
    assert alone.item() == cluster_coding_rates(z, p, 0.1).item()


def test_a_single_cluster_compresses_to_the_whole() -> None:
    z = unit(20, 6)
    rates = cluster_coding_rates(z, torch.ones(20, 1, dtype=z.dtype), 0.1)
    expected = 0.5 * torch.logdet(torch.eye(6, dtype=z.dtype) + 6 / (20 * 0.1) * z.T @ z)
    assert rates.item() == pytest.approx(expected.item(), rel=1e-12)
    assert coding_rate(z, 0.1).item() == rates.item()


def test_orthogonal_clusters_have_the_closed_form() -> None:
    """Two clusters of m copies of e1 and of e2: R = 1/2 log(1 + d m / (n eps2)) x 2, R_k = m/(2n) log(1 + d / eps2)."""
    m, d, eps2 = 10, 4, 0.25
    z = torch.zeros(2 * m, d, dtype=torch.float64)
    z[:m, 0] = z[m:, 1] = 1
    p = torch.zeros(2 * m, 2, dtype=torch.float64)
    p[:m, 0] = p[m:, 1] = 1
    assert coding_rate(z, eps2).item() == pytest.approx(np.log(1 + d * m / (2 * m * eps2)))
    assert cluster_coding_rates(z, p, eps2).item() == pytest.approx(0.5 * np.log(1 + d / eps2), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d"), [(40, 8), (8, 40), (2, 1)])
@pytest.mark.parametrize("eps2", [1e-6, 0.01, 0.5])
@pytest.mark.parametrize("kind", ["gumbel", "even", "hard"])
def test_equal_rows_have_the_closed_form(n: int, d: int, eps2: float, kind: str, dtype: torch.dtype) -> None:
    """R = 1/2 log(1 + d / eps2), and the clusters' rates sum to the same whatever the memberships."""
    z, p = unit(n, d, "equal").to(dtype), memberships(n, 30, kind).to(dtype)
    expected = 0.5 * np.log(1 + d / eps2)
    rel = 1e-3 if dtype == torch.float32 else 1e-8
    assert coding_rate(z, eps2).item() == pytest.approx(expected, rel=rel)
    assert cluster_coding_rates(z, p, eps2).item() == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("kind", ["gumbel", "even", "hard"])
@pytest.mark.parametrize(("n", "d"), [(32, 8), (8, 32), (30, 24)])
def test_chunks_change_nothing(n: int, d: int, kind: str) -> None:
    z, p = unit(n, d), memberships(n, 50, kind)
    whole = value_and_gradients(z, p, 0.01, workspace=2**30)
    for workspace in (1, 30_000):  # one cluster at a time; a last chunk that is not full
        part = value_and_gradients(z, p, 0.01, workspace=workspace)
        assert part[0] == pytest.approx(whole[0], rel=1e-12)
        assert difference(part[1], whole[1]) < 1e-11 and difference(part[2], whole[2]) < 1e-11


@pytest.mark.parametrize(("n", "d", "k"), [(24, 6, 5), (6, 24, 5), (16, 16, 40)])
@pytest.mark.parametrize("kind", ["gumbel", "even", "hard"])
def test_without_a_look_at_the_device_the_values_are_the_same(n: int, d: int, k: int, kind: str) -> None:
    z, p = unit(n, d), memberships(n, k, kind)
    expected, found = (value_and_gradients(z, p, 0.05, wait=wait) for wait in (True, False))
    assert found[0] == pytest.approx(expected[0], rel=1e-10)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-10)
    whole = [coding_rate(z, 0.05, wait=wait).item() for wait in (True, False)]
    assert whole[1] == pytest.approx(whole[0], rel=1e-10)


def test_what_cannot_be_factorised_is_an_error_or_not_a_number() -> None:
    z, p = unit(12, 4), memberships(12, 3)
    p[0, 0] = -1e6
    with pytest.raises(torch.linalg.LinAlgError):
        cluster_coding_rates(z, p, 0.05)
    assert cluster_coding_rates(z, p, 0.05, wait=False).isnan()


def test_only_steps_of_little_arithmetic_are_replayed() -> None:
    assert can_replay(500, 256, 128)
    assert not can_replay(8192, 256, 128)


@pytest.mark.parametrize("kind", ["gumbel", "even", "hard"])
@pytest.mark.parametrize("rows", ["random", "copies", "near", "equal"])
def test_both_forms_agree(rows: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    z, p = unit(30, 24, rows), memberships(30, 50, kind)
    found = []
    for cost in (0, sys.maxsize):  # always R x R, always d x d
        monkeypatch.setattr(module, "_cost_by_rows", lambda *_, cost=cost: cost)
        found.append(value_and_gradients(z, p, 0.01))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-10)
    assert difference(found[0][1], found[1][1]) < 1e-8 and difference(found[0][2], found[1][2]) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gumbel", "even", "hard"])
@pytest.mark.parametrize("rows", ["random", "copies", "near", "equal"])
@pytest.mark.parametrize("eps2", [1e-6, 0.01])
@pytest.mark.parametrize(("n", "d", "k"), [(2, 1, 1), (2, 8, 64), (96, 50, 64), (64, 128, 1), (64, 128, 200)])
def test_ill_conditioned_batches_in_float32(n: int, d: int, k: int, eps2: float, rows: str, kind: str) -> None:
    """Finite, and near the double-precision reference on the same rounded inputs."""
    z, p = functional.normalize(unit(n, d, rows).float(), dim=1), memberships(n, k, kind).float()
    rate, dz, dp = reference_gradients(z, p, eps2)
    ours = value_and_gradients(z, p, eps2)
    used = p.sum(dim=0) > 0
    assert torch.isfinite(ours[1]).all() and torch.isfinite(ours[2]).all()
    assert ours[0] == pytest.approx(rate, rel=1e-3)
    assert difference(ours[1], dz) < 0.02
    assert difference(ours[2][:, used], dp[:, used]) < 0.02


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


def test_memberships_of_denormal_size_and_opposed_views_stay_finite() -> None:
    z = unit(16, 8).float().requires_grad_()
    p = torch.full((16, 5), 1e-42).index_fill_(1, torch.tensor([0]), 1.0).requires_grad_()
    loss = mcr2_loss(z, -z, p, lam=1.0, eps2=0.01, gamma=1.0)  # their mean has no direction: a row of zeros
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(z.grad).all() and torch.isfinite(p.grad).all()


def test_8192_clusters() -> None:
    z, logits = unit(256, 16).float().requires_grad_(), torch.zeros(256, 8192, requires_grad=True)
    torch.manual_seed(0)
    p = sum(functional.gumbel_softmax(logits, tau=0.2) for _ in range(2)) / 2
    loss = mcr2_loss(z, unit(256, 16, "near").float(), p, lam=1.0, eps2=0.01, gamma=1.0)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(z.grad).all() and torch.isfinite(logits.grad).all()
    expected = reference(
        z.detach().double().numpy(), unit(256, 16, "near").numpy(), p.detach().double().numpy(), 1, 0.01, 1
    )
    assert loss.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_under_autocast_is_computed_in_float32(half: torch.dtype) -> None:
    z1, z2, p = (torch.tensor(v).to(half).requires_grad_() for v in draw(64, 24, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = mcr2_loss(z1, z2, p, lam=3.0, eps2=0.01, gamma=1.0)
    loss.backward()
    whole = mcr2_loss(z1.detach().double(), z2.detach().double(), p.detach().double(), lam=3.0, eps2=0.01, gamma=1.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(whole.item(), rel=1e-5)
    for leaf in (z1, z2, p):
        assert leaf.grad is not None and leaf.grad.dtype == half and torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize(
    ("dtype", "terms", "trace", "expected"),
    [
        (torch.float32, 256, 200 / 0.01, torch.float32),  # the paper's setting
        (torch.float32, 300, 300 / 0.01, torch.float32),
        (torch.float32, 768, 768 / 0.01, torch.float64),
        (torch.float32, 256, 50 / 1e-6, torch.float64),
        (torch.float64, 2, 1, torch.float64),
    ],
)
def test_the_working_type_follows_the_trace(
    dtype: torch.dtype, terms: int, trace: float, expected: torch.dtype
) -> None:
    assert working_dtype(dtype, terms, trace) == expected


GROWTH = """
import re, torch
from distilbench.methods.parts.coding_rate import cluster_coding_rates
def run(clusters, workspace):
    z = torch.nn.functional.normalize(torch.randn(64, 64), dim=1).requires_grad_()
    p = torch.softmax(torch.randn(64, clusters), dim=1).requires_grad_()
    cluster_coding_rates(z, p, 0.01, workspace=workspace).backward()
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
run(8, 2**20)
start = peak()
run(4096, 16 * 2**20)
bounded = peak()
run(4096, 2**31)
print(bounded - start, peak() - start)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="reads /proc; ru_maxrss would count the peak of the process that forked"
)
def test_memory_is_the_workspace_not_the_clusters() -> None:
    """The growth of a fresh process's peak. One copy of all 4,096 matrices takes 67 MB."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GROWTH]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    bounded, unbounded = map(int, told.split())
    assert bounded < 48 * 2**20
    assert unbounded > 150 * 2**20  # the measurement sees it where it is there
