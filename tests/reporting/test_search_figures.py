"""The figures of a search: studies rebuilt from records, drawn by Optuna in our frame; nothing in them can harm a page."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.reporting.search_figures import search_plots


def drawn(records):
    """Figures by name, as the page has them, and their captions."""
    plots, absent = search_plots(records)
    figures = {name: json.loads(plot.figure) for name, plot in plots.items()}
    return figures, {name: plot.caption for name, plot in plots.items()}, absent


@pytest.fixture
def search(make_trial):
    """`search(n, **changes)`: n completed trials whose learning rate decides the objective and whose seed does not."""

    def make(count=40, dims=(64,), **changes):
        trials = []
        for n in range(count):
            dim = dims[n % len(dims)]
            params = {"lr": 10 ** -(1 + n % 4), "tau": (n * 7 % 11) / 10, "pooling": "mean" if n % 3 else "last"}
            objective = 70.0 - 5 * (n % 4) + dim / 100
            fields = {"objective": objective, "dim": dim, "params": {**params, "output_dim": dim}} | changes
            trials.append(make_trial(n, **fields))
        return trials

    return make


def test_each_size_has_its_history_and_the_best_so_far(search, make_trial):
    stopped = [make_trial(90, state="PRUNED", objective=99.0), make_trial(91, state="FAIL", objective=None)]
    confirmed = make_trial(0, seed=1, confirms=True, objective=99.0)
    figures, captions, _ = drawn([*search(dims=(16, 64)), *stopped, confirmed])
    marks, best, *_ = figures["history"]["data"]
    assert [trace["name"] for trace in figures["history"]["data"] if trace["mode"] == "lines"] == [
        "64 bytes",
        "256 bytes",
    ]
    assert len(marks["x"]) == 20 and best["y"] == sorted(best["y"]) and max(best["y"]) == pytest.approx(70.16)
    assert "each size" in captions["history"]


def test_what_matters_most_is_first(search):
    for dims in ((64,), (16, 64)):
        figures, captions, absent = drawn(search(dims=dims))
        [bars] = figures["importance"]["data"]
        assert bars["y"][-1] == "lr" and not absent and "40 completed trials" in captions["importance"]


def test_few_trials_have_no_importance_and_the_page_says_why(search):
    plots, absent = search_plots(search(9))
    assert plots.keys() == {"history", "curves"} and "needs 10 completed trials; here: 9" in absent[0]
    plots, absent = search_plots(search(12, params={"lr": 0.1}))
    assert plots.keys() == {"history", "curves"} and "the same settings" in absent[0]
    assert search_plots([]) == ({}, [])


def test_values_that_no_axis_can_place(search):
    trials = search(
        20, params={"lr": 0.1, "huge": 10**400, "nested": {"a": [1, None]}, "nan": math.nan, "only": 1}
    ) + search(20, params={"lr": 0.2, "huge": 1, "nested": [1], "nan": 2.0, "switch": True})
    trials = [t.model_copy(update={"number": n, "objective": 70.0 + n % 7}) for n, t in enumerate(trials)]
    trials[3] = trials[3].model_copy(update={"objective": math.inf})
    figures, _, absent = drawn(trials)
    assert not absent and {"lr", "huge", "nested"} <= set(figures["importance"]["data"][0]["y"])


@pytest.fixture
def fronts(make_trial):
    """`fronts(points)`: completed trials with (quality, bytes) or (quality, bytes, latency)."""

    def make(points):
        names = ("quality", "bytes", "latency")
        return [
            make_trial(n, values=dict(zip(names, point, strict=False)), objective=point[0])
            for n, point in enumerate(points)
        ]

    return make


def test_the_front_is_of_completed_trials(fronts, make_trial):
    more = [
        make_trial(4, state="PRUNED", values={"quality": 9.0, "bytes": 8}),
        make_trial(0, confirms=True, seed=1, values={"quality": 9.0, "bytes": 8}),
    ]
    figures, _, _ = drawn([*fronts([(-1.0, 64), (0.5, 128), (0.4, 256), (-1.0, 64)]), *more])
    others, front = figures["front"]["data"]
    assert (others["x"], others["y"]) == ([256], [0.4])
    assert sorted(zip(front["x"], front["y"], strict=True)) == [(64, -1.0), (64, -1.0), (128, 0.5)]


def test_the_front_is_over_all_objectives_that_differ(fronts, make_trial):
    figures, captions, _ = drawn(fronts([(1.0, 64, 0.9), (0.5, 64, 0.2), (0.4, 64, 0.3)]))
    others, front = figures["front"]["data"]
    assert (front["x"], others["x"]) == ([0.9, 0.2], [0.3]) and "quality and latency" in captions["front"]
    assert figures["front"]["layout"]["xaxis"]["title"]["text"].startswith("Milliseconds to embed one sentence")
    assert "front" not in drawn(fronts([(1.0, 64), (1.0, 128)]))[0]
    assert "front" not in drawn([make_trial(n, values={"quality": 1.0 + n}) for n in range(3)])[0]


def test_hostile_names(search):
    hostile = "</script><b>&%{x}"
    changes = {"method": hostile, "run": hostile, "params": {hostile: hostile, "student": hostile}}
    trials = [t.model_copy(update=changes | {"number": n}) for n, t in enumerate(search(12))]
    trials += [t.model_copy(update={"params": {hostile: "other", "student": hostile}}) for t in search(12)]
    trials = [t.model_copy(update={"number": n, "method": "m" if n % 2 else hostile}) for n, t in enumerate(trials)]
    figures, _, _ = drawn(trials)
    assert "importance" in figures and "</script" not in json.dumps(figures)
    assert not any("<b>" in json.dumps(figure["data"]) for figure in figures.values())
    for plot in search_plots(trials)[0].values():
        assert "<" not in plot.figure
