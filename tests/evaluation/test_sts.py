"""STS scores against scipy, SentEval's three ways of combining subsets, and degenerate encoders."""

from __future__ import annotations

import numpy as np
import pytest
from samples import sts_scores
from scipy.stats import pearsonr, spearmanr

from distilbench.data.corpus import CorpusBuilder, StsSet
from distilbench.evaluation.sts import cosine, scores_of_similarities, spearman


def corpus_and_vectors():  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    builder = CorpusBuilder("test")
    for subset, count in (("a", 10), ("b", 30)):
        left, right = ([f"{subset}{side}{i}" for i in range(count)] for side in "lr")
        builder.add_sts("STS12", subset, "test", left, right, rng.uniform(0, 5, count))
    builder.add_sts("STSB", "", "dev", ["x", "y", "z"], ["y", "z", "x"], [1, 2, 3])
    corpus = builder.build()
    return corpus, rng.standard_normal((len(corpus.sentences), 5)).astype(np.float32)


@pytest.mark.parametrize(("metric", "correlation"), [("spearman", spearmanr), ("pearson", pearsonr)])
def test_all_mean_and_weighted_mean(metric: str, correlation) -> None:  # type: ignore[no-untyped-def]
    corpus, vectors = corpus_and_vectors()
    every = [s for s in sts_scores(lambda rows: vectors[rows], corpus.sts) if s.metric == metric]
    found = {(s.set, s.split, s.variant): s for s in every}
    sims = [cosine(vectors[s.left_P], vectors[s.right_P]) for s in corpus.sts]
    a, b = (100 * correlation(sims[i], corpus.sts[i].score_P).statistic for i in (0, 1))
    both = 100 * correlation(np.concatenate(sims[:2]), np.concatenate([s.score_P for s in corpus.sts[:2]])).statistic
    assert found["STS12", "test", "a"].value == pytest.approx(a)
    assert found["STS12", "test", "all"].value == pytest.approx(both)
    assert found["STS12", "test", "mean"].value == pytest.approx((a + b) / 2)
    assert found["STS12", "test", "wmean"].value == pytest.approx((10 * a + 30 * b) / 40)
    assert found["STS12", "test", "all"].n == 40
    assert all(s.low is not None and s.high is not None and s.low < s.value < s.high for s in every if s.set == "STS12")
    # A group of one file has one value, not three names for it.
    assert [key[2] for key in found if key[0] == "STSB"] == ["all"]


def test_zero_vectors_have_cosine_zero() -> None:
    assert cosine(np.zeros((1, 3), dtype=np.float32), np.ones((1, 3), dtype=np.float32)).tolist() == [0]


def test_ties_share_their_rank() -> None:
    assert spearman(np.array([1.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 1.0, 2.0])) == pytest.approx(
        100 * spearmanr([1, 1, 2, 3], [0, 1, 1, 2]).statistic
    )


@pytest.mark.parametrize(("turn", "expected"), [(2e-5, 0.0), (1e-3, 100.0)])
def test_cosines_that_differ_by_roundings_alone_have_correlation_zero(turn: float, expected: float) -> None:
    # Cosines of small angles fall by half of their squares: the largest angle decides how far they spread.
    angles = np.sqrt(np.arange(20.0, 0.0, -1.0)) * turn
    left, right = np.tile([1.0, 0.0], (20, 1)), np.column_stack([np.cos(angles), np.sin(angles)])
    similarity = cosine(left, right)  # type: ignore[arg-type]
    sts = StsSet("STSB", "", "test", np.arange(20), np.arange(20), np.arange(20.0))
    scores = scores_of_similarities([sts], [similarity])
    assert {s.metric: s.value for s in scores} == pytest.approx({"spearman": expected, "pearson": expected})
    # The paired bootstrap resamples the same cosines, and says the same.
    assert spearman(similarity, sts.score_P) == pytest.approx(expected)
    assert (np.ptp(similarity) == 0) == (expected == 0)
