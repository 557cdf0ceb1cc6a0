"""Learning curves: which trials are drawn, and how pruned ones are told apart."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.records import Rung
from distilbench.reporting import colours, curves


@pytest.fixture
def trial(make_trial):
    """`trial(number, values, ...)`: a trial with these objectives at 100, 200, ... steps."""

    def make(number, values, **changes):
        rungs = [Rung(rung=k, step=100 * (k + 1), objective=v, metrics={}) for k, v in enumerate(values)]
        return make_trial(number, rungs=rungs, objective=values[-1] if values else None, **changes)

    return make


def test_curves_by_hand(trial):
    data = curves.compute_curves(
        [
            trial(0, [1.0, 2.0, 3.0]),
            trial(1, [1.0, math.nan, 2.5]),
            trial(2, [0.5], state="PRUNED"),
            trial(3, [9.0, 9.5], dim=128),
            trial(4, [5.0], state="FAIL"),
            trial(5, [None, math.inf], state="PRUNED"),
            trial(0, [8.0], seed=1, confirms=True),
        ]
    )
    assert [(c.number, c.group, c.pruned, c.best) for c in data.curves] == [
        (2, 0, True, False),
        (1, 0, False, False),
        (0, 0, False, True),
        (3, 1, False, True),
    ]
    assert data.curves[1].points == ((100, 1.0), (300, 2.5))
    assert (data.complete, data.pruned, data.without) == (3, 1, 2)
    assert data.groups == ("64 dimensions", "128 dimensions")
    assert "with a finite objective: 2." in curves.curves_caption(data)


def test_pruned_trials_are_grey_and_end_in_a_cross(trial):
    data = curves.compute_curves([trial(0, [1.0, 2.0]), trial(1, [0.5, 0.75], state="PRUNED"), trial(2, [1.0, 1.5])])
    lines, crosses, others, best = json.loads(curves.draw_curves(data).to_json())["data"]
    assert lines["line"]["color"] == colours.LIGHT.muted and lines["x"] == [100, 200, None]
    assert (crosses["x"], crosses["y"], crosses["customdata"]) == ([200], [0.75], [1])
    assert crosses["marker"]["symbol"] == "x-thin" and crosses["name"] == "Pruned"
    assert (others["name"], others["customdata"]) == ("Complete", [2, 2, 2])
    assert (best["name"], best["y"], best["line"]["width"]) == ("Best", [1.0, 2.0, None], 2.6)


def test_of_ten_thousand_some_are_drawn_the_best_among_them(trial):
    trials = [
        trial(n, [n / 10_000 + k for k in range(8 if n % 3 == 0 else 2)], state="PRUNED" if n % 3 else "COMPLETE")
        for n in range(10_000)
    ]
    data = curves.compute_curves(trials)
    assert (data.complete, data.pruned) == (3334, 6666) and len(data.curves) <= curves.MOST_CURVES + 1
    assert data.curves[-1].number == 9999 and data.curves[-1].best
    assert min(sum(c.pruned for c in data.curves), sum(not c.pruned for c in data.curves)) > 90
    assert len(curves.draw_curves(data).to_json()) < 100_000
    assert "completed and 100 of 6,666 pruned trials" in curves.curves_caption(data)
    with pytest.raises(ValueError, match="limit is 1"):
        curves.compute_curves(trials, limit=1)


def test_few_of_one_kind_leave_room_for_the_other(trial):
    trials = [trial(n, [float(n)], state="COMPLETE" if n < 5 else "PRUNED") for n in range(100)]
    data = curves.compute_curves(trials, limit=40)
    assert sum(not c.pruned for c in data.curves) == 5 and sum(c.pruned for c in data.curves) == 32  # every third


def test_steps_that_grow_by_a_factor_are_on_a_logarithmic_axis(make_trial):
    rungs = [Rung(rung=k, step=50 * 3**k, objective=1.0, metrics={}) for k in range(5)]
    assert curves.draw_curves(curves.compute_curves([make_trial(0, rungs=rungs)])).layout.xaxis.type == "log"


def test_trials_that_diverge_leave_at_the_edge(trial):
    data = curves.compute_curves([trial(n, [v]) for n, v in enumerate((0.0, 1.0, 2.0, -100.0, 1.5))])
    assert data.start == pytest.approx(-3.0) and "lower edge" in curves.curves_caption(data)
    assert curves.draw_curves(data).layout.yaxis.range[0] == pytest.approx(-3.0)


def test_nothing_to_draw(trial):
    for trials in ([], [trial(0, [])], [trial(0, [math.nan])], [trial(0, [1.0], state="FAIL")]):
        data = curves.compute_curves(trials)
        assert data.curves == () and json.loads(curves.draw_curves(data).to_json())["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_names(trial, palette):
    hostile = "</script><b>&%{x}"
    data = curves.compute_curves([trial(0, [1.0], method=hostile), trial(1, [2.0], method="b", state="PRUNED")])
    text = curves.draw_curves(data, palette).to_json()
    assert "<" not in text and "&lt;/script" in json.dumps([trace.get("name") for trace in json.loads(text)["data"]])
