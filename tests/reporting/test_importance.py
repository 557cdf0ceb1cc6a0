"""Hyper-parameter importance from trial records."""

from __future__ import annotations

import json
import math
import random

import pytest

from distilbench.reporting import colours, importance


@pytest.fixture
def search(make_trial):
    """`search(count, value, dims, **params)`: trials with lr and beta drawn, objective `value(lr, beta, head)` by dim."""

    def make(count, value, dims=(64,), **params):
        rng, trials = random.Random(0), []
        for n in range(count):
            lr, beta, head = 10 ** rng.uniform(-5, -2), rng.uniform(0, 1), rng.choice(["a", "b"])
            dim = dims[n % len(dims)]
            own = {"lr": lr, "beta": beta, "head": head, "output_dim": dim, **params}
            trials.append(make_trial(n, dim=dim, params=own, objective=value(lr, beta, head, dim)))
        return trials

    return make


def test_the_parameter_that_matters_is_first_whatever_the_dimension(search):
    # the dimension alone makes 100 points: it must not drown the others
    data = importance.compute_importance(
        search(80, lambda lr, beta, head, dim: dim * 100 + math.log10(lr) * (1 if dim == 1 else 50), dims=(1, 2))
    )
    assert data.reason == "" and data.groups == 2 and (data.used, data.complete) == (80, 80)
    assert (
        data.shares[0][0] == "lr"
        and data.shares[0][1] > 90
        and {name for name, _ in data.shares}
        == {
            "lr",
            "beta",
            "head",
        }
    )
    assert data.together == pytest.approx(100 - sum(share for _, share in data.shares)) and data.fit > 0.8


def test_every_decade_of_a_logarithmic_parameter_weighs_alike(search):
    # A step at lr = 1e-4, in the middle of the logarithmic range: on a linear scale 99 % of it would be on one side.
    trials = search(120, lambda lr, beta, head, dim: 10 * (lr > 10**-3.5) + 3 * beta)
    found = dict(importance.compute_importance(trials).shares)
    # variances of the parts: 100 / 4 and 9 / 12
    assert found["lr"] == pytest.approx(100 * 25 / 25.75, abs=3) and found["beta"] == pytest.approx(2.9, abs=2)
    assert found["head"] < 1


def test_what_cannot_be_assessed_is_named(search):
    trials = search(40, lambda lr, beta, head, dim: beta)
    trials = [
        t.model_copy(update={"params": {**t.params, "text": f"t{n}", **({"noise": beta} if n % 2 else {})}})
        for n, (t, beta) in enumerate((t, t.params["beta"]) for t in trials)
    ]
    data = importance.compute_importance(trials)
    assert dict(data.left_out) == {"noise": "missing in 20 trials", "text": "40 categories"}
    assert "Left out: text (40 categories); noise (missing in 20 trials)." in importance.importance_caption(data)


@pytest.mark.parametrize(
    ("count", "value", "dims", "reason"),
    [
        (0, 1.0, (64,), "0 completed trials"),
        (1, 1.0, (64,), "0 completed trials"),
        (9, None, (64,), "9 completed trials"),
        (12, None, tuple(range(8, 20)), "0 completed trials"),  # each of another dimension: nothing compares
        (12, 5.0, (64,), "the objective is the same"),
        (12, math.nan, (64,), "0 completed trials"),
    ],
)
def test_without_enough_there_is_a_reason(search, count, value, dims, reason):
    data = importance.compute_importance(search(count, lambda lr, *_: lr if value is None else value, dims))
    assert data.reason.startswith(reason) and data.shares == ()
    assert importance.importance_caption(data).startswith("Hyper-parameter importance was not computed: ")
    assert json.loads(importance.draw_importance(data).to_json())["data"] == []


def test_nothing_varied(make_trial):
    data = importance.compute_importance([make_trial(n, params={"lr": 1.0}, objective=float(n)) for n in range(20)])
    assert data.reason == "no hyper-parameter was varied in all trials"


def test_pruned_and_failed_trials_do_not_count(search, make_trial):
    trials = search(9, lambda lr, *_: lr)
    more = [make_trial(n, state="PRUNED") for n in range(50, 60)] + [make_trial(70, state="FAIL", objective=None)]
    assert importance.compute_importance([*trials, *more]).used == 9


def test_of_many_trials_some_are_read(search):
    trials = search(60, lambda lr, *_: math.log10(lr))
    data = importance.compute_importance(trials, limit=20)
    assert (data.used, data.complete) == (20, 60) and "20 of 60 completed trials" in importance.importance_caption(data)
    assert data == importance.compute_importance(reversed(trials), limit=20)
    with pytest.raises(ValueError, match="limit is 9"):
        importance.compute_importance(trials, limit=9)


def test_noise_is_said_to_be_noise(search):
    rng = random.Random(5)
    data = importance.compute_importance(search(40, lambda *_: rng.gauss(0, 1)))
    assert data.fit < 0.1 and "too little to rank them by" in importance.importance_caption(data)


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_names(make_trial, palette):
    hostile = "</script><b>&%{x}"
    data = importance.compute_importance(
        [make_trial(n, params={hostile: float(n), "x": n % 3}, objective=float(n)) for n in range(12)]
    )
    text = importance.draw_importance(data, palette).to_json()
    assert "<" not in text
    assert "&lt;/script&gt;" in json.loads(text)["layout"]["yaxis"]["ticktext"][-1]
