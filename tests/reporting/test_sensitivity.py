"""Sensitivity: panels, points, and the line through the best of each bin."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.reporting import colours, sensitivity


def test_panels_points_and_lines_by_hand(make_trial):
    lrs, objectives = (1e-4, 1e-3, 1e-2, 1e-3, 1e-4), (1.0, 3.0, 2.0, 2.5, 1.5)
    trials = [
        make_trial(n, objective=value, params={"lr": lr, "head": "a" if n % 2 else "b", "beta": 1.0})
        for n, (lr, value) in enumerate(zip(lrs, objectives, strict=True))
    ]
    trials += [make_trial(5, objective=math.nan), make_trial(6, state="PRUNED", params={"lr": 1.0, "beta": 2.0})]
    data = sensitivity.compute_sensitivity(trials)
    (panel,) = data.panels
    assert (panel.name, panel.log, data.groups, data.drawn, data.complete) == ("lr", True, ("64 dimensions",), 5, 5)
    (effect,) = panel.effects
    assert effect.points[0] == (1e-3, 3.0, 1)
    assert effect.best == ((1e-4, 1.5), (1e-3, 3.0), (1e-2, 2.0))


def test_lines_of_dimensions_are_apart_and_bins_hold_equally_many(make_trial):
    trials = [make_trial(n, dim=32, objective=float(n % 6), params={"beta": n / 10}) for n in range(24)]
    trials += [make_trial(100 + n, dim=64, objective=50.0, params={"beta": float(n)}) for n in range(2)]
    data = sensitivity.compute_sensitivity(trials)
    small, large = data.panels[0].effects
    # eight bins of three: every other holds the trial of objective 5
    assert small.best == tuple((n / 10, float(n % 6)) for n in (2, 5, 8, 11, 14, 17, 20, 23))
    assert large.best == ((0.0, 50.0), (1.0, 50.0)) and len(large.points) == 2
    drawn = sensitivity.draw_sensitivity(data)
    assert [trace.name for trace in drawn.data if trace.showlegend] == ["32 dimensions", "64 dimensions"]
    assert "do not compare" in sensitivity.sensitivity_caption(data)


def test_few_different_trials_have_no_line(make_trial):
    trials = [make_trial(n, objective=1.0, params={"beta": 1.0 + n}, dim=32) for n in range(1)]
    trials += [make_trial(9, objective=2.0, params={"beta": 9.0})]
    data = sensitivity.compute_sensitivity(trials)
    assert [effect.best for effect in data.panels[0].effects] == [(), ()]


def test_of_thousands_the_best_are_points_and_the_line_is_exact(make_trial):
    trials = [make_trial(n, objective=float(n == 777), params={"beta": n % 1000 / 1000}) for n in range(3000)]
    data = sensitivity.compute_sensitivity(trials, limit=100)
    (effect,) = data.panels[0].effects
    assert data.drawn == len(effect.points) == 100 and effect.points[0].number == 777
    assert (0.777, 1.0) in effect.best and "100 of 3,000 trials are points" in sensitivity.sensitivity_caption(data)
    with pytest.raises(ValueError, match="limit is 0"):
        sensitivity.compute_sensitivity(trials, limit=0)


def test_trials_that_diverged_are_below_the_axis(make_trial):
    trials = [make_trial(n, objective=value, params={"x": n}) for n, value in enumerate((0.0, 1.0, 2.0, -99.0, 1.5))]
    data = sensitivity.compute_sensitivity(trials)
    assert data.start == pytest.approx(-3.0) and data.below == 1
    assert "Below the axis: 1 trials." in sensitivity.sensitivity_caption(data)
    assert sensitivity.draw_sensitivity(data).layout.yaxis.range[0] == pytest.approx(-3.0)


def test_panels_beyond_the_most_are_named(make_trial):
    trials = [make_trial(n, params={f"p{k:02}": n for k in range(14)}) for n in range(3)]
    data = sensitivity.compute_sensitivity(trials)
    assert len(data.panels) == sensitivity.MOST_PANELS and data.omitted == ("p12", "p13")
    assert "Not drawn: p12, p13." in sensitivity.sensitivity_caption(data)


def test_nothing_to_draw(make_trial):
    for trials in ([], [make_trial(0)], [make_trial(0, objective=None), make_trial(1, objective=math.inf)]):
        data = sensitivity.compute_sensitivity(trials)
        assert data.panels == () and json.loads(sensitivity.draw_sensitivity(data).to_json())["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_names(make_trial, palette):
    hostile = "</script><b>&%{x}"
    trials = [make_trial(n, method=hostile if n else "b", params={hostile: n}) for n in range(6)]
    text = sensitivity.draw_sensitivity(sensitivity.compute_sensitivity(trials), palette).to_json()
    assert "<" not in text
    shown = json.loads(text)
    assert "&lt;/script&gt;" in shown["layout"]["xaxis"]["title"]["text"]
    assert all("</script" not in trace["name"] for trace in shown["data"])
