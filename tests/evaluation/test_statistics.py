"""Intervals and paired differences against brute force, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score

from distilbench.evaluation.bootstrap import (
    _draws,
    _kept_draws,
    mean_of,
    resampled_correlation,
    resampled_f1,
    resampled_mean,
)


def correlated(count: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    gold = rng.standard_normal(count)
    return gold, gold + noise * rng.standard_normal(count)


def test_every_resample_is_the_score_of_the_items_drawn() -> None:
    gold, found = correlated(60, 1.0, 0)
    predicted, true = found > 0.2, gold > 0
    scores = {
        "mean": (resampled_mean(found), lambda i: 100 * found[i].mean()),
        "pearson": (resampled_correlation(found, gold, ranks=False), lambda i: 100 * pearsonr(found[i], gold[i])[0]),
        "f1": (resampled_f1(predicted, true), lambda i: 100 * f1_score(true[i], predicted[i])),
    }
    for resampled, brute in scores.values():
        assert resampled.value == pytest.approx(brute(np.arange(60)))
        for b in (0, 251, 999):
            assert resampled.resampled_B[b] == pytest.approx(
                brute(np.repeat(np.arange(60), _kept_draws(60)[b].astype(int))), rel=1e-4
            )
        assert resampled.interval.low < resampled.value < resampled.interval.high


def test_spearman_is_that_of_the_whole_and_its_interval_near_that_of_new_ranks() -> None:
    gold, found = correlated(800, 1.0, 1)
    resampled = resampled_correlation(found, gold, ranks=True)
    assert resampled.value == pytest.approx(100 * spearmanr(found, gold).statistic)
    drawn = [np.repeat(np.arange(800), row) for row in _kept_draws(800)[:400].astype(int)]
    low, high = np.percentile([100 * spearmanr(found[i], gold[i]).statistic for i in drawn], [2.5, 97.5])
    assert resampled.interval.high - resampled.interval.low == pytest.approx(high - low, rel=0.1)


def test_a_mean_of_sets() -> None:
    one, other = resampled_mean(np.arange(50) < 20), resampled_mean(np.arange(150) < 30)
    assert mean_of([one, other]).value == pytest.approx(30)
    weighted = mean_of([one, other], [1, 3])
    assert weighted.value == pytest.approx((40 + 3 * 20) / 4)
    assert weighted.resampled_B == pytest.approx((one.resampled_B + 3 * other.resampled_B) / 4)
    assert np.ptp(weighted.interval) < np.ptp(one.interval)


def test_a_large_set_is_resampled_in_blocks_and_like_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from distilbench.evaluation import bootstrap as module

    values = np.random.default_rng(5).random(700)
    kept = resampled_mean(values)
    monkeypatch.setattr(module, "KEPT", 699)
    assert sum(len(block) for block in _draws(700)) == 1000 and len(list(_draws(700))) == 4
    again = resampled_mean(values)
    assert again.resampled_B == pytest.approx(kept.resampled_B, rel=1e-5) and again.value == kept.value
