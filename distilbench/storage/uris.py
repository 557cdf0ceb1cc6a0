"""Data, runs and reports that a command is given by their URIs: fetched to this machine, and copied back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from distilbench.errors import InputError
from distilbench.storage.files import write_json
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote, check_uri, is_uri, local_name
from distilbench.storage.store import default_store

NO_TRAININGS = r"(^|/)(trials|confirm)/"
WITHOUT_STUDENTS = rf"{NO_TRAININGS}|(^|/)(students/|spaces/|prepared/(?!layer-ranking))"
ONLY_RECORDS = rf"{WITHOUT_STUDENTS}|(^|/)(predictions|logs)/|\.db$"


def local_folder(path_or_uri: str | Path, option: str = "", leave_out: str = "") -> Path:
    """A folder or file as a local path: itself, or the copy of what a URI names, in the default store.

    What is new or changed there is fetched, what is gone is deleted. Names that match `leave_out` are left out.
    """
    text = str(path_or_uri)
    if not is_uri(text):
        return Path(path_or_uri)
    remote = Remote(check_uri(text, option))
    digest = hashlib.sha256(f"{remote.uri}\n{remote.endpoint}".encode()).hexdigest()[:16]
    folder = default_store().absolute() / "fetched" / digest / remote.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        entries = {name: list(entry) for name, entry in remote.list().items()}
        wanted = {n: entry for n, entry in entries.items() if not (leave_out and re.search(leave_out, n))}
        if not wanted:
            raise InputError(
                f"{option} {remote}: nothing is there; expected files below it, or a file of this name".strip()
            )
        listing = folder.with_name(f"{folder.name}.listing.json")
        known = json.loads(listing.read_text()) if listing.exists() else {}
        new = [n for n, entry in wanted.items() if known.get(n) != entry or not (folder / local_name(n)).is_file()]
        remote.fetch_all(folder, new)
        for deleted in known.keys() - entries.keys():
            (folder / local_name(deleted)).unlink(missing_ok=True)
        write_json(listing, {**{n: entry for n, entry in known.items() if n in entries}, **wanted})
    return folder


def local_text(source: str) -> str:
    """A source of sentences as a local one: of a URI its file, its folder or what its glob finds, fetched."""
    if not is_uri(source):
        return source
    parts = source.split("/")
    first = next((i for i, part in enumerate(parts) if i > 2 and any(c in part for c in "*?[")), len(parts))
    folder = local_folder("/".join(parts[:first]), "--text")
    return "/".join([str(folder), *parts[first:]])


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
