"""CRD: the critic's loss against the formula, and what it compares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.crd import CRD, START_SENTENCES, crd_loss
from distilbench.methods.parts.starts import spread
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer


def slow_crd(s: np.ndarray, t: np.ndarray, other: np.ndarray, same: np.ndarray, tau: float, m: int) -> float:
    """-mean_i( log h(s_i, t_i) + sum_j log(1 - h(s_i, t_j)) ), h(s, t) = e^(s.t / tau) / (e^(s.t / tau) + N / M)."""

    def h(a: np.ndarray, b: np.ndarray) -> float:
        e = math.exp(float(a @ b) / tau)
        return e / (e + len(other) / m)

    total = 0.0
    for i in range(len(s)):
        total += math.log(h(s[i], t[i]))
        total += sum(math.log(1 - h(s[i], other[j])) for j in range(len(other)) if not same[i, j])
    return -total / len(s)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def draw(count: int, seed: int) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((count, 5)))


@pytest.mark.parametrize("tau", [0.07, 0.5])
@pytest.mark.parametrize("m", [40, 1000])
def test_loss_equals_the_formula(tau: float, m: int) -> None:
    s, t, other = draw(4, 0), draw(4, 1), draw(9, 2)
    same = np.zeros((4, 9), dtype=bool)
    same[1, 3] = same[1, 8] = same[2, 0] = True
    ours = crd_loss(*(torch.tensor(v) for v in (s, t, other, same)), tau, m)
    assert ours.item() == pytest.approx(slow_crd(s, t, other, same, tau, m), rel=1e-9)


def test_gradients_equal_finite_differences() -> None:
    s, t, other = (torch.tensor(draw(n, seed), requires_grad=True) for seed, n in enumerate((3, 3, 6)))
    same = torch.zeros(3, 6, dtype=torch.bool)
    same[0, 1] = True
    assert torch.autograd.gradcheck(lambda a, b, c: crd_loss(a, b, c, same, 0.3, 20), (s, t, other))


def test_a_sentence_is_no_negative_of_itself() -> None:
    """A negative that is marked as the sentence itself pushes nothing; unmarked it would push the most."""
    s = torch.tensor(draw(1, 0), requires_grad=True)
    other = torch.cat([s.detach(), torch.tensor(draw(3, 1))])
    losses = []
    for marked in (True, False):
        same = torch.tensor([[marked, False, False, False]])
        losses.append(crd_loss(s, s.detach(), other, same, 0.07, 100).item())
    assert losses[1] > losses[0] + 5


def test_autocast_costs_no_precision() -> None:
    s, t, other = (torch.tensor(draw(n, seed), dtype=torch.float32) for seed, n in enumerate((3, 3, 30)))
    same = torch.zeros(3, 30, dtype=torch.bool)
    exact = crd_loss(s, t, other, same, 0.02, 100).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert crd_loss(s, t, other, same, 0.02, 100).item() == pytest.approx(exact, rel=1e-6)


def test_the_methods_loss_is_the_formula_on_its_critic(build: Callable[..., CRD], narrow: Prepared) -> None:
    method = build("crd", on=narrow, output_dim=16, negatives=500, tau=0.3).eval()
    index, train = np.array([4, 1, 30]), method.prepared.train

    def critic(rows: np.ndarray, layer: torch.nn.Linear, vectors: np.ndarray) -> np.ndarray:
        weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
        return unit(vectors.astype(np.float64) @ weight.T + bias)

    take = method.prepared.vectors.take
    torch.manual_seed(5)
    others = train[torch.randint(len(train), (500,)).numpy()]
    s = critic(train[index], method.student_map, method.embed(train[index]))
    t, negative = (critic(rows, method.teacher_map, take(rows)) for rows in (train[index], others))
    same = train[index][:, None] == others[None]
    assert same.any()  # of 500 draws from a few hundred sentences some are of the batch
    torch.manual_seed(5)
    wanted = slow_crd(s, t, negative, same, 0.3, len(train))
    assert method.loss(index).item() == pytest.approx(wanted, rel=1e-4)


def slow_normalised(
    s: np.ndarray, t: np.ndarray, other: np.ndarray, same: np.ndarray, tau: float, m: int, z: float
) -> float:
    """The same with h = (e^g / Z) / (e^g / Z + N / M), as the released code's ContrastMemory and ContrastLoss together."""
    pn, total = 1 / m, 0.0
    for i in range(len(s)):
        positive = math.exp(float(s[i] @ t[i]) / tau) / z
        total += math.log(positive / (positive + len(other) * pn))
        for j in np.flatnonzero(~same[i]):
            negative = math.exp(float(s[i] @ other[j]) / tau) / z
            total += math.log(len(other) * pn / (negative + len(other) * pn))
    return -total / len(s)


