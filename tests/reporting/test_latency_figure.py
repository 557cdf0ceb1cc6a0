"""Quality against latency: one measure on one axis."""

from __future__ import annotations

import json

import pytest

from distilbench.records import EncoderCost
from distilbench.reporting import colours, latency
from distilbench.reporting.table import leaderboard


def cost(p50_ms, threads=1, device="cpu"):
    return EncoderCost(
        parameters_without_embeddings=1,
        bytes_on_disk=1,
        sentences_per_second_1=1.0,
        sentences_per_second_32=1.0,
        p50_ms=p50_ms,
        p95_ms=2 * p50_ms,
        threads=threads,
        device=device,
        timed_1=20,
        timed_32=96,
    )


def compute(*records):
    return latency.compute_quality_latency(leaderboard(records))


def test_the_front_by_hand(make_score):
    data = compute(
        make_score("slow", 80.0, cost=cost(9.0)),
        make_score("fast", 70.0, cost=cost(1.0)),
        make_score("beaten", 69.0, cost=cost(1.5)),
        make_score("not timed", 90.0),
        make_score("no average", 95.0, skip=("STS12",), cost=cost(0.1)),
    )
    assert [(p.encoder.label, p.ms, p.encoder.pareto) for p in data.points] == [
        ("slow", 9.0, True),
        ("fast", 1.0, True),
        ("beaten", 1.5, False),
    ]
    assert data.fronts == (((1.0, pytest.approx(68.5)), (9.0, pytest.approx(78.5))),)
    assert data.omitted == 1 and "not drawn: 1." in latency.latency_caption(data)


def test_measures_threads_and_devices_do_not_mix(make_score, make_trial):
    gpu = make_score().provenance.model_copy(update={"device": "Some GPU, cuda"})
    records = [
        make_score("a", 70.0, cost=cost(1.0), latency_ms=0.1),
        make_score("b", 71.0, cost=cost(2.0)),
        make_score("c", 72.0, cost=cost(3.0, threads=4)),
        make_score("d", 73.0, cost=cost(4.0, device="cuda"), provenance=gpu),
        make_score("e", 74.0, latency_ms=0.5),
        make_score("f", 75.0, latency_ms=0.6),
        make_score("g", 76.0, latency_ms=0.01, provenance=gpu),
    ]
    data = compute(*records)
    assert data.measure.kind == "batches" and sorted(p.encoder.label for p in data.points) == ["a", "e", "f"]
    assert data.omitted == 4
    # as common as each other: batches; one more makes the other measure the common one
    assert compute(*records[:2], records[4]).measure.kind == "batches"
    data = compute(*records[:2], make_score("h", cost=cost(2.0)), records[4])
    assert data.measure.kind == "single" and data.measure.threads == 1
    assert "on its own, from its text on" in latency.latency_caption(data)


def test_fronts_are_by_corpus_and_times_means_over_seeds(make_score):
    seeds = [make_score("a", 70.0, seed=s, record_id=f"a{s}", latency_ms=ms) for s, ms in enumerate((1.0, None, 3.0))]
    other = make_score("b", 60.0, corpus_fingerprint="e" * 64, latency_ms=5.0)
    data = compute(*seeds, other)
    assert [(p.ms, p.encoder.pareto, p.encoder.seeds) for p in data.points] == [(2.0, True, 3), (5.0, True, 1)]
    assert sorted(data.fronts) == [((2.0, pytest.approx(68.5)),), ((5.0, pytest.approx(58.5)),)]


