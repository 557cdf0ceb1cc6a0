"""Quality against bytes and speed: every row a mark that leads to its row, six colours, safe for all eyes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from distilbench.reporting import drawing
from distilbench.reporting.board import leaderboard
from distilbench.reporting.board_figures import (
    compute_quality,
    compute_speed,
    draw_trade_off,
    trade_off_caption,
)
from distilbench.reporting.serving import serving_costs

# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
EYES = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
HOSTILE = "</script><b>&%{x}"


def quality(records, taken=()):
    return compute_quality(leaderboard(records), taken)


def speed(*records):
    board = leaderboard(records)
    return compute_speed(board, serving_costs(board))


def drawn(data):
    return json.loads(draw_trade_off(data).to_json())


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / np.array([0.9505, 1, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("palette", [drawing.LIGHT, drawing.DARK])
@pytest.mark.parametrize("eyes", EYES)
def test_colour_blind_readers_can_tell_the_colours_apart(palette, eyes):
    seen = [lab(np.array(EYES[eyes]) @ linear(colour)) for colour in palette.hues]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15


def test_no_two_methods_look_alike_and_each_looks_the_same_everywhere():
    looks = [drawing.method_look(method, "student") for method in drawing._LOOKS]
    assert len({(look.colour, look.symbol) for look in looks}) == len(looks)
    assert drawing.method_look("own", "student") == drawing.method_look("own", "student")


def test_every_row_is_a_mark_that_leads_to_its_row(make_study):
    board = leaderboard(make_study())
    data = compute_quality(board, board.rows[1:3])
    anchors = {row.anchor for row in board.rows}
    assert {mark.row.anchor for mark in data.marks} == anchors and data.omitted == 0
    figure = drawn(data)
    assert {anchor for trace in figure["data"] for anchor in trace.get("customdata", ())} == anchors
    names = [trace["name"] for trace in figure["data"]]
    assert names[-3:] == ["best students", "best baselines", "recommended"]
    assert {"hpd", "mcr2", "PCA", "random-projection", "teacher and its codes"} <= {*names}
    assert figure["data"][-1]["y"] == [row.test.value for row in board.rows[1:3]]


def test_fronts_are_chosen_on_dev(make_score):
    pca = {"method": "pca", "role": "baseline"}
    data = quality(
        [
            make_score("small", 70.0, dim=16, dev=70.0),
            make_score("lucky on test", 90.0, dim=32, dev=60.0),
            make_score("large", 75.0, dim=64, dev=80.0),
            make_score("PCA 0", 70.0, **pca, dev=70.0),
            make_score("PCA 1", 71.0, **pca, dev=69.0),
        ]
    )
    assert data.fronts["best students"] == ((64, pytest.approx(68.5)), (256, pytest.approx(73.5)))
    assert data.fronts["best baselines"] == ((256, pytest.approx(68.5)),)


def test_nothing_to_draw():
    assert quality([]).marks == () == speed().marks and drawn(quality([]))["data"][0]["x"] == []


def test_hostile_names(make_score):
    record = make_score(HOSTILE, method=HOSTILE, latency_ms=1.0)
    for data in (quality([record]), speed(record)):
        text = json.dumps(drawn(data))
        assert "</script" not in text and "&lt;/script&gt;" in text


def test_the_front_of_quality_and_speed_by_hand(make_score):
    data = speed(
        make_score("slow", 80.0, latency_ms=8.0),
        make_score("fast", 70.0, latency_ms=1.0),
        make_score("beaten", 69.0, latency_ms=2.0),
        make_score("not timed", 90.0),
        make_score("no average", 95.0, skip=("STS12",), latency_ms=0.1),
    )
    assert sorted((mark.x, mark.row.name) for mark in data.marks) == [(125, "slow"), (500, "beaten"), (1000, "fast")]
    assert data.fronts["best students"] == ((1000, pytest.approx(68.5)), (125, pytest.approx(78.5)))
    assert data.omitted == 2 and "at all: 2." in trade_off_caption(data)


def test_times_of_two_devices_do_not_mix_and_are_means_over_seeds(make_score):
    seeds = [make_score("a", 70.0, seed=s, record_id=f"a{s}", latency_ms=ms) for s, ms in enumerate((1.0, None, 2.0))]
    other = make_score().provenance.model_copy(update={"device": "Another CPU"})
    data = speed(*seeds, make_score("b", 71.0, latency_ms=2.0), make_score("c", 72.0, latency_ms=0.1, provenance=other))
    assert sorted((mark.x, mark.row.name) for mark in data.marks) == [(500, "b"), (750, "a")] and data.omitted == 1
