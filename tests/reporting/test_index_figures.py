"""Index recall against time: only times that compare are on the axis."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.codes import FAMILIES
from distilbench.records import IndexCost
from distilbench.reporting import colours, index_figures
from distilbench.reporting.table import index_rows, leaderboard


def index(kind="flat", ms=10.0, recall=100.0, **changes):
    fields = {"set": "quora", "split": "test", "nlist": None, "nprobe": None, "documents": 100, "queries": 50}
    fields |= {"build_s": 0.1, "bytes": 2_000_000, "threads": 1, "mrr10": 55.0, "recall100": 90.0}
    return IndexCost(kind=kind, ms_per_1000_queries=ms, overlap10_with_flat=recall, **(fields | changes))


def compute(*records, **options):
    return index_figures.compute_index_times(index_rows(leaderboard(records)), **options)


def test_points_of_the_most_common_conditions(make_score):
    data = compute(
        make_score("a", indexes=[index(), index("ivf", 2.0, 80.0, nlist=1024, nprobe=5), index(threads=4)]),
        make_score("b", 70.0, indexes=[index("hnsw", 1.0, 90.0, setting="m=32"), index(batch=1), index(device="cuda")]),
        make_score("c", 60.0, indexes=[index(set="other"), index(documents=7), index(split="dev")]),
    )
    assert [(row.row.name, row.cost.kind, ms, recall) for ms, recall, row in data.points] == [
        ("a", "flat", 10.0, 100.0),
        ("a", "ivf", 2.0, 80.0),
        ("b", "hnsw", 1.0, 90.0),
    ]
    assert data.setting == ("quora", "test", 100, 1, None, "cpu") and (data.others, data.omitted) == (6, 0)
    caption = index_figures.index_times_caption(data)
    assert "quora, 100 documents, all queries at once, on 1 thread." in caption
    assert "not drawn: 6." in caption


def test_indexes_that_differ_in_batch_device_or_setting_are_no_seeds_of_each_other(make_score):
    changes = [{}, {"batch": 1}, {"device": "cuda"}, {"setting": "m=16"}]
    costs = [index("hnsw", 2.0**k, **change) for k, change in enumerate(changes)]
    rows = index_rows(leaderboard([make_score(indexes=costs)]))
    assert [row.measured["ms_per_1000_queries"].value for row in rows] == [1.0, 2.0, 4.0, 8.0]
    assert all(row.measured["mrr10"].seeds == 1 for row in rows)


def test_of_equally_common_conditions_the_test_split(make_score):
    costs = [index(split="dev"), index("ivf", split="dev"), index(), index("ivf")]
    assert compute(make_score(indexes=costs)).setting[1] == "test"


def test_means_over_seeds_and_values_that_are_missing(make_score):
    data = compute(
        make_score("a", seed=0, record_id="a0", indexes=[index(ms=1.0)]),
        make_score("a", seed=1, record_id="a1", indexes=[index(ms=3.0, mrr10=math.nan)]),
        make_score("b", 70.0, indexes=[index(ms=0.0), index("ivf", math.nan), index("sq8", recall=math.nan)]),
    )
    assert [(row.row.name, ms) for ms, _, row in data.points] == [("a", 2.0)]
    assert "MRR@10 55.00" in index_figures.draw_index_times(data).data[0].hovertext[0]


def test_encoders_further_down_are_left_out_whole(make_score):
    records = [make_score(f"s{n}", 80.0 - n, indexes=[index(), index("ivf")]) for n in range(5)]
    data = compute(*records, limit=5)
    assert [row.row.name for *_, row in data.points] == ["s0", "s0", "s1", "s1"] and data.omitted == 6
    assert "further down the board, not drawn: 6." in index_figures.index_times_caption(data)
    assert len(compute(*records, limit=1).points) == 2


def test_a_kind_has_one_colour_whatever_else_is_there(make_score):
    def colour(*kinds):
        figure = index_figures.draw_index_times(compute(make_score(indexes=[index(kind) for kind in kinds])))
        return {trace.name: (trace.marker.color, trace.marker.symbol) for trace in figure.data}

    kinds = [f"{kind}16" if kind in FAMILIES else kind for kind in index_figures.KINDS]
    assert colour("hnsw")["hnsw"] == colour(*kinds)["hnsw"]
    looks = colour(*kinds).values()
    assert len(set(looks)) == len(index_figures.KINDS) == 13
    assert len({shade for shade, _ in looks}) == 7  # six, and the grey of all others
    assert list(colour("opq8", "opq16", "int4")) == ["int4", "opq"]  # a family is one, whatever its bytes


def test_nothing_to_draw(make_score):
    for records in ([], [make_score(indexes=[])]):
        data = compute(*records)
        assert data.points == () and index_figures.index_times_caption(data) == "No index was measured."
        assert json.loads(index_figures.draw_index_times(data).to_json())["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_labels(make_score, palette):
    hostile = "</script><b>&%{x}"
    data = compute(make_score(hostile, indexes=[index("hnsw", setting=hostile, set=hostile)]))
    text = index_figures.draw_index_times(data, palette).to_json()
    assert "<" not in text
    (hover,) = json.loads(text)["data"][0]["hovertext"]
    assert hover.count("&lt;/script&gt;") == 2 and "</script" not in hover
