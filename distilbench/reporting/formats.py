"""How numbers, names and settings are written on the pages."""

from __future__ import annotations

import json
import math
from typing import Any

from distilbench.codes import code_of
from distilbench.progress.tally import finite
from distilbench.records import IndexCost


def short(number: float) -> str:
    """A time or another measure with three significant digits, never in exponent form."""
    if not number or abs(number) >= 100:
        return f"{number:,.0f}"
    text = f"{number:.{min(9, 2 - math.floor(math.log10(abs(number))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def signed(difference: float) -> str:
    """A difference of scores, two decimals; one that rounds to 0 has no sign."""
    return f"{difference:+.2f}" if round(difference, 2) else "0.00"


def fixed(number: float | None, digits: int = 2) -> str:
    """A number with so many decimals; a dash for None.

    What lies beyond nine decimals is left out first: a sum in another order, as a page's script adds, ends in the same text.
    """
    return "—" if number is None else f"{round(number, 9):.{digits}f}"


def tenth(number: float) -> str:
    """A number with one decimal."""
    return fixed(number, 1)


def count(number: float) -> str:
    """A whole number with commas."""
    return f"{number:,.0f}"


def unbroken(text: str) -> str:
    """The text, in which no line ends before a percent sign or beside ±."""
    return text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")


def millions(count: int) -> str:
    """A count as 22.7 M, 9.1 k or 512."""
    if count >= 1_000_000:
        return f"{count / 1e6:.1f} M"
    return f"{count / 1e3:.1f} k" if count >= 1000 else str(count)


def binary(size: float) -> str:
    """Bytes as a person reads them, in powers of 1,000."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB"):
        size /= 1000
        if size < 1000:
            return f"{short(size)} {unit}"
    return f"{short(size / 1000)} GB"


def value(setting: Any) -> str:
    """A hyper-parameter or setting: numbers short but whole, anything nested as JSON."""
    if isinstance(setting, str):
        return setting
    if isinstance(setting, float):
        return f"{setting:.6g}"
    return json.dumps(setting, ensure_ascii=False, default=str)


def set_name(name: str, split: str) -> str:
    """The set, and its split where that is not test."""
    return name if split == "test" else f"{name}, {split}"


def index_setting(cost: IndexCost) -> str:
    """What an index depends on beside its kind."""
    lists = f"nlist {cost.nlist:,}, nprobe {cost.nprobe:,}" if None not in (cost.nlist, cost.nprobe) else ""
    return ", ".join(filter(None, (lists, cost.setting, "GPU" if cost.device == "cuda" else "")))


_filters = (signed, fixed, unbroken, millions, value, code_of)
FILTERS = {"shown": finite, **{function.__name__: function for function in _filters}}
