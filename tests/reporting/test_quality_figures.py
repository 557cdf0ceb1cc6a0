"""Quality against bytes and speed: every row a mark that leads to its row, six colours at once, safe for all eyes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from distilbench.reporting import colours
from distilbench.reporting.board import leaderboard
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.quality_figures import (
    compute_quality,
    compute_speed,
    draw_quality,
    draw_speed,
    quality_caption,
    speed_caption,
)

# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
EYES = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
HOSTILE = "</script><b>&%{x}"


def quality(records, taken=()):
    board = leaderboard(records)
    return compute_quality(board, encoder_lines(board), taken)


def speed(*records):
    return compute_speed(leaderboard(records))


def drawn(data, palette=colours.LIGHT):
    return json.loads((draw_quality if hasattr(data, "methods") else draw_speed)(data, palette).to_json())


def marks(figure):
    return [trace for trace in figure["data"] if trace["mode"] == "markers"]


def notes(figure):
    return figure["layout"].get("annotations", [])


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / np.array([0.9505, 1, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
@pytest.mark.parametrize("eyes", EYES)
def test_colour_blind_readers_can_tell_the_colours_apart(palette, eyes):
    seen = [lab(np.array(EYES[eyes]) @ linear(colour)) for colour in palette.hues]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15


def test_no_two_methods_look_alike_and_each_looks_the_same_everywhere():
    looks = [colours.method_look(method, "student", colours.LIGHT) for method in colours._LOOKS]
    assert len({(look.colour, look.symbol) for look in looks}) == len(looks)
    assert colours.method_look("own", "student", colours.LIGHT) == colours.method_look("own", "student", colours.LIGHT)


def test_every_row_is_a_mark_that_leads_to_its_row(make_study):
    board = leaderboard(make_study())
    data = compute_quality(board, encoder_lines(board))
    anchors = {row.anchor for row in board.rows if row.record.role != "teacher"}
    assert {mark.shows for mark in data.marks} == anchors
    assert data.share and [(mark.bytes, mark.y) for mark in data.teachers] == [(1536, 100.0)]
    figure = drawn(data)
    assert {anchor for trace in figure["data"] for anchor in trace.get("customdata", ())} == anchors
    names = [label["text"] for label in notes(figure)]
    assert names == ["<b>Teacher</b>", "<b>PCA</b>", "<b>our front</b>"]
    assert [trace["name"] for trace in figure["data"] if trace["showlegend"]] == ["hpd", "mcr2", "random-projection"]
    coloured = {trace["name"]: trace["marker"]["color"] != colours.LIGHT.faint for trace in marks(figure)}
    assert coloured == {"hpd": True, "mcr2": True, "PCA": True, "random-projection": False}


def test_fronts_and_lines_are_chosen_on_dev(make_score):
    def with_dev(record, value):
        scores = [s.model_copy(update={"value": value}) if s.split == "dev" else s for s in record.scores]
        return record.model_copy(update={"scores": scores})

    students = [
        with_dev(make_score("small", 70.0, dim=16), 70.0),
        with_dev(make_score("lucky on test", 90.0, dim=32), 60.0),
        with_dev(make_score("large", 75.0, dim=64), 80.0),
    ]
    assert quality(students).front == ((64, pytest.approx(68.5)), (256, pytest.approx(73.5)))
    of_one_size = [
        with_dev(make_score(f"PCA {n}", 70.0 + n, method="pca", role="baseline"), 70.0 - n) for n in range(2)
    ]
    [method] = quality(of_one_size).methods
    assert len(method.marks) == 2 and method.line == ((256, pytest.approx(68.5)),)


def test_without_a_teacher_it_is_the_score_itself(make_score):
    data = quality([make_score("s", 75.0)])
    assert not data.share and data.methods[0].marks[0].y == pytest.approx(73.5)
    assert "percent of the teacher" not in quality_caption(data)
    assert drawn(quality([]))["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_names(make_score, palette):
    record = make_score(HOSTILE, method=HOSTILE, latency_ms=1.0)
    for data in (quality([record]), speed(record)):
        text = json.dumps(drawn(data, palette))
        assert "</script" not in text and "&lt;/script&gt;" in text


def test_the_front_of_quality_and_speed_by_hand(make_score):
    data = speed(
        make_score("slow", 80.0, latency_ms=8.0),
        make_score("fast", 70.0, latency_ms=1.0),
        make_score("beaten", 69.0, latency_ms=2.0),
        make_score("not timed", 90.0),
        make_score("no average", 95.0, skip=("STS12",), latency_ms=0.1),
    )
    assert [(s, mark.row.name) for s, mark in data.marks] == [(125, "slow"), (1000, "fast"), (500, "beaten")]
    assert data.front == ((125, pytest.approx(78.5)), (1000, pytest.approx(68.5)))
    assert data.omitted == 1 and "not drawn: 1." in speed_caption(data)


def test_times_of_two_devices_do_not_mix_and_are_means_over_seeds(make_score):
    seeds = [make_score("a", 70.0, seed=s, record_id=f"a{s}", latency_ms=ms) for s, ms in enumerate((1.0, None, 2.0))]
    other = make_score().provenance.model_copy(update={"device": "Another CPU"})
    data = speed(*seeds, make_score("b", 71.0, latency_ms=2.0), make_score("c", 72.0, latency_ms=0.1, provenance=other))
    assert sorted((s, mark.row.name) for s, mark in data.marks) == [(500, "b"), (750, "a")] and data.omitted == 1
    assert drawn(speed())["data"][0]["x"] == [] and speed().marks == ()


def test_the_best_of_each_kind_has_its_name(make_score):
    def student(name, value, ms, **more):
        chosen = {"record_id": f"{name} {value}", "latency_ms": ms, "hyperparameters": {"student": name}}
        return make_score(f"HPD ({name})", value, **(chosen | more))

    records = [
        student("static", 70.0, 0.010),
        student("static", 72.0, 0.011),
        student("auto:2", 75.0, 2.0),
        make_score("head", 79.0, record_id="h", latency_ms=6.0, start="teacher (frozen)"),
    ]
    names = {note["text"]: round(10 ** note["x"]) for note in notes(drawn(speed(*records)))}
    assert names == {"<b>teacher</b>": 167, "<b>auto:2</b>": 500, "<b>static</b>": 90_909}
    for few_or_many in ([records[0]], [student(f"s{n}", 70.0, 2.0**n) for n in range(9)]):
        assert not notes(drawn(speed(*few_or_many)))
