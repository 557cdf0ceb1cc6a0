"""The Plotly that pages load: the file that PLOTLY.md names, of the version that figures are written for."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

from distilbench.reporting import page
from distilbench.reporting.drawing import DARK_OF, LIGHT, plot_of
from distilbench.reporting.page import BUNDLE, plotly_script

NOTE = BUNDLE.with_name("PLOTLY.md")


def test_the_bundle_is_the_one_that_is_noted() -> None:
    script, note = plotly_script(), NOTE.read_text()
    assert hashlib.sha256(script.encode()).hexdigest() in note
    assert f"{len(script.encode()):,} bytes" in note and f"{BUNDLE.stat().st_size:,} " in note
    assert "Permission is hereby granted, free of charge" in note and "Licensed under the MIT license" in script[:300]


def test_every_kind_of_chart_that_is_drawn_is_in_it() -> None:
    """`Figure.add_...` calls of the reporting package; a kind that the bundle lacks would draw nothing."""
    sources = "".join(path.read_text() for path in Path(page.__file__).parent.glob("*.py"))
    classes = {name: getattr(go, name) for name in dir(go)}
    kinds = {n.lower() for n, kind in classes.items() if isinstance(kind, type) and issubclass(kind, BaseTraceType)}
    drawn = set(re.findall(r"figure\.add_([a-z0-9]+)\(", sources)) & kinds
    assert {"scatter"} <= drawn
    drawn |= {"bar"}  # of Optuna's figures
    script = plotly_script()
    assert {kind for kind in drawn if f'moduleType:"trace",name:"{kind}"' in script} == drawn
    assert 'moduleType:"trace",name:"scatter3d"' not in script


def test_a_figure_is_short_json_that_closes_no_script_and_every_light_colour_has_a_dark_one() -> None:
    figure = go.Figure()
    figure.add_scatter(x=[1, 2], y=[1 / 3, None], text=["</script>", "b"], line={"color": LIGHT.ink})
    plot = plot_of("x", "X", "", figure)
    assert "<" not in plot.figure and ">" not in plot.figure
    assert json.loads(plot.figure)["data"][0]["y"] == [0.33333333, None]
    assert {LIGHT.ink, LIGHT.surface, *LIGHT.hues} <= DARK_OF.keys() and not DARK_OF.keys() & {*DARK_OF.values()}
