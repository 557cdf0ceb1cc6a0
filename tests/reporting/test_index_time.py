"""Index recall against time: only times that compare are on the axis."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.codes import FAMILIES
from distilbench.records import IndexCost
from distilbench.reporting import colours, index_time
from distilbench.reporting.table import index_rows, leaderboard


def index(kind="flat", ms=10.0, recall=100.0, **changes):
    fields = {"set": "quora", "split": "test", "nlist": None, "nprobe": None, "documents": 100, "queries": 50}
    fields |= {"build_s": 0.1, "bytes": 2_000_000, "threads": 1, "mrr10": 55.0, "recall100": 90.0}
    return IndexCost(kind=kind, ms_per_1000_queries=ms, overlap10_with_flat=recall, **(fields | changes))


def compute(*records, **options):
    return index_time.compute_index_time(index_rows(leaderboard(records)), **options)


def test_points_of_the_most_common_conditions(make_score):
    data = compute(
        make_score("a", indexes=[index(), index("ivf", 2.0, 80.0, nlist=1024, nprobe=5), index(threads=4)]),
        make_score("b", 70.0, indexes=[index("hnsw", 1.0, 90.0, setting="m=32"), index(batch=1), index(device="cuda")]),
        make_score("c", 60.0, indexes=[index(set="other"), index(documents=7), index(split="dev")]),
    )
    assert [(p.name, p.kind, p.ms, p.recall, p.setting) for p in data.points] == [
        ("a", "flat", 10.0, 100.0, ""),
        ("a", "ivf", 2.0, 80.0, "nlist 1,024, nprobe 5"),
        ("b", "hnsw", 1.0, 90.0, "m=32"),
    ]
    assert data.conditions == ("quora", "test", 100, 50, 1, None, "cpu") and (data.others, data.omitted) == (6, 0)
    caption = index_time.index_time_caption(data)
    assert "quora, test split, 100 documents, 50 queries, all queries at once, on one thread." in caption
    assert "not drawn: 6." in caption


def test_indexes_that_differ_in_batch_device_or_setting_are_no_seeds_of_each_other(make_score):
    changes = [{}, {"batch": 1}, {"device": "cuda"}, {"setting": "m=16"}]
    costs = [index("hnsw", 2.0**k, **change) for k, change in enumerate(changes)]
    rows = index_rows(leaderboard([make_score(indexes=costs)]))
    assert [row.measured["ms_per_1000_queries"].value for row in rows] == [1.0, 2.0, 4.0, 8.0]
    assert all(row.measured["mrr10"].seeds == 1 for row in rows)


def test_of_equally_common_conditions_the_test_split(make_score):
    costs = [index(split="dev"), index("ivf", split="dev"), index(), index("ivf")]
    assert compute(make_score(indexes=costs)).conditions.split == "test"


def test_means_over_seeds_and_values_that_are_missing(make_score):
    data = compute(
        make_score("a", seed=0, record_id="a0", indexes=[index(ms=1.0)]),
        make_score("a", seed=1, record_id="a1", indexes=[index(ms=3.0, mrr10=math.nan)]),
        make_score("b", 70.0, indexes=[index(ms=0.0), index("ivf", math.nan), index("sq8", recall=math.nan)]),
    )
    assert [(p.name, p.ms, p.mrr10) for p in data.points] == [("a", 2.0, 55.0)]


def test_encoders_further_down_are_left_out_whole(make_score):
    records = [make_score(f"s{n}", 80.0 - n, indexes=[index(), index("ivf")]) for n in range(5)]
    data = compute(*records, limit=5)
    assert [p.name for p in data.points] == ["s0", "s0", "s1", "s1"] and data.omitted == 6
    assert "further down the board, not drawn: 6." in index_time.index_time_caption(data)
    assert len(compute(*records, limit=1).points) == 2
    with pytest.raises(ValueError, match="limit is 0"):
        compute(limit=0)


def test_a_kind_has_one_colour_whatever_else_is_there(make_score):
    def colour(*kinds):
        figure = index_time.draw_index_time(compute(make_score(indexes=[index(kind) for kind in kinds])))
        return {trace.name: (trace.marker.color, trace.marker.symbol) for trace in figure.data}

    kinds = [f"{kind}16" if kind in FAMILIES else kind for kind in index_time.KINDS]
    assert colour("hnsw")["hnsw"] == colour(*kinds)["hnsw"]
    looks = colour(*kinds).values()
    assert len(set(looks)) == len(index_time.KINDS) == 13
    assert len({shade for shade, _ in looks}) == 7  # six, and the grey of all others
    assert list(colour("opq8", "opq16", "int4")) == ["int4", "opq"]  # a family is one, whatever its bytes


def test_nothing_to_draw(make_score):
    for records in ([], [make_score(indexes=[])]):
        data = compute(*records)
        assert data.points == () and index_time.index_time_caption(data) == "No index was measured."
        assert json.loads(index_time.draw_index_time(data).to_json())["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_labels(make_score, palette):
    hostile = "</script><b>&%{x}"
    data = compute(make_score(hostile, indexes=[index("hnsw", setting=hostile, set=hostile)]))
    text = index_time.draw_index_time(data, palette).to_json()
    assert "<" not in text
    (hover,) = json.loads(text)["data"][0]["hovertext"]
    assert hover.count("&lt;/script&gt;") == 2 and "</script" not in hover
