"""HPD: its targets, its loss, its starts, its whitening and its fine-tuning. MSE: its loss and its map."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.heartbeat import subscribe, unsubscribe
from distilbench.methods import hpd
from distilbench.methods.hpd import HPD
from distilbench.methods.mse import MSE
from distilbench.methods.parts import encoder_method
from distilbench.methods.parts.losses import neighbour_loss
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer
from distilbench.training.phases import Phase

Build = Callable[..., HPD]


@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_loss_is_the_mean_squared_distance_to_the_centred_pca(build: Build, activation: str) -> None:
    method = build("hpd", activation=activation).eval()
    prepared, index = method.prepared, np.array([3, 1, 7])
    rows = prepared.train[index]
    teacher = prepared.vectors.take(rows).astype(np.float64)
    target = (teacher - prepared.pca.mean_D) @ prepared.pca.axes_DD[:, :8]
    wanted = ((method.embed(rows) - target) ** 2).sum(axis=1).mean()
    assert method.loss(index).item() == pytest.approx(wanted, rel=1e-4)
    if activation == "tanh":
        assert np.abs(method.embed(prepared.train)).max() <= 1


def test_reading_many_sentences_gives_signs_of_life(
    build: Build, static: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_method, "TOKENS_PER_BATCH", {"cpu": 64})
    monkeypatch.setattr(encoder_method, "STATIC_ROWS", 10)
    for method, least in ((build("hpd"), 3), (build("hpd", on=static), 4)):
        signs: list[int] = []
        listening = subscribe(lambda: signs.append(1))  # noqa: B023
        try:
            method.embed(np.arange(40))
        finally:
            unsubscribe(listening)
        assert len(signs) >= least


def test_regression_starts_nearer_than_random(build: Build) -> None:
    index = np.arange(64)
    losses = {
        start: build("hpd", projection_start=start).eval().loss(index).item() for start in ("random", "regression")
    }
    assert losses["regression"] < 0.8 * losses["random"]


def test_regression_is_the_least_squares_solution(build: Build) -> None:
    """Scikit-learn's, with a constant column for the bias, which the small ridge shrinks like the weights."""
    from sklearn.linear_model import Ridge

    method = build("hpd", projection_start="regression")
    dense = method.projection
    weight, bias = dense.linear.weight.detach().numpy(), dense.linear.bias.detach().numpy()
    method.projection = None
    states = method.encode(method.prepared.train).astype(np.float64)
    fitted = Ridge(1e-3, fit_intercept=False).fit(np.hstack([states, np.ones((len(states), 1))]), method.targets_Nd)
    assert np.column_stack([weight, bias]) == pytest.approx(fitted.coef_, abs=1e-4)


