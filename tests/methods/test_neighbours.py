"""The neighbours' loss against a slow reference, codes in training, and the head that is trained for its code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import Code
from distilbench.methods.neighbours import Neighbours
from distilbench.methods.parts.losses import coded, neighbour_loss
from distilbench.prepare.nearest import nearest_others
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def slow_loss(student: np.ndarray, candidates: np.ndarray, teacher: np.ndarray, t_s: float, t_t: float) -> float:
    student, candidates, teacher = unit(student), unit(candidates), unit(teacher)
    total = 0.0
    for i in range(len(student)):
        others = [j for j in range(len(candidates)) if j != i]
        target = [math.exp(float(teacher[i] @ teacher[j]) / t_t) for j in others]
        guess = [math.exp(float(student[i] @ candidates[j]) / t_s) for j in others]
        total -= sum(p / sum(target) * math.log(q / sum(guess)) for p, q in zip(target, guess, strict=True))
    return total / len(student)


@pytest.mark.parametrize("more", [0, 5])
def test_the_loss_equals_a_slow_reference(more: int) -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.standard_normal((6 + more, 4)), rng.standard_normal((6 + more, 9))
    found = neighbour_loss(*(torch.from_numpy(x) for x in (student[:6], student, teacher)), 0.2, 0.4)
    assert found.item() == pytest.approx(slow_loss(student[:6], student, teacher, 0.2, 0.4), rel=1e-4)


def test_the_loss_is_least_where_the_student_has_the_teachers_cosines() -> None:
    teacher = torch.from_numpy(np.random.default_rng(0).standard_normal((12, 8)))
    same = neighbour_loss(teacher, teacher, teacher, 0.1, 0.1)
    turned = teacher @ torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    assert neighbour_loss(turned, turned, teacher, 0.1, 0.1).item() == pytest.approx(same.item(), abs=1e-4)
    noisy = teacher + 0.3 * torch.randn_like(teacher)
    assert neighbour_loss(noisy, noisy, teacher, 0.1, 0.1) > same + 0.01


def test_two_candidates_are_too_few() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(ValueError, match="2 candidates"):
        neighbour_loss(x, x, x, 0.1, 0.1)


@pytest.mark.parametrize("bits", [8, 4, 3, 2, 1])
def test_what_goes_forward_is_the_code_and_the_gradient_is_the_vectors(bits: int) -> None:
    torch.manual_seed(0)
    x = (torch.randn(500, 16) + 0.3).requires_grad_()
    stored = coded(x, bits)
    assert stored.norm(dim=1).detach().numpy() == pytest.approx(1, abs=1e-5)
    plain = torch.nn.functional.normalize(x.detach(), dim=1).numpy()
    levels = [len(np.unique(np.round(column, 3))) for column in stored.detach().numpy().T]
    if bits == 1:
        signs = np.where(plain > plain.mean(axis=0), 1, -1) / 4
        assert stored.detach().numpy() == pytest.approx(signs, abs=1e-6)
        code = Code.calibrate("binary", plain)
        assert np.sign(code.decode(code.encode(plain))) == pytest.approx(np.sign(signs))
    if bits == 4:  # nearly what a calibrated code stores
        code4 = Code.calibrate("int4", plain)
        assert (stored.detach().numpy() * unit(code4.decode(code4.encode(plain)))).sum(axis=1).mean() > 0.98
    if bits in (2, 3):  # all that a code stores which is calibrated on the batch
        code = Code.calibrate(f"int{bits}", plain)
        assert stored.detach().numpy() == pytest.approx(unit(code.decode(code.encode(plain))), abs=1e-6)
    assert min(levels) > 2 or bits == 1
    weight = torch.randn(16)
    (stored @ weight).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


def test_without_bits_the_vectors_are_only_brought_to_unit_norm() -> None:
    x = torch.randn(5, 7)
    for bits in (None, 32):
        assert torch.equal(coded(x, bits), torch.nn.functional.normalize(x, dim=-1))


def test_the_head_starts_as_the_pca_also_turned_and_residual(build: Callable[..., Any]) -> None:
    plain = build("neighbours")
    rows = plain.prepared.train
    pca = unit(plain.prepared.pca.project(plain.prepared.vectors.take(rows), 8))
    assert plain.embed(rows) == pytest.approx(pca, abs=1e-4)
    assert build("neighbours", head="residual").embed(rows) == pytest.approx(pca, abs=1e-4)
    turned = build("neighbours", rotate=True).embed(rows)
    assert turned @ turned.T == pytest.approx(pca @ pca.T, abs=1e-4)
    assert np.abs(turned - pca).max() > 0.1


@pytest.mark.parametrize(
    "params", [{}, {"bits": 4, "rotate": True}, {"bits": 2}, {"bits": 1, "rotate": True}, {"group": 4}]
)
def test_training_lowers_the_loss(build: Callable[..., Any], params: dict[str, Any]) -> None:
    trainer = Trainer(build("neighbours", steps=80, **params), 0, 80)
    first = trainer.train_until(8)
    trainer.train_until(72)
    assert trainer.train_until(80) < first


@pytest.mark.parametrize("bits", [1, 2])
def test_a_query_is_as_it_is_and_what_it_is_compared_with_is_a_code(build: Callable[..., Any], bits: int) -> None:
    method, index = build("neighbours", group=1, bits=bits, rotate=True), np.arange(40)
    teacher = method.vectors_ND[index]
    student = method.apply_head(teacher).detach()
    stored = coded(student, bits)
    wanted, symmetric = (
        slow_loss(*(x.numpy().astype(np.float64) for x in (query, stored, teacher)), 0.05, 0.05)
        for query in (student, stored)
    )
    assert method.loss(index).item() == pytest.approx(wanted, rel=1e-3) != pytest.approx(symmetric, rel=1e-3)


def test_with_a_power_the_head_starts_at_the_whitened_vectors_and_learns_them(build: Callable[..., Any]) -> None:
    method, index = build("neighbours", group=1, power=0.5), np.arange(30)
    whitened = build("whitening", power=0.5)
    assert method.embed(index) == pytest.approx(unit(whitened.embed(index)), abs=1e-4)
    assert method.head[0].linear.weight.norm(dim=1).mean().item() == pytest.approx(1, abs=1e-4)
    whole = build("whitening", power=0.5, output_dim=method.prepared.vectors.width)
    rows = method.prepared.train[index]
    student, target = method.embed(rows), whole.embed(rows)
    assert method.loss(index).item() == pytest.approx(slow_loss(student, student, target, 0.05, 0.05), rel=1e-3)


@pytest.mark.parametrize("known", [None, 2, 7])
def test_a_group_is_a_sentence_and_its_nearest(
    build: Callable[..., Any], prepared: Prepared, monkeypatch: pytest.MonkeyPatch, known: int | None
) -> None:
    """Each sentence is compared once, though two groups may share it. What was prepared is taken where it is enough."""
    if known:
        vectors = prepared.vectors.take(prepared.train).astype(np.float32)
        near = nearest_others(vectors, known).astype(np.int32)
        prepared = replace(prepared, nearest_NK=near)
        if known > 2:
            monkeypatch.setattr("distilbench.methods.neighbours.nearest_others", None)
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "distilbench.methods.neighbours.neighbour_loss",
        lambda *a: seen.append(a) or torch.zeros((), requires_grad=True),
    )
    method = build("neighbours", on=prepared, group=4)
    (phase,) = method.phases()
    phase.begin()
    index = np.arange(10, 22)
    phase.loss(index)
    vectors = unit(method.vectors_ND.numpy())
    cosines = vectors[index[:3]] @ vectors.T
    wanted = {int(row) for of_one in np.argsort(-cosines, axis=1, kind="stable")[:, :4] for row in of_one}
    _, _, teacher, *_ = seen[0]
    assert torch.equal(teacher, method.vectors_ND[sorted(wanted)])


def test_settings_that_the_corpus_cannot_serve() -> None:
    builder = CorpusBuilder("small")
    for i in range(40):
        builder.train_on([f"sentence {i}"])
    corpus = builder.build()

    def check(**values: Any) -> None:
        settings = {"output_dim": 8, "batch_size": 16, "group": 1, "codebooks": 0, "bits": None, **values}
        Neighbours.check_corpus(lambda name: [settings[name]], corpus, 32)

    check()
    with pytest.raises(InputError, match="batch_size is 64, but the corpus has only 40"):
        check(batch_size=64)
    check(group=16)
    with pytest.raises(InputError, match="group: 17 sentences in a batch of 16; expected at most batch_size"):
        check(group=17)
    with pytest.raises(InputError, match="codebooks is 256, but the corpus has only 40 training sentences"):
        check(codebooks=4)


def test_a_coded_encoder_sees_its_code_and_keeps_its_norm(build: Callable[..., Any]) -> None:
    """Whatever trains an encoder: what the loss is given are stored vectors."""
    built = build("hpd"), build("hpd", bits=1), build("hpd", bits=2)
    rows = built[0].prepared.train[:40]
    free, signs, stored = (m.eval().outputs(rows).detach().numpy() for m in built)
    for coded_vectors in (signs, stored):
        assert np.linalg.norm(coded_vectors, axis=1) == pytest.approx(np.linalg.norm(free, axis=1), rel=1e-4)
    for column in unit(signs).T:
        assert len(np.unique(np.round(np.abs(column), 4))) == 1
    code = Code.calibrate("int2", free)
    assert unit(stored) == pytest.approx(unit(code.decode(code.encode(free))), abs=1e-5)


def test_exported_with_a_product_code_of_its_vectors(build: Callable[..., Any], tmp_path: Path, many: Any) -> None:
    method = build("neighbours", on=many, codebooks=4, steps=10, batch_size=32)
    Trainer(method, 0, 10).train_until(10)
    method.export(tmp_path / "student")
    vectors = method.embed(method.prepared.train)
    code = Code.load("opq4", tmp_path / "student", 8)
    assert code.bytes_per_vector == 4 and code.decode(code.encode(vectors)).shape == vectors.shape
