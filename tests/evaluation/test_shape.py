"""The shape of an embedding space: closed forms, loops over all pairs, what may not change it, bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from distilbench.evaluation import shape as module
from distilbench.evaluation.geometry import geometry
from distilbench.evaluation.shape import Shape, isotropy, shape, uniformity


def draw(rows: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    # Directions of different strength, off the origin: no two eigenvalues alike, no symmetry to hide a mistake.
    return (rng.standard_normal((rows, width)) * 0.8 ** np.arange(width) + 0.3).astype(np.float32)


def pairs(rows: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed + 1)
    left, right = rng.integers(0, rows, (2, count))
    return left, right, rng.integers(0, 11, count) / 2


def chain(x_ND: np.ndarray) -> Shape:
    """Each row with the following one, all of them positive."""
    rows = np.arange(len(x_ND))
    return shape(x_ND.astype(np.float32), rows[:-1], rows[1:], np.full(len(rows) - 1, 5.0))


# Closed forms


def test_orthonormal_vectors() -> None:
    found = chain(np.eye(6))
    assert found.alignment == pytest.approx(2)  # every squared distance is 2
    assert found.uniformity == pytest.approx(-4)
    assert found.mean_cosine == pytest.approx(0, abs=1e-12)
    assert (found.positives, found.rows, found.uniformity_rows) == (5, 6, 6)


def test_two_opposite_vectors() -> None:
    found = chain(np.array([[3.0, 0.0], [-0.5, 0.0]]))
    assert found.alignment == pytest.approx(4)
    assert found.uniformity == pytest.approx(-8)
    assert found.mean_cosine == pytest.approx(-1)
    # Along the line e + 1/e, across it 2.
    assert found.isotropy == pytest.approx(2 / (math.e + 1 / math.e))


def test_vectors_of_one_direction() -> None:
    found = chain(np.arange(1, 9)[:, None] * np.array([[0.6, 0.8, 0.0]]))
    assert found.alignment == pytest.approx(0, abs=1e-12)
    assert found.uniformity == pytest.approx(0, abs=1e-12)
    assert found.mean_cosine == pytest.approx(1)
    assert found.isotropy == pytest.approx(math.exp(-2))  # the least that there is: n / e against n e
    assert found.effective_rank == pytest.approx(1, abs=1e-4)


def test_a_cross_is_the_same_in_all_directions() -> None:
    found = chain(np.vstack([np.eye(4), -np.eye(4)]))
    assert found.isotropy == pytest.approx(1)
    assert found.effective_rank == pytest.approx(4)
    assert found.mean_cosine == pytest.approx(-1 / 7)  # of 7 others one is opposite
    assert found.uniformity == pytest.approx(math.log((6 * math.exp(-4) + math.exp(-8)) / 7))


# Against loops over all pairs


@pytest.mark.parametrize(("rows", "width", "block"), [(2, 3, 512), (5, 1, 2), (40, 7, 40), (41, 20, 8), (30, 50, 7)])
def test_every_number_is_that_of_a_loop(rows: int, width: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    x_ND = draw(rows + 3, width)  # the last 3 rows are in no pair
    left, right, score = pairs(rows, 3 * rows)
    left[:2], right[:2], score[:2] = [0, 1], [1, 0], [4.0, 4.5]  # 4 itself is not positive
    found = shape(x_ND, left, right, score)
    used = sorted({*left.tolist(), *right.tolist()})
    x = [x_ND[i].astype(np.float64) / np.linalg.norm(x_ND[i].astype(np.float64)) for i in used]
    at = dict(zip(used, x, strict=True))
    positive = [(at[a], at[b]) for a, b, s in zip(left.tolist(), right.tolist(), score, strict=True) if s > 4]
    two = list(itertools.combinations(x, 2))
    assert (found.positives, found.rows) == (len(positive), len(used))
    assert found.alignment == pytest.approx(np.mean([((u - v) ** 2).sum() for u, v in positive]), abs=1e-12)
    potentials = [math.exp(-2 * ((u - v) ** 2).sum()) for u, v in two]
    assert found.uniformity == pytest.approx(math.log(sum(potentials) / len(potentials)), abs=1e-9)
    assert found.mean_cosine == pytest.approx(np.mean([u @ v for u, v in two]), abs=1e-9)
    # Eigenvectors of X'X are the right singular vectors of X, all of them.
    _, _, axes = np.linalg.svd(np.array(x), full_matrices=True)
    z = [sum(math.exp(sign * (c @ v)) for v in x) for c in axes for sign in (1, -1)]
    assert found.isotropy == pytest.approx(min(z) / max(z), rel=1e-6)
    assert found.effective_rank == geometry(x_ND[used]).effective_rank


def test_near_copies_lose_nothing_to_rounding() -> None:
    angle = 1e-5
    x = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
    assert uniformity(x) == pytest.approx(-2 * angle**2, rel=1e-4)
    assert uniformity(np.vstack([x[:1]] * 9)) == 0.0


# What may not change it


def test_rotation_lengths_and_the_order_of_pairs() -> None:
    x_ND = draw(60, 8)
    left, right, score = pairs(60, 90)
    plain = shape(x_ND, left, right, score)
    rotation, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((8, 8)))
    rotated = shape((x_ND @ rotation).astype(np.float32), left, right, score)
    longer = shape(1000 * x_ND, left, right, score)
    order = np.random.default_rng(4).permutation(90)
    swapped = shape(x_ND, right[order], left[order], score[order])
    for other in (rotated, longer, swapped):
        for name in ("alignment", "uniformity", "effective_rank", "isotropy", "mean_cosine", "positives", "rows"):
            assert getattr(other, name) == pytest.approx(getattr(plain, name), rel=1e-4), name


def test_a_pair_that_comes_twice_counts_its_rows_once() -> None:
    x_ND = draw(10, 4)
    left, right, score = np.arange(9), np.arange(1, 10), np.full(9, 5.0)
    once = shape(x_ND, left, right, score)
    twice = shape(x_ND, np.tile(left, 2), np.tile(right, 2), np.tile(score, 2))
    assert twice.positives == 2 * once.positives
    assert twice._replace(positives=once.positives, alignment=0) == once._replace(alignment=0)
    assert twice.alignment == pytest.approx(once.alignment)


def test_the_better_space_is_seen() -> None:
    # Random directions are more uniform and more isotropic than the same ones in a narrow cone.
    wide = np.random.default_rng(0).standard_normal((200, 16))
    spread, cone = chain(wide), chain(wide + 4)
    assert spread.uniformity < -3 and cone.uniformity > -1
    assert spread.isotropy > 0.8 and cone.isotropy < 0.3
    assert abs(spread.mean_cosine) < 0.05 and cone.mean_cosine > 0.9


def test_many_rows_are_sampled_the_same_way_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x_ND = draw(600, 6)
    whole = chain(x_ND)
    monkeypatch.setattr(module, "LIMIT", 300)
    sampled = chain(x_ND)
    assert (sampled.rows, sampled.uniformity_rows) == (600, 300)
    assert chain(x_ND) == sampled
    assert sampled.uniformity != whole.uniformity
    assert sampled.uniformity == pytest.approx(whole.uniformity, abs=0.1)
    assert sampled._replace(uniformity=0, uniformity_rows=0) == whole._replace(uniformity=0, uniformity_rows=0)


def test_isotropy_is_between_its_ends() -> None:
    for seed in range(20):
        x = draw(12, 5, seed).astype(np.float64)
        value = isotropy(x / np.linalg.norm(x, axis=1, keepdims=True))
        assert math.exp(-2) <= value <= 1


# Bad input

FIRST, SECOND, FIVE = np.array([0, 1]), np.array([1, 2]), np.array([5.0, 5.0])


@pytest.mark.parametrize(
    ("left", "right", "score", "message"),
    [
        (FIRST, SECOND, np.array([4.0, 1.0]), "no pair has a score above 4, the highest is 4"),
        (FIRST, SECOND, np.array([5.0, np.nan]), "the score of pair 1 is nan"),
        (FIRST[:1], FIRST[:1], FIVE[:1], "pairs of 1 distinct rows, expected at least 2"),
        (FIRST[:0], FIRST[:0], FIVE[:0], "pairs of 0 distinct rows"),
        (FIRST, SECOND[:1], FIVE, "2 left rows, 1 right rows, 2 scores"),
        (FIRST, SECOND + 2, FIVE, "names row 4, expected 0 to 3"),
        (FIRST - 1, SECOND, FIVE, "names row -1, expected 0 to 3"),
    ],
)
def test_bad_pairs(left: np.ndarray, right: np.ndarray, score: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shape(draw(4, 3), left, right, score)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_vector_without_a_direction(value: float) -> None:
    x_ND = draw(4, 3)
    x_ND[3] = value
    shape(x_ND, FIRST, SECOND, FIVE)  # no pair uses it
    with pytest.raises(ValueError, match="vector 3 is zero or not finite"):
        shape(x_ND, FIRST, SECOND + 1, FIVE)
    with pytest.raises(ValueError, match=r"vectors of shape \(4,\)"):
        shape(x_ND[:, 0], FIRST, SECOND, FIVE)