def test_the_normalised_loss_is_the_released_codes() -> None:
    s, t, other = draw(4, 0), draw(4, 1), draw(9, 2)
    same = np.zeros((4, 9), dtype=bool)
    same[1, 3] = True
    ours = crd_loss(*(torch.tensor(v) for v in (s, t, other, same)), 0.2, 40, math.log(321.0))
    assert ours.item() == pytest.approx(slow_normalised(s, t, other, same, 0.2, 40, 321.0), rel=1e-9)


def critics(method: CRD, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Student's and teacher's rows of unit norm in the critic's space, in double precision from the weights."""
    found = []
    for layer, x in (
        (method.student_map, method.embed(rows)),
        (method.teacher_map, method.prepared.vectors.take(rows)),
    ):
        weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
        found.append(unit(x.astype(np.float64) @ weight.T + bias))
    return found[0], found[1]


@pytest.mark.parametrize("map_start", ["random", "pca"])
def test_the_normaliser_is_the_mean_over_pairs_of_different_sentences(
    build: Callable[..., CRD], map_start: str
) -> None:
    method = build("crd", normaliser=True, map_start=map_start, tau=0.5).eval()
    method.phases()[0].start()
    rows = method.rows[spread(len(method.rows), START_SENTENCES)]
    s, t = critics(method, rows)
    g = np.exp(s @ t.T / 0.5)
    np.fill_diagonal(g, 0)
    z = len(method.rows) * g.sum() / (len(g) * (len(g) - 1))
    assert method.log_z.item() == pytest.approx(math.log(z), rel=1e-5)


def test_both_directions_are_the_formula(build: Callable[..., CRD]) -> None:
    one, both = (build("crd", normaliser=True, directions=d, negatives=50).eval() for d in ("teacher", "both"))
    index, values = np.arange(10, 22), []
    for method in (one, both):
        method.phases()[0].start()
        torch.manual_seed(5)
        values.append(method.loss(index).item())
    s, t = critics(both, both.rows[index])
    m, z = len(both.rows), math.exp(both.log_z.item())
    other_way = slow_normalised(t, s, s, np.eye(12, dtype=bool), both.params.tau, m, z)
    assert values[1] - values[0] == pytest.approx(other_way, rel=1e-3)


def test_maps_from_the_pca(build: Callable[..., CRD], narrow: Prepared) -> None:
    """The teacher's map is its PCA; the student's is the least-squares fit to it."""
    from sklearn.linear_model import LinearRegression

    method = build("crd", output_dim=16, map_start="pca", on=narrow).eval()
    method.phases()[0].start()
    rows = method.rows[spread(len(method.rows), START_SENTENCES)]
    vectors = method.prepared.vectors.take(rows)
    wanted = method.prepared.pca.project(vectors, 6)
    teacher = method.teacher_map(torch.from_numpy(vectors)).detach().numpy()
    assert teacher == pytest.approx(wanted, abs=1e-4)
    states = method.embed(rows).astype(np.float64)
    student = method.student_map(torch.from_numpy(states).float()).detach().numpy()
    fitted = LinearRegression().fit(states, wanted).predict(states)
    assert np.abs(student - fitted).max() < 0.05 * np.abs(fitted).max()


def test_a_start_that_cannot_be_had_is_said(build: Callable[..., CRD]) -> None:
    with pytest.raises(InputError, match="critic_dim is 33; with map_start pca expected at most the teacher's 32"):
        build("crd", map_start="pca", critic_dim=33)


def test_training_lowers_the_loss_and_the_critic_is_left_out(build: Callable[..., CRD], tmp_path: Any) -> None:
    method = build("crd")
    trainer = Trainer(method, 0, 40)
    first = trainer.train_until(5)
    trainer.train_until(35)
    assert trainer.train_until(40) < 0.9 * first
    method.export(tmp_path / "student")
    assert not list((tmp_path / "student").glob("*_Dense"))


def test_only_the_students_own_width() -> None:
    builder = CorpusBuilder("test")
    builder.train_on([f"sentence {i}" for i in range(20)])
    given = {
        "output_dim": [8, 32],
        "batch_size": [8],
        "augmentation": [False],
    }
    with pytest.raises(InputError, match="output_dim: 8: CRD has no projection; expected 32"):
        CRD.check_student(given.__getitem__, "auto", 32)
    given["output_dim"] = [32]
    CRD.check_student(given.__getitem__, "auto", 32)
    CRD.check_corpus(given.__getitem__, builder.build(), 32)
    given["batch_size"] = [32]
    with pytest.raises(InputError, match="batch_size is 32, but the corpus has only 20 training sentences"):
        CRD.check_corpus(given.__getitem__, builder.build(), 32)
