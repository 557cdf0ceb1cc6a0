"""The runs of an earlier commit, unpacked for as long as the tests run (tests/fixtures/make_old_run.py made them)."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="old-run-")  # deleted when the process ends
with tarfile.open(Path(__file__).parent / "fixtures" / "run-be7c367.tar.xz") as _archive:
    _archive.extractall(_folder.name, filter="data")
FIXTURE = Path(_folder.name) / "run-be7c367"
