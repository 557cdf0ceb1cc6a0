"""The figures of a search with several objectives, as data and as a part of the page."""

from __future__ import annotations

import json
import re

import pytest

from distilbench.reporting import colours, front
from distilbench.reporting.plots import search_plots
from distilbench.reporting.run_facts import run_facts
from distilbench.reporting.run_page import render_run
from distilbench.reporting.table import leaderboard


@pytest.fixture
def search(make_trial):
    """`search(points, run=...)`: completed trials of 300 steps with (quality, bytes) or (quality, bytes, latency)."""

    def make(points, **changes):
        names = ("quality", "bytes", "latency")
        return [
            make_trial(n, values=dict(zip(names, point, strict=False)), objective=point[0], **changes)
            for n, point in enumerate(points)
        ]

    return make


def test_the_front_is_of_completed_trials(search, make_trial):
    records = [
        *search([(-1.0, 64), (0.5, 128), (0.4, 256), (-1.0, 64)]),
        make_trial(4, state="PRUNED", values={"quality": 9.0, "bytes": 8}),
        make_trial(5, state="FAIL", values={}),
        make_trial(0, confirms=True, seed=1, values={"quality": 9.0, "bytes": 8}),
    ]
    data = front.compute_front(records)
    (run,) = data.runs
    assert data.cost == "bytes" and data.omitted == 0
    assert [(p.number, p.values["bytes"], p.front) for p in run.points] == [
        (0, 64, True),
        (1, 128, True),
        (2, 256, False),
        (3, 64, True),
    ]
    assert (run.objectives, run.drawn, run.total) == (("quality", "bytes"), 4, 4)


def test_the_front_is_over_all_objectives_of_the_run(search):
    (run,) = front.compute_front(search([(1.0, 64, 0.9), (0.5, 64, 0.2), (0.4, 64, 0.3)])).runs
    assert [p.front for p in run.points] == [True, True, False]
    caption = front.front_caption(front.compute_front(search([(1.0, 64, 0.9)])))
    assert "bytes of one stored vector" in caption and "quality and bytes and latency" in caption


def test_quality_and_latency_without_bytes(make_trial):
    trials = [make_trial(n, values={"quality": float(n), "latency": 0.1 * (n + 1)}) for n in range(3)]
    data = front.compute_front(trials)
    assert data.cost == "latency" and [p.front for p in data.runs[0].points] == [True] * 3
    drawn = json.loads(front.draw_front(data).to_json())
    assert drawn["layout"]["xaxis"]["title"]["text"] == "Latency, ms"
    assert drawn["data"][0]["x"] == [0.1, 0.2, pytest.approx(0.3)]


def test_runs_that_cannot_be_placed_are_counted(search, make_trial):
    slow = [make_trial(n, run="other", values={"quality": 1.0, "latency": 0.5}) for n in range(3)]
    data = front.compute_front([*search([(1.0, 64)]), *slow])
    assert [run.run for run in data.runs] == ["synthetic"] and data.omitted == 3
    assert "without bytes among its objectives, not drawn: 3." in front.front_caption(data)
    # and there is only one objective that both have
    assert front.compute_volume([*search([(1.0, 64), (2.0, 128)]), *slow]).runs == ()


def test_of_thousands_of_trials_the_front_is_always_drawn(search):
    points = [(float(n % 50), 1000 - n % 50) for n in range(1001)] + [(100.0, 2000)]
    (run,) = front.compute_front(search(points), limit=100).runs
    assert run.total == 1002 and sum(p.front for p in run.points) == 21
    assert run.drawn == len(run.points) <= 122
    assert "1,002 trials are drawn, all of the front" in front.front_caption(front.SearchFront((run,), "bytes", 0))
    with pytest.raises(ValueError, match="limit is 0"):
        front.compute_front([], limit=0)


