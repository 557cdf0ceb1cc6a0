"""Durations as a user writes them."""

from __future__ import annotations

import math
import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = r"(\d+(?:\.\d+)?)([hms])"


def seconds(text: str) -> float:
    """Seconds of a duration such as "90s", "30m", "2h" or "1h30m"."""
    parts = re.findall(_PART, text.strip().lower()) if re.fullmatch(f"({_PART})+", text.strip().lower()) else []
    total = math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < total < math.inf:
        raise ValueError(text)
    return total
