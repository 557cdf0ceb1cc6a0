"""Memory: the most that this process has had resident, as the operating system counts it."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
"""Where Linux says it. What `getrusage` says there is also of the process that started this one, until it began its own."""
UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of the unit in which `getrusage` counts elsewhere."""


def peak_mb() -> float:
    """The most memory of this process so far in MB (10^6 bytes): pages of files that it has mapped count too, a GPU's not."""
    status = STATUS.read_text() if STATUS.exists() else ""
    if peak := re.search(r"VmHWM:\s*(\d+) kB", status):
        return int(peak[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 1e6
