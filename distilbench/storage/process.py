"""Which process is it: the same one as before, a later one of the same number, or none."""

from __future__ import annotations

import os
from pathlib import Path


def process_mark(pid: int) -> str | None:
    """The start time of a process, which tells it from a later one of the same number; "" if the system does not say.

    None: there is no such process, or it has ended and only its parent has not noticed.
    """
    try:
        # After the name, which may hold anything but is in brackets: the state, and as the 20th the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""
