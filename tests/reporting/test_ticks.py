"""Round ticks, and which values are for a logarithmic axis."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import pytest

from distilbench.reporting.ticks import log_axis, logarithmic, tick_label, ticks


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0.0, 1.0, False, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-3.2, 2.6, False, ["-2", "0", "2"]),
        (1e-5, 1e-2, True, ["1e-5", "0.0001", "0.001", "0.01"]),
        (10, 5000, True, ["10", "30", "100", "300", "1,000", "3,000"]),
        (0.1, 2.0, True, ["0.1", "0.2", "0.5", "1", "2"]),
        (1e-30, 1.0, True, ["1e-30", "1e-24", "1e-18", "1e-12", "1e-6", "1"]),
        (7.0, 7.0, False, ["7"]),
        (7.0, 7.0, True, ["7"]),
        (2.1, 4.9, True, ["2.1", "4.9"]),  # only one round value between: the ends
    ],
)
def test_ticks_by_hand(low, high, log, expected):
    found = ticks(low, high, log=log)
    assert [text for _, text in found] == expected
    assert all(low * (1 - 1e-6) <= value <= high * (1 + 1e-6) for value, _ in found if low > 0)


@pytest.mark.parametrize(("low", "high"), [(1e-99, 1e99), (1e-99, 2e-99), (-1e99, 1e99), (1.0, 1.0 + 3e-16)])
def test_ticks_of_extreme_ends_are_few_and_finite(low, high):
    for log in (False, True) if low > 0 else (False,):
        found = ticks(low, high, log=log)
        assert 1 <= len(found) <= 6 and all(math.isfinite(value) for value, _ in found)


def test_no_axis_backwards_or_from_zero_on_a_logarithmic_scale():
    for low, high, log in ((2.0, 1.0, False), (0.0, 1.0, True), (math.nan, 1.0, False)):
        with pytest.raises(ValueError, match="expected rising ends"):
            ticks(low, high, log=log)


def test_short():
    assert [tick_label(v) for v in (2000, 0.05, 1e-5, 123456.0, 1.5e9, -0.743)] == [
        "2,000",
        "0.05",
        "1e-5",
        "123,456",
        "1.5e9",
        "-0.743",
    ]


def test_logarithmic_takes_more_than_a_wide_range():
    assert logarithmic([10.0**k for k in range(-5, -1)]) and logarithmic([0.01, 0.05, 0.1, 0.2, 0.5])
    assert not logarithmic([k / 1000 for k in range(1, 1001)])  # evenly spread, however small the smallest is
    assert not logarithmic([8, 16, 32]) and not logarithmic([0.0, 0.001, 1.0]) and not logarithmic([])


def test_log_axis_of_nothing():
    figure = go.Figure()
    log_axis(figure, [])
    assert figure.layout.xaxis.type == "log" and not figure.layout.xaxis.tickvals
