"""MCR2's head: what goes into its loss, its residual start, and clusters that an export finds again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.evaluation.geometry import geometry
from distilbench.methods.mcr2 import MCR2
from distilbench.training.loop import Trainer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from cluster_head import load_cluster_head


def test_the_head_is_trained_in_float32_where_all_else_is_in_bfloat16(build: Callable[..., Any]) -> None:
    method, losses = build("mcr2"), []
    for bf16 in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            losses.append(method.compression.loss(np.arange(12)).item())
    assert losses[0] == losses[1]


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
    monkeypatch.setattr(mcr2, "mcr2_loss", lambda *views, **weights: seen.append((views, weights)) or torch.zeros(()))
    index, prepared = np.array([4, 0, 9, 11]), method.prepared
    torch.manual_seed(0)
    method.compression.loss(index)
    ((z1, z2, p), weights) = seen[0]
    assert weights == {"lam": 50.0, "eps2": 0.2, "gamma": 0.7, "wait": True}
    if pairs == "duplicates":
        sides = prepared.pairs_P2[index].T
        views = [method.embed(rows) for rows in sides]
        logits = [method.compression(torch.from_numpy(prepared.vectors.take(rows)))[1] for rows in sides]
        hard = [np.eye(4)[side.argmax(dim=1).numpy()] for side in logits]
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


@pytest.mark.parametrize(("head", "centre"), [("elu", False), ("residual", True)])
def test_clusters_are_those_of_the_largest_logit_and_the_export_finds_them(
    build: Callable[..., Any], sentences: list[str], tmp_path: Path, head: str, centre: bool
) -> None:
    method = build("mcr2", head=head, centre=centre, clusters=6, steps=20)
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
    clusters = logits.argmax(axis=1)
    assert len(np.unique(clusters)) > 2
    method.export(tmp_path / "student")
    cluster_head = load_cluster_head(tmp_path / "student")
    assert cluster_head is not None and cluster_head.clusters == 6
    outside = cluster_head.assign(cluster_head.states([sentences[r] for r in rows]))
    # The cached vectors that the method reads are float16: a sentence between two clusters may fall into the other.
    assert (outside == clusters).mean() >= 0.95


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
    left, right = ([f"{side} {i}" for i in range(10)] for side in ("left", "right"))
    builder.add_pairs(left, right)
    builder.train_on([*left, *right])
    given = {"output_dim": 8, "batch_size": 8, "clusters": 4, "pairs": "duplicates"}

    def possible(**changed: Any) -> Callable[[str], list[Any]]:
        values = {**given, **changed}
        return lambda name: values[name] if isinstance(values[name], list) else [values[name]]

    MCR2.check_corpus(possible(), builder.build(), 32)
    MCR2.check_corpus(possible(pairs="noise", clusters=16), builder.build(), 32)
    with pytest.raises(InputError, match=message):
        MCR2.check_corpus(possible(**params), builder.build(), 32)


def test_a_table_tells_the_kind_of_pairs() -> None:
    assert MCR2.variant({"pairs": "noise"}) == "noise"


def test_isotropic_noise_has_the_relative_norm_and_turns_the_vector(build: Callable[..., Any]) -> None:
    """x + sigma ||x|| n / sqrt(D): on average sigma^2 ||x||^2 is added to the squared norm, in every direction alike."""
    compression = build("mcr2", pairs="noise", noise_kind="isotropic", noise=0.3).compression
    x = 5 * torch.randn(1, 32, generator=torch.Generator().manual_seed(0)).expand(20000, 32)
    torch.manual_seed(1)
    added = (compression._noisy(x) - x) / x.norm(dim=-1, keepdim=True)
    assert added.square().sum(dim=-1).mean().item() == pytest.approx(0.09, rel=0.02)
    assert added.var(dim=0).numpy() == pytest.approx(np.full(32, 0.09 / 32), rel=0.1)


@pytest.mark.parametrize("head", ["elu", "residual"])
def test_a_centred_head_gives_unit_vectors_around_zero(build: Callable[..., Any], head: str) -> None:
    """(u - mean u) / ||u - mean u||, u the unit vectors of the same head without a centre."""
    plain, centred = (build("mcr2", head=head, centre=centre) for centre in (False, True))
    rows = plain.prepared.train
    u = plain.embed(rows).astype(np.float64)
    wanted = u - u.mean(axis=0)
    assert np.linalg.norm(u.mean(axis=0)) > 0.01
    assert centred.embed(rows) == pytest.approx(wanted / np.linalg.norm(wanted, axis=1, keepdims=True), abs=1e-4)


def test_a_crowded_head_is_spread_out_by_its_centre(build: Callable[..., Any]) -> None:
    plain, centred = (build("mcr2", head="residual", centre=centre) for centre in (False, True))
    for method in (plain, centred):
        with torch.no_grad():
            method.compression.features.linear.bias += 100.0
    rows = plain.prepared.train
    assert geometry(plain.embed(rows)).variance < 1e-3 < 0.5 < geometry(centred.embed(rows)).variance
