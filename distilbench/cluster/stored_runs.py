"""Runs and reports that a command is given by their URIs."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from distilbench.cluster.path_map import PATHS, PathMap
from distilbench.errors import InputError
from distilbench.storage.files import write_json
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote, check_uri, is_uri
from distilbench.storage.scratch import local_folder

NO_TRAININGS = r"(^|/)(trials|confirm)/"
WITHOUT_STUDENTS = rf"{NO_TRAININGS}|(^|/)(students/|prepared/(?!layer-ranking))"
ONLY_RECORDS = rf"{WITHOUT_STUDENTS}|(^|/)(predictions|logs|before-\d+)/|\.db$"


def local_runs(runs: Sequence[str], leave_out: str = NO_TRAININGS) -> list[Path]:
    """Run folders as local paths; a run in storage is fetched, or what is new of it, without what `leave_out` matches."""
    return [local_folder(run, leave_out=leave_out) for run in runs]


def reproducible_run(run_or_uri: str) -> Path:
    """A run as a local folder, with the artifacts that its trials read."""
    run = local_folder(run_or_uri, leave_out=NO_TRAININGS)
    if is_uri(run_or_uri) and (file := run / "prepared" / "prepared.json").exists():
        remote = Remote(check_uri(run_or_uri))
        if paths := json.loads(remote.read(PATHS) or b"{}"):
            path_map = PathMap(Path(paths["store"]), storage_of(remote) / "store", "elsewhere", paths["folders"])
            write_json(file, path_map.localise(json.loads(file.read_text())))
    return run


def storage_of(run: Remote) -> Remote:
    """The storage that a run (`URI/runs/NAME`, or that of one of its methods) is in."""
    above, marker, _ = str(run).rpartition("/runs/")
    if not marker:
        raise InputError(f"{run}: expected a run of a storage, such as s3://bucket/project/runs/NAME")
    return run.at(above)


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
