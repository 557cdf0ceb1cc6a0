"""Quality against bytes and speed: every row a mark that leads to its row, six colours, safe for all eyes; indexes."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from distilbench.records import IndexCost
from distilbench.reporting import drawing
from distilbench.reporting.board import index_rows, leaderboard
from distilbench.reporting.board_figures import (
    compute_index_times,
    compute_quality,
    compute_speed,
    draw_index_times,
    draw_trade_off,
    index_times_caption,
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


def index(kind="flat", ms=10.0, recall=100.0, **changes):
    fields = {"set": "quora", "split": "test", "nlist": None, "nprobe": None, "documents": 100, "queries": 50}
    fields |= {"build_s": 0.1, "bytes": 2_000_000, "threads": 1, "mrr10": 55.0, "recall100": 90.0}
    return IndexCost(kind=kind, ms_per_1000_queries=ms, overlap10_with_flat=recall, **(fields | changes))


def times(*records, **options):
    return compute_index_times(index_rows(leaderboard(records)), **options)


def test_points_of_the_most_common_conditions(make_score):
    data = times(
        make_score("a", indexes=[index(), index("ivf", 2.0, 80.0, nlist=1024, nprobe=5), index(threads=4)]),
        make_score("b", 70.0, indexes=[index("hnsw", 1.0, 90.0, setting="m=32"), index(batch=1), index(device="cuda")]),
        make_score("c", 60.0, indexes=[index(set="other"), index(documents=7), index(split="dev")]),
    )
    assert [(row.row.name, row.cost.kind, ms, recall) for ms, recall, row in data.points] == [
        ("a", "flat", 10.0, 100.0),
        ("a", "ivf", 2.0, 80.0),
        ("b", "hnsw", 1.0, 90.0),
    ]
    assert data.setting == ("quora", "test", 100, 1, None, "cpu") and data.omitted == 6
    caption = index_times_caption(data)
    assert (
        "quora, 100 documents, all queries at once, on 1 thread." in caption and "further down the board: 6." in caption
    )


def test_the_set_that_has_lists_is_drawn(make_score):
    sets = [index(set=name, split=split) for name in ("a", "quora") for split in ("dev", "test")]
    lists = [index("ivf", 2.0, 80.0, nlist=1024, nprobe=5)]
    data = times(make_score("a", indexes=[*sets, *lists]), make_score("b", 70.0, indexes=[*sets, *lists]))
    assert [row.cost.kind for *_, row in data.points] == ["flat", "ivf"] * 2
    assert data.setting[:2] == ("quora", "test") and data.omitted == 6


def test_means_over_seeds_and_values_that_are_missing(make_score):
    data = times(
        make_score("a", seed=0, record_id="a0", indexes=[index(ms=1.0)]),
        make_score("a", seed=1, record_id="a1", indexes=[index(ms=3.0, mrr10=math.nan)]),
        make_score("b", 70.0, indexes=[index(ms=0.0), index("ivf", math.nan), index("hnsw", recall=math.nan)]),
    )
    assert [(row.row.name, ms) for ms, _, row in data.points] == [("a", 2.0)]
    assert "MRR@10 55.00" in draw_index_times(data).data[0].hovertext[0]


def test_encoders_further_down_are_left_out_whole(make_score):
    records = [make_score(f"s{n}", 80.0 - n, indexes=[index(), index("ivf")]) for n in range(5)]
    data = times(*records, limit=5)
    assert [row.row.name for *_, row in data.points] == ["s0", "s0", "s1", "s1", "s2"] and data.omitted == 5


def test_hostile_labels_of_indexes(make_score):
    hostile = "</script><b>&%{x}"
    data = times(make_score(hostile, indexes=[index("hnsw", setting=hostile, set=hostile)]))
    text = draw_index_times(data).to_json()
    assert "<" not in text
    (hover,) = json.loads(text)["data"][0]["hovertext"]
    assert hover.count("&lt;/script&gt;") == 2 and "</script" not in hover