def test_volume_by_hand_with_the_steps_of_every_trial(search, make_trial):
    # the box: quality -1 to 1, bytes 256 to 64
    records = [
        *search([(-1.0, 64), (0.0, 160), (1.0, 256), (0.0, 112)]),
        make_trial(4, state="PRUNED", values={"quality": 9.0, "bytes": 8}),
        make_trial(5, state="FAIL", objective=None, steps=200),
        make_trial(2, confirms=True, seed=1, values={"quality": 9.0, "bytes": 8}),
    ]
    data = front.compute_volume(reversed(records))
    assert data.reference == {"quality": -1.0, "bytes": 256} and data.best == {"quality": 1.0, "bytes": 64}
    # 1 of 2 in quality, 96 and then 144 of 192 bytes; 100 + 200 steps of the two others follow
    assert data.runs[0].points == ((0, 0.0), (600, pytest.approx(25.0)), (1200, pytest.approx(37.5)), (1500, 37.5))


def test_lines_of_several_runs_have_one_reference(search):
    data = front.compute_volume([*search([(0.0, 64), (1.0, 96)]), *search([(-3.0, 128), (0.5, 80)], run="b")])
    assert data.reference == {"quality": -3.0, "bytes": 128}
    box = 4 * 64
    first, second = data.runs
    assert first.points[1:] == ((300, pytest.approx(100 * 3 * 64 / box)), (600, pytest.approx(100 * 224 / box)))
    assert second.points == ((0, 0.0), (600, pytest.approx(100 * 3.5 * 48 / box)))
    caption = front.volume_caption(data)
    assert "Reference point: quality -3 points, 128 bytes," in caption
    assert "pruned and failed ones included" in caption


def test_an_objective_in_which_all_trials_are_equal_is_left_out(search):
    data = front.compute_volume(search([(1.0, 64, 0.9), (0.0, 64, 0.4), (0.5, 64, 0.4)]))
    assert data.constant == ("bytes",) and list(data.reference) == ["quality", "latency"]
    assert data.runs[0].points[-1] == (900, pytest.approx(50.0))
    assert "Equal in all trials, so left out: bytes." in front.volume_caption(data)
    assert front.compute_volume(search([(1.0, 64)] * 3)).runs == ()


def test_a_search_with_quality_alone_has_neither(make_trial, make_study):
    for records in (make_study(), [make_trial(0, values={"quality": 1.0})], []):
        assert front.compute_front(records).runs == () == front.compute_volume(records).runs
        plots, _ = search_plots(records)
        assert "front" not in plots and "volume" not in plots


def test_the_front_is_drawn_large_and_joined_where_there_are_two_objectives(search):
    records = [*search([(1.0, 64), (2.0, 128), (0.0, 256)]), *search([(1.0, 64, 0.5), (0.0, 64, 0.6)], run="b")]
    traces = {t["name"]: t for t in json.loads(front.draw_front(front.compute_front(records)).to_json())["data"]}
    assert list(traces) == ["Other trials, synthetic", "Front, synthetic", "Other trials, b", "Front, b"]
    assert traces["Front, synthetic"]["x"] == [64, 128] and traces["Front, synthetic"]["mode"] == "lines+markers"
    assert traces["Front, b"]["mode"] == "markers"
    assert "latency 0.5 ms" in traces["Front, b"]["hovertext"][0]


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_drawings_escape_twice(search, palette):
    hostile = "</script><b>&%{x}"
    records = [
        *search([(1.0, 64), (2.0, 128), (0.0, 256)], run=hostile, method=hostile),
        *search([(1.0, 64)], run="b"),
    ]
    for figure in (
        front.draw_front(front.compute_front(records), palette),
        front.draw_volume(front.compute_volume(records), palette),
    ):
        text = figure.to_json()
        assert "<" not in text
        names = json.dumps([[trace.get("name"), trace.get("hovertext")] for trace in json.loads(text)["data"]])
        assert "&lt;/script&gt;" in names and "</script" not in names and "&%{x}" not in names


def test_the_page_has_both(search):
    records = search([(1.0, 64), (2.0, 128), (0.0, 256)])
    board = leaderboard(records)
    text = render_run(run_facts(records, board)[0], records, board, "Synthetic")
    blocks = dict(re.findall(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', text, re.S))
    assert list(blocks)[:3] == ["learning", "front", "volume"]
    assert all(set(json.loads(block)) == {"light", "dark"} for block in blocks.values())
    assert "Reference point: quality 0 points, 256 bytes," in text
