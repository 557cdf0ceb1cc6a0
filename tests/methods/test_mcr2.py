"""MCR2's loss against a slow double-precision reference, closed forms and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.mcr2 import Trainable
from distilbench.methods.parts.cluster_head import assign_sentences
from distilbench.methods.parts.coding_rate import cluster_coding_rates, coding_rate, mcr2_loss
from distilbench.training.loop import Trainer


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
def test_the_loss_of_a_batch_is_mcr2s(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, head: str, pairs: str
) -> None:
    """Unit features of both views, the mean of their memberships, which the logits decide where they are large."""
    from distilbench.methods import mcr2

    method = build("mcr2", head=head, pairs=pairs, gamma=0.7, eps2=0.2, noise=0.5)
    with torch.no_grad():
        method.compression.logits.weight *= 1000  # the Gumbel noise no longer decides
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(mcr2, "mcr2_loss", lambda *views, **weights: seen.append((views, weights)))
    index, prepared = np.array([4, 0, 9, 11]), method.prepared
    torch.manual_seed(0)
    method.compression.loss(index)
    ((z1, z2, p), weights) = seen[0]
    assert weights == {"lam": 50.0, "eps2": 0.2, "gamma": 0.7}
    if pairs == "duplicates":
        sides = prepared.pairs_P2[index].T
        views = [method.embed(rows) for rows in sides]
        hard = [np.eye(4)[method.assign()(rows)] for rows in sides]
        assert p.detach().numpy() == pytest.approx((hard[0] + hard[1]) / 2, abs=0.02)
        assert z1.detach().numpy() == pytest.approx(views[0], abs=1e-5)
        assert z2.detach().numpy() == pytest.approx(views[1], abs=1e-5)
    else:
        torch.manual_seed(0)
        x = prepared.vectors.take(prepared.train[index])
        for z in (z1, z2):  # x (1 + sigma n), one number n for a row
            noisy = torch.from_numpy(x) * (1 + 0.5 * torch.randn(4, 1))
            assert z.detach().numpy() == pytest.approx(method.apply_head(noisy).detach().numpy(), abs=1e-5)
    assert p.sum(dim=1).detach().numpy() == pytest.approx(np.ones(4), abs=1e-5)


def test_training_lowers_the_loss(build: Callable[..., Any]) -> None:
    trainer = Trainer(build("mcr2", steps=60, **{"lambda": 1.0}), 0, 60)
    first = trainer.train_until(5)
    trainer.train_until(55)
    assert trainer.train_until(60) < first - 0.5


def test_embeddings_are_of_unit_norm(build: Callable[..., Any]) -> None:
    method = build("mcr2")
    assert np.linalg.norm(method.embed(method.prepared.train), axis=1) == pytest.approx(1, abs=1e-5)


def test_the_residual_head_starts_as_the_pca(build: Callable[..., Any]) -> None:
    method = build("mcr2", head="residual")
    train = method.prepared.train
    pca = method.prepared.pca.project(method.prepared.vectors.take(train), 8)
    assert method.embed(train) == pytest.approx(pca / np.linalg.norm(pca, axis=1, keepdims=True), abs=1e-4)


def layer(dense: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    return x @ dense.weight.detach().double().numpy().T + dense.bias.detach().double().numpy()


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


@pytest.mark.parametrize("head", ["elu", "residual"])
def test_clusters_are_those_of_the_largest_logit_and_the_export_finds_them(
    build: Callable[..., Any], sentences: list[str], tmp_path: Path, head: str
) -> None:
    method = build("mcr2", head=head, clusters=6, steps=20)
    Trainer(method, 0, 20).train_until(20)
    rows = method.prepared.train
    # So little training leaves most sentences in one cluster; with logits of mean 0 each has its own.
    with torch.no_grad():
        method.compression.logits.bias -= method.compression(torch.from_numpy(method.prepared.vectors.take(rows)))[
            1
        ].mean(0)
    x = method.prepared.vectors.take(rows).astype(np.float64)
    for trunk in method.compression.trunk:
        x = elu(layer(trunk.linear, x)) + (x if head == "residual" else 0)
    logits = layer(method.compression.logits, x)
    clusters = method.assign()(rows)
    assert np.array_equal(clusters, logits.argmax(axis=1))
    assert len(np.unique(clusters)) > 2
    assert method.assign()(rows[:0]).shape == (0,)
    method.export(tmp_path / "student")
    outside = assign_sentences(tmp_path / "student", [sentences[r] for r in rows])
    # The cached vectors that the method reads are float16: a sentence between two clusters may fall into the other.
    assert (outside == clusters).mean() >= 0.95


def test_a_student_without_clusters_is_named(build: Callable[..., Any], tmp_path: Path) -> None:
    assert build("pca").assign() is None
    build("pca").export(tmp_path / "pca")
    with pytest.raises(InputError, match=r"no cluster head .*expected a student exported by mcr2"):
        assign_sentences(tmp_path / "pca", ["a man walks"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"pairs": ["duplicates", "noise"], "clusters": 16},
            "clusters is 16, but the corpus has only 10 similar pairs",
        ),
        ({"batch_size": 16}, "batch_size is 16, but the corpus has only 10 similar pairs"),
        ({"pairs": ["noise"], "batch_size": 32}, "batch_size is 32, but the corpus has only 20 training sentences"),
        ({"output_dim": 64}, "output_dim: 64 is above the 32"),
    ],
)
def test_what_the_corpus_cannot_give_is_said(params: dict[str, Any], message: str) -> None:
    builder = CorpusBuilder("test")
    builder.train_pairs([f"left {i}" for i in range(10)], [f"right {i}" for i in range(10)])
    given = {"output_dim": 8, "batch_size": 8, "clusters": 4, "pairs": "duplicates"}

    def possible(**changed: Any) -> Callable[[str], list[Any]]:
        values = {**given, **changed}
        return lambda name: values[name] if isinstance(values[name], list) else [values[name]]

    Trainable.check_corpus(possible(), builder.build(), 32)
    Trainable.check_corpus(possible(pairs="noise", clusters=16), builder.build(), 32)
    with pytest.raises(InputError, match=message):
        Trainable.check_corpus(possible(**params), builder.build(), 32)


def test_a_table_tells_the_kind_of_pairs() -> None:
    assert Trainable.variant({"pairs": "noise"}) == "noise"
