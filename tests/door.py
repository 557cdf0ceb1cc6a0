"""The environment in which a test starts `python -m platform...`."""

from __future__ import annotations

import os


def door_environment(**more: str) -> dict[str, str]:
    """The environment without what has coverage measure processes that are started.

    It has coverage imported before the working folder is on the path, and with it the standard library's `platform`:
    the folder of that name is not found any more.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS_")} | more
