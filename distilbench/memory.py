"""Memory: the most that this process has had resident, as the operating system counts it."""

from __future__ import annotations

import resource
import sys

UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of the unit in which the system counts."""


def peak_mb() -> float:
    """The most memory of this process so far in MB (10^6 bytes): pages of files that it has mapped count too, a GPU's not."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e6
