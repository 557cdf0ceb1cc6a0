"""Parallel coordinates: heights by hand, and no more lines than can be read."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.reporting import colours, coordinates


def test_heights_and_ticks_by_hand(make_trial):
    settings = ((1e-4, "b", 32, 1.0), (1e-3, "a", 64, 5.0), (1e-2, "b", 64, 3.0))
    trials = [
        make_trial(n, dim=dim, objective=value, params={"lr": lr, "head": head, "output_dim": dim, "fixed": [1, 2]})
        for n, (lr, head, dim, value) in enumerate(settings)
    ]
    data = coordinates.compute_coordinates([*trials, make_trial(3, state="PRUNED", params={"lr": 10.0})])
    assert [axis.title for axis in data.axes] == ["output_dim", "lr", "head", "objective"]
    assert [axis.log for axis in data.axes] == [False, True, False, False]
    assert data.axes[0].ticks == ((0.0, "32"), (1.0, "64")) and data.axes[2].ticks == ((0.0, "a"), (1.0, "b"))
    assert data.axes[1].ticks == ((0.0, "0.0001"), (pytest.approx(0.5), "0.001"), (1.0, "0.01"))
    lines = {line.number: line for line in data.lines}
    assert lines[0].heights == (0.0, 0.0, 1.0, 0.0) and lines[1].heights == (1.0, pytest.approx(0.5), 0.0, 1.0)
    # of its dimension: alone in the middle, the better and the worse of two
    assert [lines[n].fifth for n in range(3)] == [2, 3, 1] and data.complete == 3
    caption = coordinates.coordinates_caption(data)
    assert "of their output dimension" in caption and "logarithmic scale: lr." in caption


def test_a_parameter_that_a_trial_lacks_is_a_gap(make_trial):
    trials = [make_trial(n, params={"x": n, **({"y": n} if n else {})}) for n in range(3)]
    data = coordinates.compute_coordinates(trials)
    assert next(line for line in data.lines if line.number == 0).heights[1] is None


def test_of_thousands_the_best_are_lines(make_trial):
    trials = [make_trial(n, objective=float(n), params={"x": n}) for n in range(3000)]
    data = coordinates.compute_coordinates(trials, limit=60)
    numbers = [line.number for line in data.lines]
    assert numbers[-20:] == list(range(2980, 3000)) and len(numbers) <= 60
    # the others are spread over all of the rest: every 75th
    assert numbers[:3] == [54, 129, 204] and {line.fifth for line in data.lines} == {0, 1, 2, 3, 4}
    assert "60 of 3,000 trials are drawn" in coordinates.coordinates_caption(data)
    assert len(coordinates.draw_coordinates(coordinates.compute_coordinates(trials)).to_json()) < 100_000
    with pytest.raises(ValueError, match="limit is 1"):
        coordinates.compute_coordinates(trials, limit=1)


def test_trials_that_diverged_lie_at_the_lower_end(make_trial):
    values = (0.0, 1.0, 2.0, -100.0, -300.0, 1.5, 1.2)
    data = coordinates.compute_coordinates([make_trial(n, objective=v, params={"x": n}) for n, v in enumerate(values)])
    heights = {line.number: line.heights[-1] for line in data.lines}
    assert heights[3] == heights[4] == 0.0 and 0 < heights[0] < heights[2] == 1.0
    assert data.axes[-1].ticks[0] == (0.0, "≤ -3")


def test_axes_beyond_the_most_are_named(make_trial):
    trials = [make_trial(n, params={f"p{k:02}": n for k in range(12)}) for n in range(3)]
    data = coordinates.compute_coordinates(trials)
    assert len(data.axes) == coordinates.MOST_AXES + 1 and data.omitted == ("p10", "p11")
    assert "Without an axis: p10, p11." in coordinates.coordinates_caption(data)


def test_nothing_to_draw(make_trial):
    same = [make_trial(n, params={"x": 1}) for n in range(3)]
    for trials in ([], [make_trial(0)], same, [make_trial(n, objective=math.nan) for n in range(3)]):
        data = coordinates.compute_coordinates(trials)
        assert data.axes == () and data.lines == ()
        assert json.loads(coordinates.draw_coordinates(data).to_json())["data"] == []


def test_only_traces_that_the_page_may_draw(make_trial):
    # parcoords needs script-src 'unsafe-eval'
    figure = coordinates.draw_coordinates(coordinates.compute_coordinates([make_trial(n) for n in range(3)]))
    assert {trace.type for trace in figure.data} == {"scatter"}


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_names_and_values(make_trial, palette):
    hostile = "</script><b>&%{x}"
    trials = [make_trial(n, params={hostile: n, "text": hostile if n else "b"}) for n in range(3)]
    text = coordinates.draw_coordinates(coordinates.compute_coordinates(trials), palette).to_json()
    assert "<" not in text
    layout = json.loads(text)["layout"]
    assert "&lt;/script&gt;" in layout["xaxis"]["ticktext"][0]
    assert any(note["text"].startswith("&lt;/script") for note in layout["annotations"])
