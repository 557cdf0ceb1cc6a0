"""Index recall against time: only times that compare are on the axis."""

from __future__ import annotations

import json
import math

from distilbench.records import IndexCost
from distilbench.reporting import index_figures
from distilbench.reporting.board import index_rows, leaderboard


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
    assert [row.row.name for *_, row in data.points] == ["s0", "s0", "s1", "s1", "s2"] and data.omitted == 5
    assert "further down the board, not drawn: 5." in index_figures.index_times_caption(data)


def test_hostile_labels(make_score):
    hostile = "</script><b>&%{x}"
    data = compute(make_score(hostile, indexes=[index("hnsw", setting=hostile, set=hostile)]))
    text = index_figures.draw_index_times(data).to_json()
    assert "<" not in text
    (hover,) = json.loads(text)["data"][0]["hovertext"]
    assert hover.count("&lt;/script&gt;") == 2 and "</script" not in hover
