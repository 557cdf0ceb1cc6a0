"""What the figures of one search share."""

from __future__ import annotations

import math

import pytest

from distilbench.reporting.coordinates import compute_coordinates, coordinates_caption
from distilbench.reporting.curves import compute_curves, curves_caption
from distilbench.reporting.importance import compute_importance, importance_caption
from distilbench.reporting.searched import axis_start, every_kth, searched_trials
from distilbench.reporting.sensitivity import compute_sensitivity, sensitivity_caption


def test_completed_trials_and_the_parameters_that_differ(make_trial):
    common = {"batch_size": 256, "betas": [0.9, 0.999], "output_dim": 64}
    trials = [
        make_trial(2, objective=3.0, params={**common, "lr": 1e-2, "head": "elu", "clip": None, "noise": 0.1}),
        make_trial(0, objective=1.0, params={**common, "lr": 1e-4, "head": "<b>", "clip": 1.0}),
        make_trial(1, objective=2.0, params={**common, "lr": 1e-3, "head": "elu", "clip": 1.0, "noise": 0.2}),
        make_trial(3, state="PRUNED", params={**common, "lr": 1.0}),
        make_trial(4, state="FAIL", objective=None),
        make_trial(5, objective=math.nan, params={**common, "lr": 1.0}),
        make_trial(0, seed=1, confirms=True, objective=9.0),
    ]
    study = searched_trials(trials)
    assert [t.number for t in study.trials] == [0, 1, 2] and study.objective == (1.0, 2.0, 3.0) and study.total == 6
    by_name = {p.name: p for p in study.parameters}
    assert set(by_name) == {"lr", "head", "clip", "noise"}
    assert by_name["lr"].values == (1e-4, 1e-3, 1e-2) and by_name["lr"].log and not by_name["lr"].categories
    assert by_name["head"].categories == ("<b>", "elu") and by_name["head"].values == (0.0, 1.0, 1.0)
    assert by_name["clip"].categories == ("1.0", "null") and by_name["clip"].values == (0.0, 0.0, 1.0)
    assert by_name["noise"].values == (None, 0.2, 0.1)


def test_groups_are_by_dimension_and_where_there_are_several_by_method(make_trial):
    trials = [make_trial(0, dim=128), make_trial(1, dim=32), make_trial(2, dim=128)]
    assert (searched_trials(trials).groups, searched_trials(trials).group) == (
        ("128 bytes", "512 bytes"),
        (1, 0, 1),
    )
    assert searched_trials([*trials, make_trial(3, dim=32, method="a")]).groups[0] == "a, 128 bytes"


def test_trials_for_a_code_are_grouped_by_bytes_and_their_dimension_is_a_parameter(make_trial):
    settings = [(16, 8), (32, 4), (16, 1), (32, 32), (16, 8)]
    trials = [
        make_trial(n, dim=dim, params={"output_dim": dim, "bits": bits, "lr": 10.0**-n})
        for n, (dim, bits) in enumerate(settings)
    ]
    study = searched_trials(trials)
    assert study.groups == ("2 bytes", "16 bytes", "128 bytes") and study.group == (1, 1, 0, 2, 1)
    assert study.within == "number of bytes" and [p.name for p in study.parameters] == ["output_dim", "bits", "lr"]
    assert "Objectives of different numbers of bytes do not compare" in sensitivity_caption(compute_sensitivity(trials))
    assert "best of each number of bytes" in curves_caption(compute_curves(trials))
    coordinates = compute_coordinates(trials)
    assert [axis.title for axis in coordinates.axes] == ["bytes", "output_dim", "bits", "lr", "objective"]
    assert "fifths of the trials of their number of bytes by" in coordinates_caption(coordinates)
    importance = compute_importance(trials)._replace(reason="", groups=2)
    assert "relative to those of the same number of bytes" in importance_caption(importance)


def test_numbers_that_no_axis_can_place_are_missing(make_trial):
    values = [math.nan, math.inf, 10**400, 1e200, 1e-200, 1.0, -2.0]
    (p,) = searched_trials([make_trial(n, params={"x": value}) for n, value in enumerate(values)]).parameters
    assert p.values == (None, None, None, None, 0.0, 1.0, -2.0)
    assert (
        searched_trials([make_trial(n, params={"x": value}) for n, value in enumerate((math.nan, 1.0))]).parameters
        == ()
    )
    assert searched_trials([make_trial(0, objective=1e300)]).trials == ()


def test_of_one_run_only(make_trial):
    with pytest.raises(ValueError, match="2 runs"):
        searched_trials([make_trial(0), make_trial(0, run="b")])
    assert searched_trials([]).trials == () == searched_trials([]).parameters


def test_an_axis_starts_above_the_trials_that_diverged():
    # median 1, best 2: four times the way further down
    assert axis_start([[0.0, 1.0, 2.0, -100.0, 1.5]]) == pytest.approx(-3.0)
    assert axis_start([[0.0, 1.0, 2.0, -10.0, 1.5]]) is None  # the axis would be little shorter
    assert axis_start([[1.0, 2.0, 3.0]]) is None and axis_start([[5.0] * 4]) is None and axis_start([]) is None
    assert axis_start([[0.0, 1.0, 2.0, -100.0, 1.5], [-300.0]]) is None  # a group of its own, not one that diverged


def test_every_kth():
    assert every_kth(range(10), 10) == range(10) and list(every_kth(range(10), 3)) == [0, 4, 8]
    assert every_kth([], 3) == []
