"""Runs and reports that a command is given by their URIs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote, check_uri, is_uri
from distilbench.storage.scratch import local_folder

NO_TRAININGS = r"(^|/)(trials|confirm)/"
WITHOUT_STUDENTS = rf"{NO_TRAININGS}|(^|/)(students/|prepared/(?!layer-ranking))"
ONLY_RECORDS = rf"{WITHOUT_STUDENTS}|(^|/)(predictions|logs)/|\.db$"


def local_runs(runs: Sequence[str], leave_out: str = NO_TRAININGS) -> list[Path]:
    """Run folders as local paths; a run in storage is fetched, or what is new of it, without what `leave_out` matches."""
    return [local_folder(run, leave_out=leave_out) for run in runs]


@contextlib.contextmanager
def written_to(out: str) -> Iterator[tuple[Path, str]]:
    """A folder to write a report into, and where its page is then: of a URI a temporary one, which is copied there."""
    if not is_uri(out):
        yield Path(out), str((Path(out) / "index.html").resolve())
        return
    remote = Remote(check_uri(out, "--out"))
    remote.check()
    with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
        yield Path(name), f"{remote}/index.html"
        FolderCopy(Path(name), remote, ("index.html",)).push()
