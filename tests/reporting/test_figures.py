"""The figures as data; drawing is checked for what could harm a page, not for looks."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.reporting import colours, figures
from distilbench.reporting.table import leaderboard


def test_lines_are_chosen_on_dev_not_on_test(make_score):
    lucky, sound = make_score("lucky on test", 76.0), make_score("sound", 75.0)
    dev = [s.model_copy(update={"value": 99.0}) if s.split == "dev" else s for s in sound.scores]
    board = leaderboard([lucky, sound.model_copy(update={"scores": dev})])
    (method,) = figures.compute_quality_dim(board).methods
    assert len(method.points) == 2
    assert method.line == ((64, pytest.approx(73.5)),)


def test_quality_dim_has_one_line_per_method_and_the_teacher_as_level(make_study):
    data = figures.compute_quality_dim(leaderboard(make_study()))
    assert [(m.method, m.role) for m in data.methods] == [
        ("mcr2", "student"),  # by their best dev scores
        ("hpd", "student"),
        ("pca", "baseline"),
        ("random-projection", "baseline"),
    ]
    assert all([dim for dim, _ in m.line] == [32, 64, 128, 256] for m in data.methods)
    assert data.teachers == (("synthetic-teacher", pytest.approx(79.5)),)


def test_quality_dim_is_of_float32_vectors_alone(make_seeded):
    data = figures.compute_quality_dim(leaderboard(make_seeded()))
    assert [(m.method, [dim for dim, _ in m.line]) for m in data.methods] == [("mcr2", [32, 128]), ("pca", [32, 128])]
    assert {point.quantisation for method in data.methods for point in method.points} == {"float32"}


def test_learning_spends_the_steps_of_every_trial_but_only_complete_ones_set_the_best(make_trial):
    trials = [
        make_trial(2, objective=73.0),
        make_trial(0, objective=71.0),
        make_trial(1, state="PRUNED", objective=99.0),
        make_trial(3, state="FAIL", objective=None, steps=200),
        make_trial(4, objective=math.inf),
        make_trial(0, run="another", objective=1.0),
    ]
    first, second = figures.compute_learning(trials).runs
    assert [(p.number, p.total_steps) for p in first.points] == [(0, 300), (1, 400), (2, 700), (3, 900), (4, 1200)]
    assert first.best == ((300, 71.0), (700, 73.0), (1200, 73.0))
    assert first.points[4].objective is None
    assert second.best == ((300, 1.0),)


def test_learning_of_thousands_draws_some_but_keeps_the_best_exact(make_trial):
    trials = [make_trial(n, objective=float(n == 777)) for n in range(1001)]
    (run,) = figures.compute_learning(trials, limit=100).runs
    assert (run.drawn, run.total, len(run.points)) == (91, 1001, 91)
    assert run.best[1] == (778 * 300, 1.0)
    with pytest.raises(ValueError, match="limit is 0"):
        figures.compute_learning(trials, limit=0)


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_drawings_are_valid_and_escape_twice(make_score, make_trial, palette):
    # Once for JSON inside a script element, once for the small HTML that Plotly's own labels are.
    hostile = "</script><b>&%{x}"
    board = leaderboard(
        [make_score(hostile, role="teacher", method=hostile), make_score(hostile, 70.0, record_id="s", method=hostile)]
    )
    drawn = [
        figures.draw_quality_dim(figures.compute_quality_dim(board), palette),
        figures.draw_learning(
            figures.compute_learning([make_trial(0, run=hostile), make_trial(0, run="b", method=hostile)]), palette
        ),
    ]
    for figure in drawn:
        text = figure.to_json()
        assert "<" not in text
        names = json.dumps([[trace.get("name"), trace.get("hovertext")] for trace in json.loads(text)["data"]])
        assert "&lt;/script&gt;" in names and "</script" not in names and "&%{x}" not in names


def test_empty_data_can_be_drawn():
    board = leaderboard([])
    for figure in (
        figures.draw_quality_dim(figures.compute_quality_dim(board)),
        figures.draw_learning(figures.compute_learning([])),
    ):
        assert json.loads(figure.to_json())["data"] == []


def test_a_long_label_is_cut(make_score):
    data = figures.compute_quality_dim(leaderboard([make_score("x" * 500)]))
    assert "x" * 61 not in figures.draw_quality_dim(data).to_json()


def test_trainings_that_confirm_are_no_steps_of_the_search(make_trial):
    trials = [make_trial(0, objective=1.0), make_trial(1, objective=2.0)]
    confirming = [make_trial(n, seed=seed, objective=9.0, confirms=True) for n in (0, 1) for seed in (1, 2)]
    assert figures.compute_learning([*trials, *confirming]) == figures.compute_learning(trials)
    assert figures.compute_learning(confirming).runs == ()


def test_quality_dim_has_bars_where_there_is_an_interval(make_seeded):
    data = figures.compute_quality_dim(leaderboard(make_seeded()))
    traces = {t["name"]: t for t in json.loads(figures.draw_quality_dim(data).to_json())["data"] if "name" in t}
    half = pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert traces["mcr2"]["error_y"]["array"] == [half, half] and traces["mcr2"]["error_y"]["visible"]
    assert not traces["PCA"]["error_y"]["visible"]