def test_training_lowers_the_loss_and_the_export_is_the_student(build: Build, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    method = build("hpd", activation="tanh", epochs=2.0)
    trainer = Trainer(method, 0, 40)
    first = trainer.train_until(5)
    assert trainer.train_until(40) < 0.9 * first
    method.export(tmp_path / "student")
    outside = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    assert len(outside[0].model.encoder.layer) == 2


def head_phase(method: HPD) -> Phase:
    [_, head] = method.phases()
    head.begin()
    return head


def test_the_head_alone_learns_the_neighbours_of_the_teacher(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpd, "TUNED_ON", 60)
    monkeypatch.setattr(hpd, "TUNING_BATCH", 32)
    params = {"nested": True, "widths": [4], "projection_start": "regression", "epochs": 1.0}
    method = build("hpd", **params, head_steps=30, head_lr=0.01)
    distil, head = method.phases()
    assert (head.examples, head.steps, head.batch_size) == (60, 30, 32)
    trainer = Trainer(method, 0, 10_000)
    assert trainer.total_steps == distil.steps + 30
    trainer.train_until(distil.steps)
    encoder = [p.detach().clone() for p in method.student.parameters()]
    index = np.arange(60)
    before = head_phase(method).loss(index).item()
    trainer.train_until(trainer.total_steps)
    assert head_phase(method).loss(index).item() < before
    assert all(torch.equal(p, was) for p, was in zip(method.student.parameters(), encoder, strict=True))


def test_the_loss_of_the_head_is_the_mean_over_the_widths(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpd, "TUNED_ON", 40)
    method = build("hpd", nested=True, widths=[4], head_steps=1).eval()
    head = head_phase(method)
    rows = method.tuned_rows
    vectors, teacher = torch.from_numpy(method.embed(rows)), method.teacher_vectors(rows)
    each = [neighbour_loss(vectors[:, :w], vectors[:, :w], teacher, 0.05, 0.05).item() for w in (8, 4)]
    assert head.loss(np.arange(40)).item() == pytest.approx(np.mean(each), rel=1e-5)


def test_a_static_student_has_no_head_to_tune() -> None:
    with pytest.raises(InputError, match="head_steps: expected 0"):
        HPD.check_student(lambda name: {"head_steps": [0, 900]}.get(name, ["identity"]), "static", 384)


def test_steps_are_whole_batches_of_the_epochs_within_the_budget(build: Build) -> None:
    method = build("hpd", epochs=2.0)
    assert Trainer(method, 0, 10_000).total_steps == 2 * (len(method.prepared.train) // 16)
    assert Trainer(method, 0, 3).total_steps == 3


@pytest.mark.parametrize(("whiten_from", "output_dim"), [(16, 8), (16, 16)])
def test_whitened_embeddings_have_the_identity_as_covariance(build: Build, whiten_from: int, output_dim: int) -> None:
    method = build("hpd", whiten_from=whiten_from, output_dim=output_dim)
    assert method.targets_Nd.shape[1] == whiten_from
    Trainer(method, 0, 5).train_until(5)
    vectors = method.embed(method.prepared.train).astype(np.float64)
    assert vectors.shape[1] == output_dim
    assert vectors.mean(axis=0) == pytest.approx(np.zeros(output_dim), abs=1e-3)
    assert np.cov(vectors, rowvar=False, bias=True) == pytest.approx(np.eye(output_dim), abs=1e-3)


def test_whitening_takes_the_directions_of_most_variance(build: Build) -> None:
    """The whitened embedding is the PCA of what was learned, each direction divided by its deviation."""
    from sklearn.decomposition import PCA

    method = build("hpd", whiten_from=16)
    rows = method.prepared.train
    learned = method.encode(rows).astype(np.float64)
    wanted = PCA(8, whiten=True, svd_solver="full").fit_transform(learned) * np.sqrt(len(rows) / (len(rows) - 1))
    ours = method.embed(rows)
    assert ours == pytest.approx(wanted * np.sign((ours * wanted).sum(axis=0)), abs=1e-3)


def test_fine_tuning_comes_after_distillation(build: Build) -> None:
    method = build("hpd", ft_epochs=6.0, ft_batch_size=8, ft_lr=0.002, ft_tau=0.2)
    distil, fine_tune = method.phases()
    assert [distil.name, fine_tune.name] == ["distil", "fine-tune"]
    assert (fine_tune.examples, fine_tune.steps, fine_tune.lr) == (48, 36, 0.002)
    trainer = Trainer(method, 0, 10**6)
    trainer.train_until(distil.steps)
    distance = method.eval().loss(np.arange(64)).item()
    before = fine_tune.loss(np.arange(48)).item()
    trainer.train_until(trainer.total_steps)
    assert fine_tune.loss(np.arange(48)).item() < before - 0.1  # it learns the triplets
    assert method.loss(np.arange(64)).item() > distance  # and leaves the teacher's PCA for it
    assert len(build("hpd").phases()) == 1


def check(**params: Any) -> None:
    """The corpus check of single values, for a student and a teacher of width 32."""
    builder = CorpusBuilder("test")
    builder.train_on([f"sentence {i}" for i in range(40)])
    defaults = {name: f.default for name, f in HPD.params_type.model_fields.items()}
    given = {**defaults, "output_dim": 8, "batch_size": 16, **params}
    HPD.check_corpus(lambda name: given[name] if isinstance(given[name], list) else [given[name]], builder.build(), 32)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"batch_size": 64}, "batch_size is 64, but the corpus has only 40 training sentences"),
        ({"output_dim": 48}, "output_dim: 48 is above the 32"),
        ({"output_dim": [8, 24], "whiten_from": 16}, "16.*output_dim"),
        ({"whiten_from": [0, 48]}, "whiten_from.*48.*32"),  # the teacher has no 48 principal axes
        ({"ft_epochs": 1.0, "ft_batch_size": 4}, "ft_batch_size is 4, but the corpus has only 0 triplets"),
    ],
)
def test_what_the_corpus_cannot_give_is_said(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(**params)


def test_a_sufficient_corpus_passes() -> None:
    check()
    check(whiten_from=[0, 16, 32])


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({}, ""),
        ({"ft_epochs": 0, "whiten_from": 0}, ""),
        ({"ft_epochs": 3, "whiten_from": 256}, "fine-tuned, whitened"),
        ({"augmentation": True}, "augmented"),
    ],
)
def test_a_table_tells_what_is_unusual(params: dict[str, Any], told: str) -> None:
    assert HPD.variant(params) == told


def test_the_loss_of_mse_is_the_mean_squared_distance_to_the_teacher(build: Callable[..., MSE]) -> None:
    method = build("mse").eval()
    index = np.array([3, 1, 7])
    rows = method.prepared.train[index]
    difference = method.embed(rows).astype(np.float64) - method.prepared.vectors.take(rows)
    assert method.loss(index).item() == pytest.approx((difference**2).sum(axis=1).mean(), rel=1e-5)
    assert isinstance(method.map, torch.nn.Identity)


def test_a_student_of_another_width_is_mapped_by_mse(
    build: Callable[..., MSE], narrow: Prepared, tmp_path: Path
) -> None:
    method = build("mse", on=narrow, output_dim=16).eval()
    index = np.array([3, 1, 7])
    rows = method.prepared.train[index]
    mapped = method.embed(rows).astype(np.float64) @ method.map.weight.detach().double().numpy().T
    wanted = ((mapped - method.prepared.vectors.take(rows)) ** 2).sum(axis=1).mean()
    assert method.loss(index).item() == pytest.approx(wanted, rel=1e-5)
    method.export(tmp_path / "student")
    assert not list((tmp_path / "student").glob("*_Dense"))  # the map is no part of the student


def test_training_lowers_the_loss_of_mse(build: Callable[..., MSE]) -> None:
    trainer = Trainer(build("mse"), 0, 40)
    first = trainer.train_until(5)
    trainer.train_until(35)
    assert trainer.train_until(40) < 0.5 * first


def test_mse_has_only_the_students_own_width() -> None:
    given = {"output_dim": [8, 32]}
    with pytest.raises(InputError, match="output_dim: 8: MSE has no projection; expected 32"):
        MSE.check_student(given.__getitem__, "auto", 32)
    given["output_dim"] = [32]
    MSE.check_student(given.__getitem__, "auto", 32)
