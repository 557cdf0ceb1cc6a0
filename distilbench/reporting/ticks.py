"""Ticks for axes of measured values and hyper-parameters: round numbers, in few digits."""

from __future__ import annotations

import math
from collections.abc import Iterable

import plotly.graph_objects as go

Tick = tuple[float, str]


def logarithmic(values: Iterable[float]) -> bool:
    """Whether the values are for a logarithmic axis: above 0, over more than a decade, and more evenly spread on it.

    The last by the middle one of the distinct values: it is nearer to the middle of the axis. The smallest of thousands of
    values between 0 and 1 is decades below the others, and they are for a linear axis all the same.
    """
    rising = sorted(set(values))
    if not rising or rising[0] <= 0 or rising[-1] <= 10 * rising[0]:
        return False
    low, middle, high = rising[0], rising[len(rising) // 2], rising[-1]
    on_log = math.log(middle / low) / math.log(high / low)
    return abs(on_log - 0.5) < abs((middle - low) / (high - low) - 0.5)


def ticks(low: float, high: float, *, log: bool, most: int = 6) -> tuple[Tick, ...]:
    """Up to `most` round values from `low` to `high`, rising, with their texts; the two ends where fewer than two fit.

    On a logarithmic axis decades (every second, third, ... where there are too many), or 1, 2 and 5 times a decade.

    Raises:
        ValueError: `low` is above `high`, or not above 0 on a logarithmic axis.
    """
    if not low <= high or (log and low <= 0):
        raise ValueError(f"an axis from {low} to {high}, expected rising ends" + (" above 0" if log else ""))
    values = _log(low, high, most) if log else _linear(low, high, most)
    return tuple((value, tick_label(value)) for value in (values if len(values) > 1 else dict.fromkeys([low, high])))


def tick_label(value: float) -> str:
    """A number in few characters: "2,000", "0.05", "1e-5"."""
    if value == round(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")


def log_axis(figure: go.Figure, values: Iterable[float], *, most: int = 6, **place: int) -> None:
    """A logarithmic x axis of up to `most` ticks for values above 0; `place`: the row and column of a panel."""
    numbers = list(values)
    marks = ticks(min(numbers), max(numbers), log=True, most=most) if numbers else ()
    figure.update_xaxes(
        type="log", tickmode="array", tickvals=[v for v, _ in marks], ticktext=[text for _, text in marks], **place
    )


def _log(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        values = [float(f"{k}e{e}") for e in range(first, last + 1) for k in steps]
        values = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(values) <= most:
            return values
    return values[:: -(-len(values) // most)]


def _linear(low: float, high: float, most: int) -> list[float]:
    if low == high:
        return [low]
    rough = (high - low) / (most - 1)
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(k * decade for k in (1, 2, 5, 10) if k * decade >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return list(dict.fromkeys(float(f"{k * step:.12g}") for k in range(first, last + 1)))
