"""The bootstrap of one row and of pairs against resampling and ranking anew, and the groups of rows worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score

from distilbench.evaluation import bootstrap
from distilbench.evaluation.bootstrap import (
    Averages,
    Difference,
    Items,
    _draws,
    _kept_draws,
    grouped,
    mean_of,
    paired_difference,
    resampled_correlation,
    resampled_f1,
    resampled_mean,
)

SIZES = {"STS12": 400, "STSB": 600}
EQUAL = Difference()


def paired_bootstrap(gold, rows, **given) -> Averages:
    """Of rows of seeds that each have similarities by set."""
    seeds = [[{n: Items(s[n], g, 1 / len(gold)) for n, g in gold.items() if n in s} for s in row] for row in rows]
    return bootstrap.paired_bootstrap(seeds, **given)


def gold_scores(sizes: dict[str, int] = SIZES, seed: int = 0) -> dict[str, np.ndarray]:
    """0 to 5 in steps of 0.2, so with many ties."""
    rng = np.random.default_rng(seed)
    return {name: np.round(rng.uniform(0, 5, n) * 5) / 5 for name, n in sizes.items()}


def encoder(gold: dict[str, np.ndarray], noise: float, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (g + noise * rng.standard_normal(len(g))).astype(np.float32) for name, g in gold.items()}


def average(gold: dict[str, np.ndarray], similarity: dict[str, np.ndarray]) -> float:
    return 100 * float(np.mean([spearmanr(similarity[name], gold[name]).statistic for name in gold]))


def test_the_full_sample_gives_the_leaderboards_average() -> None:
    gold = gold_scores()
    rows = [[encoder(gold, 1.0, 1), encoder(gold, 2.0, 2)], [encoder(gold, 3.0, 3)]]
    observed = paired_bootstrap(gold, rows, resamples=2).observed_R
    assert observed == pytest.approx([np.mean([average(gold, s) for s in row]) for row in rows])


def test_weighted_full_sample_ranks_are_near_ranking_every_resample_anew() -> None:
    gold = gold_scores({"STS12": 1500, "STSB": 1000})
    one = encoder(gold, 2.0, 1)
    other = {name: one[name] + 0.6 * np.random.default_rng(2).standard_normal(len(one[name])) for name in gold}
    found = paired_bootstrap(gold, [[one], [other]], resamples=250, seed=3).resampled_BR
    pairs, _ = np.random.default_rng(3).spawn(2)
    exact = np.zeros((250, 2))
    for name in sorted(gold):
        for b, drawn in enumerate(pairs.integers(len(gold[name]), size=(250, len(gold[name])))):
            for row, similarity in enumerate((one, other)):
                exact[b, row] += 50 * spearmanr(similarity[name][drawn], gold[name][drawn]).statistic
    difference, expected = found[:, 1] - found[:, 0], exact[:, 1] - exact[:, 0]
    assert np.corrcoef(difference, expected)[0, 1] > 0.95
    assert difference.std() == pytest.approx(expected.std(), rel=0.05)
    ends, exact_ends = (np.percentile(d, [2.5, 97.5]) for d in (difference, expected))
    assert ends == pytest.approx(exact_ends, abs=0.05 * np.ptp(exact_ends))
    assert found == pytest.approx(exact, abs=1.0)


def test_equal_similarities_tie_and_a_clearly_worse_encoder_does_not() -> None:
    gold = gold_scores()
    good = encoder(gold, 1.0, 1)
    # Many columns: a matrix product may round the same column differently at its edge.
    copies = [[{name: s.copy() for name, s in good.items()}] for _ in range(9)]
    ties = grouped(paired_bootstrap(gold, [*copies, [encoder(gold, 1.5, 2)]]))
    assert all(t.difference == EQUAL and t.group == "a" for t in ties[:9])
    worse = ties[9]
    assert (worse.group, worse.leader) == ("b", 9)
    # against the best alone
    averages = paired_bootstrap(gold, [[encoder(gold, 1.5, 2)], [good]])
    assert (averages.resampled_BR[:, 0] < averages.resampled_BR[:, 1]).all()


def test_pairs_are_the_same_for_all_rows() -> None:
    # Nearly the same encoder, a hair worse everywhere: paired, that is seen; its own spread is 20 times the difference.
    gold = gold_scores()
    one = encoder(gold, 1.0, 1)
    near = {name: one[name] + 0.25 * np.random.default_rng(9).standard_normal(len(one[name])) for name in gold}
    averages = paired_bootstrap(gold, [[one], [near]])
    paired = (averages.resampled_BR[:, 0] - averages.resampled_BR[:, 1]).std()
    unpaired = np.hypot(*averages.resampled_BR.std(axis=0))
    assert paired < 0.4 * unpaired


def test_the_seeds_of_a_row_are_resampled_too() -> None:
    gold = gold_scores()
    steady = [encoder(gold, 1.10, seed) for seed in (1, 2, 3)]
    wild = [encoder(gold, noise, seed) for noise, seed in ((0.7, 4), (1.3, 5), (2.2, 6))]
    seeds = paired_bootstrap(gold, [steady, wild])
    assert seeds.observed_R[0] > seeds.observed_R[1] + 3
    better, worse = grouped(seeds)
    # By the pairs alone the wild row is worse for sure; with its seeds that is not known.
    assert (better.group, worse.group) == ("a", "a") and worse.difference.high > 0
    fixed = [{name: np.mean([s[name] for s in row], axis=0) for name in gold} for row in (steady, wild)]
    assert [t.group for t in grouped(paired_bootstrap(gold, [[row] for row in fixed]))] == ["a", "b"]
    # Seeds that are all the same have no spread of their own.
    repeated = paired_bootstrap(gold, [[steady[0]] * 3, [steady[0]]])
    assert repeated.resampled_BR[:, 0] == pytest.approx(repeated.resampled_BR[:, 1], abs=1e-8)


def test_a_collapsed_encoder_has_correlation_zero() -> None:
    gold = gold_scores()
    flat = {name: np.ones(len(g), dtype=np.float32) for name, g in gold.items()}
    averages = paired_bootstrap(gold, [[flat], [encoder(gold, 1.0, 1)]], resamples=50)
    assert averages.observed_R[0] == 0 and not averages.resampled_BR[:, 0].any()
    # two pairs: many a resample draws one of them only
    tiny = paired_bootstrap({"S": np.array([1.0, 2.0])}, [[{"S": np.array([0.1, 0.2])}]], resamples=50)
    assert set(tiny.resampled_BR[:, 0]) == {0.0, 100.0}


def test_what_cannot_be_resampled_is_refused() -> None:
    gold = gold_scores()
    one = encoder(gold, 1.0, 1)
    with pytest.raises(ValueError, match="STSB: expected 600"):
        paired_bootstrap(gold, [[one], [{**one, "STSB": one["STSB"][1:]}]])
    with pytest.raises(ValueError, match="STSB: expected 600"):
        paired_bootstrap(gold, [[one], [{"STS12": one["STS12"]}]])


def test_a_small_paired_difference_of_values_is_seen() -> None:
    rng = np.random.default_rng(3)
    one = rng.random(2_000) < 0.5
    other = one.copy()
    other[np.flatnonzero(~one)[:40]] = True  # 2 points better, on the same items
    averages = bootstrap.paired_bootstrap([[{"x": Items(values.astype(float))}] for values in (one, other)])
    assert np.ptp(averages.resampled_BR, axis=0).min() > 2  # their own intervals overlap
    difference = paired_difference(averages, 1, 0)
    assert difference.value == pytest.approx(2) and difference.low > 0 and difference.p < 0.01
    back = paired_difference(averages, 0, 1)
    assert back.value == -difference.value and back.p == difference.p
    assert paired_difference(averages, 0, 0) == EQUAL


def test_groups_by_hand() -> None:
    observed = np.array([70.0, 75.0, 74.0, 72.0, 69.0])
    shape = np.linspace(-1, 1, 101)[:, None]
    # Evenly spread around the observed ones: the interval ends at 0.95 of the spread.
    spread = np.array([3.0, 0.0, 1.5, 0.5, 0.0])
    ties = grouped(Averages(observed, observed + shape * spread))
    assert [t.group for t in ties] == ["b", "a", "a", "b", "c"]
    assert [t.leader for t in ties] == [3, 1, 1, 3, 4]
    # 72 opens "b"; 70 is 2 below it, and their spreads go together: 3 - 0.5
    assert ties[0].difference.high == pytest.approx(-2 + 0.95 * 2.5)
    assert ties[2].difference.value == -1 and ties[0].difference.value == -2
    ends = ties[2].difference.low, ties[2].difference.high
    assert ends == pytest.approx((-1 - 0.95 * 1.5, -1 + 0.95 * 1.5))
    assert ties[2].difference.ahead == pytest.approx(17 / 101)  # 1.5 x > 1
    assert ties[1].difference == EQUAL


# One row


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
    values = np.random.default_rng(5).random(700)
    kept = resampled_mean(values)
    monkeypatch.setattr(bootstrap, "KEPT", 699)
    assert sum(len(block) for block in _draws(700)) == 1000 and len(list(_draws(700))) == 4
    again = resampled_mean(values)
    assert again.resampled_B == pytest.approx(kept.resampled_B, rel=1e-5) and again.value == kept.value
