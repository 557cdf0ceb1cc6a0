"""What projections start from, nested widths, and how an encoder is trained: frozen embeddings, no dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from samples import demonstration

from distilbench.errors import InputError
from distilbench.methods.hpd import HPD as Hpd
from distilbench.methods.parts.starts import principal_axes, regression
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer

Build = Callable[..., Any]
DISTILLED = ("hpd", "mse", "crd", "ibkd", "mcr2_distil")


def test_axes_are_scikit_learns() -> None:
    from sklearn.decomposition import PCA

    states = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32) @ np.diag([5, 4, 3, 2, 1, 0.5])
    found, wanted = principal_axes(states, 3), PCA(3).fit(states)
    projected = states @ found.weight_Dd + found.bias_d
    assert np.abs(projected) == pytest.approx(np.abs(wanted.transform(states)), abs=1e-4)


def test_weights_of_another_shape_are_refused() -> None:
    states = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    with pytest.raises(ValueError, match="weights of"):
        regression(states, states[:, :2]).copy_to(torch.nn.Linear(4, 3))


@pytest.mark.parametrize("method", ["contrastive", "hpd"])
def test_a_projection_starts_as_the_axes_of_the_students_own_states(build: Build, method: str) -> None:
    made = build(method, projection_start="pca", start_sentences=50).eval()
    chosen = made.prepared.train[np.linspace(0, len(made.prepared.train) - 1, 50).astype(np.int64)]
    axes = principal_axes(made.states(chosen), 8)
    assert made.embed(chosen) == pytest.approx(made.states(chosen) @ axes.weight_Dd + axes.bias_d, abs=1e-4)


def test_the_distilled_student_of_mcr2_starts_at_the_heads_features(build: Build) -> None:
    """The regression is made when the head has been trained, not before."""
    made = build("mcr2_distil", projection_start="regression", activation="identity", steps=6)
    trainer = Trainer(made, 0, 12)
    trainer.train_until(trainer.starts[1])
    targets = made.compression.embed(made.prepared.train)
    trainer._enter(1, first=True)
    missed = np.square(made.eval().embed(made.prepared.train) - targets).sum(axis=1).mean()
    assert missed < 0.7 * np.square(targets - targets.mean(axis=0)).sum(axis=1).mean()
    moved = made.projection.linear.bias.detach().clone()
    with torch.no_grad():
        made.projection.linear.bias += 1
    trainer._enter(1, first=False)  # as it is resumed: what was restored stays
    assert torch.allclose(made.projection.linear.bias, moved + 1)


def test_states_of_the_start_are_kept_for_the_next_trial_and_no_other_student(build: Build, prepared: Prepared) -> None:
    rows = prepared.train[:20]
    first, other = build("hpd"), build("hpd", on=replace(prepared, student="layers:0"))
    assert first.start_states(rows) is build("hpd", seed=1).start_states(rows)
    assert not np.allclose(first.start_states(rows), other.start_states(rows))
    assert len(first.start_states(prepared.train[:5])) == 5


@pytest.mark.parametrize("method", DISTILLED)
def test_without_dropout_a_loss_is_the_same_twice(build: Build, method: str) -> None:
    def losses(dropout: bool) -> set[float]:
        made = build(method, dropout=dropout)
        phase = made.phases()[-1 if method == "mcr2_distil" else 0]
        phase.begin()
        made.train()
        found = set()
        for _ in range(3):
            torch.manual_seed(len(found))
            found.add(made.outputs(made.prepared.train[:8]).detach().abs().sum().item())
        return found

    assert len(losses(False)) == 1 < len(losses(True))


@pytest.mark.parametrize("method", DISTILLED)
def test_frozen_embeddings_stay(build: Build, method: str) -> None:
    made = build(method, freeze_embeddings=True)
    embeddings = made.student[0].model.embeddings
    before = {name: p.clone() for name, p in made.named_parameters()}
    inside = {f"student.0.model.embeddings.{name}" for name, _ in embeddings.named_parameters()}
    Trainer(made, 0, 30).train_until(30)
    changed = {name for name, p in made.named_parameters() if not torch.equal(p, before[name])}
    assert changed and not changed & inside


def test_old_parameters_mean_what_they_meant(build: Build) -> None:
    params = build("hpd").params
    assert (params.dropout, params.freeze_embeddings, params.decay_all, params.clip) == (True, False, True, 1.0)
    assert (params.projection_start, params.loss, params.nested) == ("random", "squared", False)
    assert build("mse").params.norm == "raw"


def test_mse_on_unit_norm_is_twice_one_minus_the_cosine(build: Build) -> None:
    made, index = build("mse", norm="unit").eval(), np.arange(6)
    rows = made.rows[index]
    s, t = made.embed(rows), made.prepared.vectors.take(rows)
    cosine = (s * t).sum(axis=1) / np.linalg.norm(s, axis=1) / np.linalg.norm(t, axis=1)
    assert made.loss(index).item() == pytest.approx((2 - 2 * cosine).mean(), rel=1e-4)


def test_mse_scales_the_student_to_the_teachers_length(build: Build) -> None:
    index = np.arange(64)
    raw, scaled = (build("mse", norm=norm).eval() for norm in ("raw", "scale"))
    assert scaled.loss(index).item() < raw.loss(index).item()
    best = min((s, _scaled_loss(raw, s)) for s in np.linspace(0.5 * scaled.scale, 1.5 * scaled.scale, 21))
    assert min(_scaled_loss(raw, s) for s in (scaled.scale,)) <= best[1] + 1e-6


def _scaled_loss(made: Any, scale: float) -> float:
    rows = made.rows
    return float(np.square(scale * made.embed(rows) - made.prepared.vectors.take(rows)).sum(axis=1).mean())


def test_a_nested_loss_is_the_mean_over_the_widths(build: Build) -> None:
    index = np.arange(10)
    nested = build("hpd", nested=True, widths=(2, 4), loss="squared").eval()
    rows = nested.rows[index]
    s, t = nested.embed(rows), nested.prepared.pca.project(nested.prepared.vectors.take(rows), 8)
    wanted = np.mean([np.square(s[:, :w] - t[:, :w]).sum(axis=1).mean() for w in (2, 4, 8)])
    assert nested.loss(index).item() == pytest.approx(wanted, rel=1e-4)
    assert Hpd.widths_of(nested.params.model_dump()) == (8, 4, 2)


def test_mcr2s_head_is_trained_at_every_nested_width(build: Build) -> None:
    """The mean over the widths of the loss on the first numbers, brought to unit norm."""
    from torch.nn.functional import gumbel_softmax, normalize

    from distilbench.methods.parts.coding_rate import mcr2_loss

    made, index = build("mcr2_distil", nested=True, widths=(4,), pairs="duplicates"), np.arange(12)
    head, p = made.compression, made.params
    torch.manual_seed(3)
    found = head.loss(index).item()
    torch.manual_seed(3)
    (z1, l1), (z2, l2) = (head(view) for view in head._views(index))
    members = (gumbel_softmax(l1, tau=p.temperature) + gumbel_softmax(l2, tau=p.temperature)) / 2
    cut = [[normalize(z[:, :w], dim=-1) for z in (z1, z2)] for w in (8, 4)]
    wanted = [mcr2_loss(*views, members, lam=p.lam, eps2=p.eps2, gamma=p.gamma).item() for views in cut]
    assert found == pytest.approx(np.mean(wanted), rel=1e-5)


def test_widths_are_halves_unless_they_are_named() -> None:
    assert Hpd.widths_of({"output_dim": 100, "nested": True}) == (100, 50, 25)
    assert Hpd.widths_of({"output_dim": 100}) == (100,)
    assert Hpd.widths_of({"output_dim": 64, "nested": True, "widths": [32, 64]}) == (64, 32)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nested": True, "widths": (8, 16)}, "widths: 16; expected from 1 to output_dim, which can be 8"),
        ({"nested": True, "widths": (0,)}, "widths: 0; expected from 1"),
        ({"nested": False, "widths": (4,)}, "nested is false"),
        ({"nested": True, "whiten_from": 16}, "whitening would mix"),
    ],
)
def test_widths_that_cannot_be_nested_are_refused(given: dict[str, Any], said: str) -> None:
    params = Hpd.params_type(output_dim=8, lr=0.001, batch_size=4, **given).model_dump()
    with pytest.raises(InputError, match=said):
        Hpd.check_corpus(lambda name: [params[name]], demonstration(200), 32)
