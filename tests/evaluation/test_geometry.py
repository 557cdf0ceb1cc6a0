"""Effective rank and variance beside numpy's SVD and closed forms, and what counts as collapsed."""

from __future__ import annotations

import numpy as np
import pytest

from distilbench.evaluation.geometry import Geometry, geometry


def reference(x_ND: np.ndarray) -> tuple[float, float]:
    """From the singular values of the centred matrix itself, in double precision."""
    x = x_ND.astype(np.float64)
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    share = values[values > 0] / values.sum()
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
    return float(np.exp(-(share * np.log(share)).sum())), float(np.mean(((unit - unit.mean(axis=0)) ** 2).sum(axis=1)))


def draw(rows: int, width: int, scale: np.ndarray | float = 1.0, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(rows + width)
    return (rng.standard_normal((rows, width)) * scale + shift).astype(np.float32)


@pytest.mark.parametrize(
    "x_ND",
    [
        draw(500, 16),
        draw(500, 16, 0.9 ** np.arange(16)),
        draw(500, 16, 1e4),  # the scale of all embeddings does not count
        draw(500, 16, 1e-4),
        draw(500, 16, 0.01, shift=1.0),  # a narrow cone
        draw(10, 40),  # fewer rows than dimensions: rank 9 at most
        draw(200, 3) @ draw(3, 24),  # rank 3
        np.vstack([draw(50, 8), np.zeros((3, 8), dtype=np.float32)]),
    ],
    ids=["round", "falling", "long", "short", "cone", "few", "flat", "zeros"],
)
def test_rank_and_variance_are_those_of_the_svd(x_ND: np.ndarray) -> None:
    rank, variance = reference(x_ND)
    found = geometry(x_ND)
    assert found.effective_rank == pytest.approx(rank, rel=1e-4)
    assert found.variance == pytest.approx(variance, rel=1e-4)


def test_closed_forms() -> None:
    crosses = np.vstack([np.eye(6), -np.eye(6)]).astype(np.float32)
    assert geometry(crosses) == pytest.approx((6.0, 1.0))  # every direction alike, mean 0
    assert geometry(crosses * 1000) == pytest.approx((6.0, 1.0))
    line = np.linspace(-1, 1, 7, dtype=np.float32)[:, None] * np.ones((1, 5), dtype=np.float32)
    assert geometry(line).effective_rank == pytest.approx(1.0, abs=1e-5)
    same = np.ones((9, 4), dtype=np.float32)
    assert geometry(same) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert geometry(np.zeros((9, 4), dtype=np.float32)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("rank", "variance", "d", "wanted"),
    [
        (7.5, 0.9, 8, ""),
        (7.5, 0.0025, 8, ""),  # the limits themselves, of a teacher of variance 0.5
        (1.5, 0.9, 8, ""),
        (
            7.5,
            0.00245,
            8,
            "collapsed: the unit vectors have 0.0049 of the teacher's variance, below 0.005: all cosines",
        ),
        (1.0, 0.0, 1, "collapsed: the unit vectors have 0 of the teacher's variance, below 0.005: all cosines"),
        (1.49, 0.9, 8, "collapsed: effective rank 1.49 of 8 dimensions, below 1.5"),
        # One or two dimensions have no rank to lose.
        (1.0, 0.9, 1, ""),
        (1.0, 0.9, 2, ""),
        (1.0, 0.9, 3, "collapsed: effective rank 1.00 of 3 dimensions, below 1.5"),
    ],
)
def test_what_is_collapsed_beside_the_teacher(rank: float, variance: float, d: int, wanted: str) -> None:
    found = Geometry(rank, variance).collapsed(d, 0.5)
    assert found.startswith(wanted) and bool(found) == bool(wanted)
    assert Geometry(7.5, 0.001).collapsed(8, 0.05) == ""  # a teacher that is crowded itself
