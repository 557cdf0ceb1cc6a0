"""What holds for every method: deterministic embeddings, an export that is the method, phases that train what they say,
gradients that are those of the loss, and a resumed training that is the uninterrupted one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.encoders.encoding import padded
from distilbench.methods import method_names
from distilbench.methods.method import Method
from distilbench.methods.parts.encoder_method import TRAINING_TOKENS
from distilbench.training.loop import Trainer

Build = Callable[..., Any]

TRAINED: dict[str, tuple[str, dict[str, Any], list[set[str]]]] = {
    "contrastive": ("contrastive", {}, [{"student", "projection"}]),
    "contrastive, native": ("contrastive", {"output_dim": 32}, [{"student"}]),
    "contrastive, whitened": ("contrastive", {"whiten_from": 16}, [{"student", "projection"}]),
    "contrastive, pairs": ("contrastive", {"labelled": "pairs", "hard_negatives": 2}, [{"student", "projection"}]),
    "crd": ("crd", {}, [{"student", "student_map", "teacher_map"}]),
    "crd, both directions": (
        "crd",
        {"normaliser": True, "directions": "both", "map_start": "pca"},
        [{"student", "student_map", "teacher_map", "log_z"}],  # log Z is set once, before the first step
    ),
    "hpd": ("hpd", {}, [{"student", "projection"}]),
    "hpd, fine-tuned": ("hpd", {"ft_epochs": 3.0, "ft_batch_size": 8}, [{"student", "projection"}] * 2),
    "hpd, whitened": ("hpd", {"whiten_from": 16, "activation": "tanh"}, [{"student", "projection"}]),
    "ibkd": ("ibkd", {}, [{"student", "map"}, {"student", "down"}]),
    "ibkd, native": ("ibkd", {"output_dim": 32, "kernel": "imq"}, [{"student", "map"}, {"student"}]),
    "ibkd, started": (
        "ibkd",
        {"map_start": "auto", "projection_start": "pca"},
        [{"student", "map"}, {"student", "down"}],
    ),
    "ckd": ("ibkd", {"output_dim": 32, "beta1": 0.0, "ft_epochs": 0}, [{"student", "map"}]),
    "matryoshka": ("matryoshka", {}, [{"student", "projection"}]),
    "mcr2": ("mcr2", {}, [{"compression"}]),
    "mcr2, centred": ("mcr2", {"centre": True, "pairs": "noise", "noise_kind": "isotropic"}, [{"compression"}]),
    "mcr2, residual": ("mcr2", {"head": "residual", "pairs": "noise"}, [{"compression"}]),
    "mcr2_distil": ("mcr2_distil", {}, [{"compression"}, {"student", "projection"}]),
    "mse": ("mse", {}, [{"student"}]),
    "mse, similarities": ("mse", {"similarities": 1.0}, [{"student"}]),
    "neighbours": ("neighbours", {}, [{"head"}]),
    "neighbours, residual": ("neighbours", {"head": "residual", "rotate": True}, [{"head"}]),
}
"""Case -> method, hyper-parameters, and the parts of the module that each phase trains."""

CONSTANTS = {"log_z"}
"""Parameters, for checkpoints' sake, that a phase sets once and no gradient reaches: the loss takes them as given."""

FROZEN = ("pca", "random_projection", "whitening")
CASES = {**{name: case[:2] for name, case in TRAINED.items()}, **{name: (name, {}) for name in FROZEN}}

every_method = pytest.mark.parametrize("case", CASES)
every_training = pytest.mark.parametrize("case", TRAINED)


def parameters(method: Method) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in method.named_parameters()}


def trained(build: Build, case: str, steps: int = 5) -> Method:
    """The method of a case, trained a little in each of its phases."""
    name, params = CASES[case]
    method = build(name, **params)
    if method.phases():
        trainer = Trainer(method, 0, steps * len(method.phases()))
        trainer.train_until(trainer.total_steps)
    return method


def test_no_method_is_left_out() -> None:
    # `dse` learns a pair task of its own: test_dse.py
    assert {name for name, _ in CASES.values()} == set(method_names()) - {"dse"}


@every_method
def test_embeddings_are_deterministic_and_the_export_gives_them(
    build: Build, sentences: list[str], tmp_path: Path, case: str
) -> None:
    from sentence_transformers import SentenceTransformer

    method = trained(build, case)
    # Longest first, so that nothing is right only because batches are sorted by length.
    rows = np.array(sorted(method.prepared.train[:40], key=lambda row: -len(sentences[row])))
    vectors = method.embed(rows)
    assert vectors.shape == (40, method.params.output_dim) and vectors.dtype == np.float32
    method.train()  # as between two rungs
    assert np.array_equal(method.embed(rows), vectors) and method.training
    assert method.embed(rows[5:6]) == pytest.approx(vectors[5:6], abs=1e-4)
    method.export(tmp_path / "student")
    student = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    # The cached vectors that a head reads are float16.
    assert student.encode([sentences[r] for r in rows]) == pytest.approx(
        vectors, abs=1e-5 if method.trains_encoder else 5e-3
    )
    assert method.embed(rows) == pytest.approx(vectors, abs=1e-6)


