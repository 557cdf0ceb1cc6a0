"""The first figure: every row a mark that leads to its row, lines by name, six colours at once, safe for all eyes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from distilbench.reporting import colours
from distilbench.reporting.direct_labels import spread
from distilbench.reporting.kept import RECOMMENDED, compute_kept, draw_kept, kept_caption
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.table import leaderboard

# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
EYES = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def kept(records):
    board = leaderboard(records)
    return compute_kept(board, encoder_lines(board))


def drawn(data, palette=colours.LIGHT):
    return json.loads(draw_kept(data, palette).to_json())


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
    data = compute_kept(board, encoder_lines(board))
    marks = [mark for method in data.methods for mark in method.marks]
    assert {mark.shows for mark in marks} == {row.anchor for row in board.rows if row.record.role != "teacher"}
    assert data.share and data.teachers == (("synthetic-teacher", 1536, 100.0),)
    figure = drawn(data)
    shown = {anchor for trace in figure["data"] for anchor in trace.get("customdata", ())}
    assert shown == {mark.shows for mark in marks}
    names = [label["text"] for label in figure["layout"]["annotations"]]
    assert names == ["<b>Teacher</b>", "<b>PCA</b>", "<b>our front</b>"] and not figure["layout"]["showlegend"]
    chips = figure["layout"]["meta"]["chips"]
    assert [chip["name"] for chip in chips] == ["hpd", "mcr2", "random-projection (baseline)"]
    assert [figure["data"][chip["line"]]["visible"] for chip in chips] == [False] * 3
    assert [chip["rest"] == chip["colour"] for chip in chips] == [True, True, False]


def test_what_is_recommended_has_a_ring_and_the_first_choice_a_name(make_study):
    board = leaderboard(make_study())
    lines = encoder_lines(board)
    students = [row for row in board.rows if row.record.role == "student"]
    data = compute_kept(board, lines, students[:2])
    figure = drawn(data)
    ring = figure["data"][-1]
    assert ring["marker"]["symbol"] == "circle-open" and len(data.taken) == 2
    assert list(zip(ring["x"], ring["y"], strict=True)) == [tuple(place) for place in data.taken]
    [label] = [note for note in figure["layout"]["annotations"] if note.get("name") == RECOMMENDED]
    assert 10 ** label["x"] == pytest.approx(students[0].record.bytes_per_vector)
    assert "Rings are what is recommended." in kept_caption(data)
    assert "recommended" not in kept_caption(compute_kept(board, lines))


def test_the_front_is_chosen_on_dev(make_score):
    def with_dev(record, value):
        scores = [s.model_copy(update={"value": value}) if s.split == "dev" else s for s in record.scores]
        return record.model_copy(update={"scores": scores})

    records = [
        with_dev(make_score("small", 70.0, dim=16), 70.0),
        with_dev(make_score("lucky on test", 90.0, dim=32), 60.0),
        with_dev(make_score("large", 75.0, dim=64), 80.0),
    ]
    assert kept(records).front == ((64, pytest.approx(68.5)), (256, pytest.approx(73.5)))


def test_of_many_methods_four_are_in_colour(make_score):
    records = [make_score("t", 81.0, role="teacher", method="teacher", dim=384)]
    records += [make_score(f"{m}", 60.0 + n, method=m, record_id=m) for n, m in enumerate(sorted(colours._LOOKS)[:9])]
    data = kept(records)
    assert sum(method.coloured for method in data.methods) == 4
    coloured = {trace["marker"]["color"] for trace in drawn(data)["data"] if trace["mode"] == "markers"}
    assert len(coloured - {colours.LIGHT.faint}) <= 4


def test_without_a_teacher_it_is_the_score_itself(make_score):
    data = kept([make_score("s", 75.0)])
    assert not data.share and data.methods[0].marks[0].y == pytest.approx(73.5)
    assert "percent of the teacher" not in kept_caption(data)
    assert drawn(kept([]))["data"] == []


def test_intervals_are_in_percent_of_the_teacher_too(make_seeded):
    data = kept(make_seeded())
    marks = {mark.point.label: mark for method in data.methods for mark in method.marks}
    assert marks["MCR2-32-int8"].spread == pytest.approx(100 * 2.484 / 79.5, rel=1e-3)
    assert marks["PCA-32"].spread is None and "95 % intervals" in kept_caption(data)


def test_names_at_lines_do_not_touch():
    assert spread([1.0, 1.01, 5.0], 0.5) == [pytest.approx(0.755), pytest.approx(1.255), 5.0]
    assert spread([], 1.0) == [] and spread([2.0, 9.0], 1.0) == [2.0, 9.0]


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_names(make_score, palette):
    hostile = "</script><b>&%{x}"
    text = draw_kept(kept([make_score(hostile, method=hostile)]), palette).to_json()
    assert "</script" not in text


def test_few_encoders_as_they_came_have_their_names(make_score):
    def encoder(label, size):
        return make_score(
            label, 70.0, role="encoder", teacher="", model="", trial=None, bytes_per_vector=size, dim=size
        )

    few = [encoder(f"<i>{n}", 2**n) for n in range(4, 9)]
    for records, named in ((few, 5), ([encoder(f"e{n}", 2**n) for n in range(4, 14)], 0)):
        board = leaderboard(records)
        notes = json.loads(draw_kept(compute_kept(board, encoder_lines(board), ())).to_json())["layout"]["annotations"]
        names = [note["text"] for note in notes if note["text"].startswith("<b>") and note["text"] != "<b>front</b>"]
        assert len(names) == named and not any("<i>" in name for name in names)
