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
from distilbench.methods.crd import Trainable, crd_loss
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


def test_the_methods_loss_is_the_formula_on_its_critic(build: Callable[..., Trainable], narrow: Prepared) -> None:
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


def test_training_lowers_the_loss_and_the_critic_is_left_out(build: Callable[..., Trainable], tmp_path: Any) -> None:
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
    given = {"output_dim": [8, 32], "batch_size": [8], "augmentation": [False]}
    with pytest.raises(InputError, match="output_dim: 8: CRD has no projection; expected 32"):
        Trainable.check_corpus(given.__getitem__, builder.build(), 32)
    given["output_dim"] = [32]
    Trainable.check_corpus(given.__getitem__, builder.build(), 32)
    given["batch_size"] = [32]
    with pytest.raises(InputError, match="batch_size is 32, but the corpus has only 20 training sentences"):
        Trainable.check_corpus(given.__getitem__, builder.build(), 32)
