"""Alignment against uniformity."""

from __future__ import annotations

import json
import math

import pytest

from distilbench.records import Space
from distilbench.reporting import colours, space_map
from distilbench.reporting.table import leaderboard


def space(alignment, uniformity, **changes):
    fields = {"covariance": [[1.0]], "effective_rank": 2.0, "isotropy": 0.5, "mean_cosine": 0.1}
    return Space(alignment=alignment, uniformity=uniformity, **(fields | {"positives": 300, "rows": 2000} | changes))


def test_means_over_seeds_of_rows_measured_on_the_same_text(make_score):
    records = [
        make_score("a", 70.0, seed=0, record_id="a0", space=space(0.2, -3.0)),
        make_score("a", 70.0, seed=1, record_id="a1", space=space(0.4, -2.0)),
        make_score("b", 60.0, role="baseline", method="pca", space=space(0.5, -1.0)),
        make_score("no geometry", 65.0),
        make_score("other sentences", 64.0, space=space(0.1, -4.0, rows=10)),
        make_score("other corpus", 63.0, space=space(0.1, -4.0), corpus_fingerprint="e" * 64),
        make_score("not finite", 62.0, space=space(math.nan, -4.0)),
    ]
    data = space_map.compute_space_map(leaderboard(records))
    assert data.points == (
        ("a", "student", "hpd", 64, pytest.approx(0.3), pytest.approx(-2.5), 2),
        ("b", "baseline", "pca", 64, 0.5, -1.0, 1),
    )
    assert (data.positives, data.rows, data.omitted) == (300, 2000, 3)
    assert "300 similar pairs" in space_map.space_caption(data) and "not drawn: 3." in space_map.space_caption(data)
    traces = json.loads(space_map.draw_space_map(data).to_json())["data"]
    assert [(t["name"], t["x"], t["y"]) for t in traces] == [
        ("hpd", [-2.5], [pytest.approx(0.3)]),
        ("PCA", [-1.0], [0.5]),
    ]


def test_nothing_to_draw(make_score):
    for records in ([], [make_score()]):
        data = space_map.compute_space_map(leaderboard(records))
        assert data.points == () and json.loads(space_map.draw_space_map(data).to_json())["data"] == []


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_hostile_labels(make_score, palette):
    board = leaderboard([make_score("</script><b>&%{x}", space=space(0.2, -3.0))])
    text = space_map.draw_space_map(space_map.compute_space_map(board), palette).to_json()
    assert "<" not in text and json.loads(text)["data"][0]["hovertext"][0].startswith("<b>&lt;/script&gt;")
