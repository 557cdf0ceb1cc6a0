"""The shared losses against slow references in double precision, and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from distilbench.methods.parts.losses import (
    SimilarityTermParams,
    info_nce,
    similarity_loss,
    squared_distance,
    supervised_info_nce,
    target_loss,
)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def slow_info_nce(query: np.ndarray, candidate: np.ndarray, temperature: float) -> float:
    """-1/B sum_i log( e^(cos(q_i, c_i) / tau) / sum_j e^(cos(q_i, c_j) / tau) ), one number at a time."""
    total = 0.0
    for i in range(len(query)):
        weights = [math.exp(cosine(query[i], c) / temperature) for c in candidate]
        total -= math.log(weights[i] / sum(weights))
    return total / len(query)


def slow_supervised(query: np.ndarray, positive: np.ndarray, negative: np.ndarray, temperature: float) -> float:
    """As above, each query's candidates being all positives and the negatives of its own."""
    rows = [
        slow_info_nce(query[[i]], np.vstack([positive[[i]], np.delete(positive, i, axis=0), negative[i]]), temperature)
        for i in range(len(query))
    ]
    return sum(rows) / len(rows)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("hard", [0, 1, 7])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_info_nce_equals_the_reference(hard: int, temperature: float) -> None:
    query, candidate = draw(5, 4), draw(5 + hard, 4, seed=1)
    ours = info_nce(torch.tensor(query), torch.tensor(candidate), temperature)
    assert ours.item() == pytest.approx(slow_info_nce(query, candidate, temperature), rel=1e-10)


@pytest.mark.parametrize("own", [0, 1, 3])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_supervised_info_nce_equals_the_reference(own: int, temperature: float) -> None:
    query, positive, negative = draw(4, 6), draw(4, 6, seed=1), draw(4, own, 6, seed=2)
    ours = supervised_info_nce(*(torch.tensor(x) for x in (query, positive, negative)), temperature)
    assert ours.item() == pytest.approx(slow_supervised(query, positive, negative, temperature), rel=1e-10)


def test_squared_distance_equals_the_reference() -> None:
    left, right = draw(5, 3), draw(5, 3, seed=1)
    wanted = sum(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for x, y in zip(left, right, strict=True)) / 5
    assert squared_distance(torch.tensor(left), torch.tensor(right)).item() == pytest.approx(wanted, rel=1e-12)


def test_gradients_equal_finite_differences() -> None:
    query, candidate, negative = (
        torch.tensor(x, requires_grad=True) for x in (draw(3, 4), draw(3, 4, seed=1), draw(3, 2, 4, seed=2))
    )
    assert torch.autograd.gradcheck(lambda q, c: info_nce(q, c, 0.3), (query, candidate))
    assert torch.autograd.gradcheck(lambda q, c, n: supervised_info_nce(q, c, n, 0.3), (query, candidate, negative))
    assert torch.autograd.gradcheck(squared_distance, (query, candidate))


def test_lengths_do_not_matter_but_directions_do() -> None:
    query, candidate = torch.tensor(draw(4, 5)), torch.tensor(draw(6, 5, seed=1))
    longer = info_nce(7 * query, candidate * torch.arange(1, 7)[:, None], 0.1)
    assert longer.item() == pytest.approx(info_nce(query, candidate, 0.1).item(), rel=1e-12)
    assert info_nce(-query, candidate, 0.1).item() != pytest.approx(longer.item(), rel=0.1)


def test_temperature_goes_from_the_number_of_candidates_to_the_nearest_one() -> None:
    """Very hot: log C whatever the vectors. Very cold: 0 where the positive is the nearest, unbounded where it is not."""
    query = torch.tensor(draw(4, 8))
    matching, swapped = query + 0.01, query.roll(1, dims=0)
    for candidate in (matching, swapped):
        assert info_nce(query, candidate, 1e6).item() == pytest.approx(math.log(4), rel=1e-5)
    assert info_nce(query, matching, 0.01).item() < 1e-6
    assert info_nce(query, swapped, 0.01).item() > 30


@pytest.mark.parametrize(
    ("queries", "candidates"),
    [
        (1, 1),  # nothing to tell it from: the loss would always be 0
        (3, 2),  # a query without a positive
    ],
)
def test_too_few_candidates_are_refused(queries: int, candidates: int) -> None:
    with pytest.raises(ValueError, match=f"{candidates} candidates for {queries} queries"):
        info_nce(torch.ones(queries, 4), torch.ones(candidates, 4), 0.1)


def test_one_query_needs_a_negative() -> None:
    with pytest.raises(ValueError, match="one query and no negatives"):
        supervised_info_nce(torch.ones(1, 4), torch.ones(1, 4), torch.ones(1, 0, 4), 0.1)
    one = supervised_info_nce(torch.tensor([[1.0, 0]]), torch.tensor([[1.0, 0]]), torch.tensor([[[0.0, 1]]]), 1.0)
    assert one.item() == pytest.approx(math.log(1 + math.exp(-1)))


def test_autocast_costs_no_precision() -> None:
    """Cosines in bfloat16 are off by up to 0.004, which a temperature of 0.01 makes 0.4."""
    query, candidate, negative = (
        torch.tensor(x, dtype=torch.float32) for x in (draw(8, 16), draw(8, 16, seed=1), draw(8, 2, 16, seed=2))
    )
    exact = [info_nce(query, candidate, 0.01).item(), supervised_info_nce(query, candidate, negative, 0.01).item()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = [info_nce(query, candidate, 0.01).item(), supervised_info_nce(query, candidate, negative, 0.01).item()]
    assert under == pytest.approx(exact, rel=1e-6)


def test_similarities_are_compared_over_all_pairs() -> None:
    student, target = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert similarity_loss(student, target).item() == pytest.approx(2 / 4)  # 0 instead of 1, in both orders
    assert similarity_loss(target, 5 * target).item() == pytest.approx(0, abs=1e-12)


def test_similarities_are_a_term_at_every_width_where_they_have_a_weight() -> None:
    torch.manual_seed(0)
    student, target = torch.randn(6, 4), torch.randn(6, 4)
    plain, both = (target_loss(SimilarityTermParams(similarities=w), "cosine", student, target, [4, 2]) for w in (0, 3))
    terms = [similarity_loss(student[:, :w], target[:, :w]) for w in (4, 2)]
    assert both.item() == pytest.approx(plain.item() + 3 * (terms[0] + terms[1]).item() / 2)