@every_training
def test_each_phase_trains_the_parts_that_it_should(build: Build, case: str) -> None:
    name, params, parts = TRAINED[case]
    method = build(name, weight_decay=0.0, **params)
    trainer = Trainer(method, 0, 5 * len(parts))
    assert len(trainer.phases) == len(parts)
    for end, wanted in zip(trainer.starts[1:], parts, strict=True):
        assert end > trainer.step
        before = parameters(method)
        trainer.train_until(end)
        changed = {key for key, value in parameters(method).items() if not torch.equal(value, before[key])}
        # BERT has a layer of its own for CLS, which mean pooling does not use.
        assert changed == {key for key in before if key.split(".")[0] in wanted and "pooler" not in key}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_head_has_nothing_to_train(build: Build, name: str) -> None:
    method = build(name)
    assert method.phases() == [] and not any(p.requires_grad for p in method.parameters())
    assert Trainer(method, 0, 10).total_steps == 0


@every_training
@pytest.mark.usefixtures("in_float64")
def test_gradients_are_those_of_the_loss(build: Build, case: str) -> None:
    """In each phase, the derivative along a random direction of all parameters is the quotient of differences."""
    name, params, _ = TRAINED[case]
    method = build(name, **params).double()
    for phase in method.phases():
        phase.begin()
        method.eval()
        tensors = [p for name, p in method.named_parameters() if p.requires_grad and name not in CONSTANTS]
        generator = torch.Generator().manual_seed(1)
        direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in tensors]
        index = np.arange(phase.batch_size)

        def loss(phase: Any = phase, index: Any = index) -> torch.Tensor:
            torch.manual_seed(0)  # negatives, noise and Gumbel draws
            value: torch.Tensor = phase.loss(index)
            return value

        gradients = torch.autograd.grad(loss(), tensors, allow_unused=True)
        analytic = sum((g * v).sum().item() for g, v in zip(gradients, direction, strict=True) if g is not None)

        def at(step: float, tensors: Any = tensors, direction: Any = direction, loss: Any = loss) -> float:
            with torch.no_grad():
                for p, v in zip(tensors, direction, strict=True):
                    p += step * v
                value: float = loss().item()
                for p, v in zip(tensors, direction, strict=True):
                    p -= step * v
            return value

        step = 1e-6
        assert abs(analytic) > 1e-3
        assert analytic == pytest.approx((at(step) - at(-step)) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("budget", [1, 40, 10**6])
def test_parts_of_a_batch_give_what_the_batch_gives(build: Build, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    method = build("hpd").eval()
    rows = np.random.default_rng(0).permutation(method.prepared.train)[:30]
    together = method.student(padded([method.tokens[int(r)] for r in rows], method.pad, "cpu"))["sentence_embedding"]
    sizes: list[int] = []

    def run(part: dict[str, torch.Tensor]) -> torch.Tensor:
        sizes.append(part["input_ids"].numel())
        vectors: torch.Tensor = method.student(part)["sentence_embedding"]
        return vectors

    torch.testing.assert_close(method.over_parts(rows, budget, run), together, atol=1e-5, rtol=0)
    assert max(sizes) <= max(budget, method.tokens.lengths_of(rows).max())
    assert (len(sizes) == 30) == (budget == 1) and (len(sizes) == 1) == (budget == 10**6)
    monkeypatch.setitem(TRAINING_TOKENS, "cpu", budget)
    torch.testing.assert_close(method.pooled(rows), together, atol=1e-5, rtol=0)


@every_training
def test_the_loss_does_not_depend_on_the_parts(build: Build, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    method = build(CASES[case][0], **CASES[case][1])
    for phase in method.phases():
        phase.begin()
        method.eval()
        losses = []
        for budget in (1, 10**6):
            monkeypatch.setitem(TRAINING_TOKENS, "cpu", budget)
            torch.manual_seed(0)
            losses.append(phase.loss(np.arange(8)).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("case", ["hpd, fine-tuned", "ibkd", "ibkd, started", "mcr2_distil"])
def test_a_training_resumed_around_the_phase_boundary_is_bit_for_bit_the_uninterrupted_one(
    build: Build, tmp_path: Path, case: str
) -> None:
    name, params = CASES[case]
    budget = 8

    def start() -> Trainer:
        return Trainer(build(name, **params), 3, budget)

    whole = start()
    boundary, end = whole.starts[1:]
    assert 1 < boundary < end - 1
    whole.train_until(end)
    rows = whole.method.prepared.train[:20]
    for stop in (boundary - 1, boundary, boundary + 1, end):
        first = start()
        first.train_until(stop)
        first.save(tmp_path / str(stop), rung=1)
        second = start()
        assert second.resume(tmp_path / str(stop)) == 1 and second.step == stop
        assert np.array_equal(second.method.embed(rows), first.method.embed(rows))
        second.train_until(end)
        for key, value in parameters(whole.method).items():
            assert torch.equal(parameters(second.method)[key], value), (stop, key)
        assert np.array_equal(second.method.embed(rows), whole.method.embed(rows))


def test_a_resumed_training_keeps_the_normaliser_of_its_start(build: Build, tmp_path: Path) -> None:
    name, params = CASES["crd, both directions"]
    whole, first, second = (Trainer(build(name, **params), 3, 6) for _ in range(3))
    whole.train_until(6)
    first.train_until(3)
    first.save(tmp_path, rung=1)
    assert second.resume(tmp_path) == 1
    assert second.method.log_z.item() == first.method.log_z.item() != 0
    second.train_until(6)
    for key, value in parameters(whole.method).items():
        assert torch.equal(parameters(second.method)[key], value), key