def test_times_that_are_none_are_left_out(make_score):
    data = compute(make_score("zero", cost=cost(0.0)), make_score("nan", cost=cost(float("nan"))))
    assert data.points == () and data.measure is None and data.omitted == 2
    assert "No encoder's latency" in latency.latency_caption(data)
    for empty in (data, compute()):
        assert json.loads(latency.draw_quality_latency(empty).to_json())["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_labels(make_score, palette):
    hostile = "</script><b>&%{x}"
    data = compute(make_score(hostile, method=hostile, cost=cost(1.0)))
    text = latency.draw_quality_latency(data, palette).to_json()
    assert "<" not in text
    (front, points) = json.loads(text)["data"]
    assert "&lt;/script&gt;" in points["hovertext"][0] and "</script" not in points["hovertext"][0]
    assert "1,000 sentences/s, 1 ms<br>on the front" in points["hovertext"][0] and front["x"] == [1000.0]


def test_more_bytes_are_larger_marks(make_score):
    def drawn(*sizes):
        records = [
            make_score(f"{size}", 70.0 + size / 1000, record_id=f"{size}", latency_ms=0.5, bytes_per_vector=size)
            for size in sizes
        ]
        data = compute(*records)
        marks = [t for t in json.loads(latency.draw_quality_latency(data).to_json())["data"] if t["mode"] == "markers"]
        by_size = {}
        for trace in marks:
            assert trace["x"] == [2000.0] * len(trace["y"]), "sentences per second"
            for text, pixels in zip(trace["hovertext"], trace["marker"]["size"], strict=True):
                by_size[int(text.split(" bytes")[0].rpartition(">")[2].replace(",", ""))] = pixels
        return by_size, latency.latency_caption(data)

    by_size, caption = drawn(1536, 4, 64, 128)
    assert by_size[4] == latency.SMALLEST and by_size[1536] == latency.LARGEST
    assert latency.SMALLEST < by_size[64] < by_size[128] < latency.LARGEST
    assert "The size of a mark is the bytes of a vector, from 4 to 1,536." in caption
    alone, caption = drawn(64)
    assert len(alone) == 1 and "size of a mark" not in caption


def test_the_best_of_each_kind_has_its_name(make_score):
    def student(name, quality, ms, **more):
        chosen = {"record_id": f"{name} {quality}", "latency_ms": ms, "hyperparameters": {"student": name}}
        return make_score(f"HPD ({name})", quality, **(chosen | more))

    records = [
        student("static", 70.0, 0.010),
        student("static", 72.0, 0.011),
        student("static:corpus", 71.0, 0.009),
        student("auto:2", 75.0, 2.0),
        make_score("head", 79.0, record_id="h", latency_ms=6.0, start="teacher (frozen)"),
        make_score("t", 80.0, record_id="t", role="teacher", latency_ms=6.1),
    ]
    data = compute(*records)
    names = json.loads(latency.draw_quality_latency(data).to_json())["layout"]["annotations"]
    assert [(note["text"], round(10 ** note["x"]), round(note["y"], 1)) for note in names] == [
        ("<b>teacher</b>", 164, 78.5),
        ("<b>auto:2</b>", 500, 73.5),
        ("<b>static, static:corpus</b>", 90_909, 70.5),
    ]
    near = compute(*records[:2], student("auto:1", 72.2, 0.02), student("auto:3", 72.1, 0.04), records[3])
    names = json.loads(latency.draw_quality_latency(near).to_json())["layout"]["annotations"]
    heights = {note["text"]: note["yshift"] for note in names}
    # Each is right above its mark, but for those that would touch one that is placed already.
    assert heights["<b>auto:2</b>"] == heights["<b>auto:1</b>"] < heights["<b>auto:3</b>"] == heights["<b>static</b>"]
    # One kind, or more than there is room for: no names.
    for few_or_many in ([records[0]], [student(f"s{n}", 70.0, 2.0**n) for n in range(9)]):
        layout = json.loads(latency.draw_quality_latency(compute(*few_or_many)).to_json())["layout"]
        assert "annotations" not in layout


def test_students_are_in_colour_before_baselines(make_score):
    methods = ["hpd", "mse", "mcr2", "mcr2_distil", "neighbours"]
    students = [make_score(m, 70.0, method=m, record_id=m, latency_ms=1.0) for m in methods]
    others = [
        make_score(m, 80.0, method=m, role="baseline", record_id=m, latency_ms=1.0)
        for m in ("pca", "random_projection")
    ]
    traces = json.loads(latency.draw_quality_latency(compute(*others, *students)).to_json())["data"]
    coloured = {t["name"]: t["marker"]["color"] for t in traces if t["mode"] == "markers" and t["showlegend"]}
    assert coloured.keys() == {*methods, "PCA"} and colours.LIGHT.faint not in coloured.values()
