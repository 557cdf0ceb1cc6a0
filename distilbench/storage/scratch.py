"""The folder of this machine for what is fetched from storage, and what tells this machine from another."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import uuid
from pathlib import Path

from filelock import FileLock

from distilbench.errors import InputError
from distilbench.storage.files import atomic_path, write_json
from distilbench.storage.remote import Remote, check_uri, is_uri, local_name
from distilbench.storage.store import default_store

LISTING = ".listing.json"


def scratch() -> Path:
    """`$DISTILBENCH_SCRATCH`, else `scratch` in the default store; absolute."""
    return Path(os.environ.get("DISTILBENCH_SCRATCH") or default_store() / "scratch").absolute()


def identity() -> str:
    """This machine: its host name, and a number that is drawn once and kept in its scratch folder."""
    file = scratch() / "identity"
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        if not file.exists():
            with atomic_path(file) as temporary:
                temporary.write_text(uuid.uuid4().hex)
    return f"{socket.gethostname()}-{file.read_text().strip()}"


def fetched(remote: Remote, leave_out: str = "", *, option: str = "") -> Path:
    """The local copy of a prefix, or of the file of this name: what is new or changed is fetched, what is gone deleted.

    Names in which the expression `leave_out` is found are left out.
    """
    digest = hashlib.sha256(f"{remote.uri}\n{remote.endpoint}".encode()).hexdigest()[:16]
    folder = scratch() / "fetched" / digest / remote.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        source, entries, into = remote, remote.list(), folder
        if not entries:
            source, into = remote.at(str(remote).rpartition("/")[0]), folder.parent
            single = source.entry(remote.name)
            entries = {remote.name: single} if single else {}
        wanted = {n: list(e) for n, e in entries.items() if not (leave_out and re.search(leave_out, n))}
        if not wanted:
            raise InputError(
                f"{option} {remote}: nothing is there; expected files below it, or a file of this name".strip()
            )
        listing = folder.with_name(f"{folder.name}{LISTING}")
        known = json.loads(listing.read_text()) if listing.exists() else {}
        new = [n for n, e in wanted.items() if known.get(n) != e or not (into / local_name(n)).is_file()]
        source.fetch_all(into, new)
        for deleted in known.keys() - entries.keys():
            (into / local_name(deleted)).unlink(missing_ok=True)
        write_json(listing, {**{n: e for n, e in known.items() if n in entries}, **wanted})
    return folder


def local_folder(path_or_uri: str | Path, option: str = "", leave_out: str = "") -> Path:
    """A folder or file as a local path: itself, or the copy of what a URI names."""
    text = str(path_or_uri)
    return fetched(Remote(check_uri(text, option)), leave_out, option=option) if is_uri(text) else Path(path_or_uri)


def local_text(source: str) -> str:
    """A source of sentences as a local one: of a URI its file, its folder or what its glob finds, fetched."""
    if not is_uri(source):
        return source
    plain, mark, query = source.partition("?endpoint_override=")  # a ? alone may be a glob's
    parts = plain.split("/")
    first = next((i for i, part in enumerate(parts) if i > 2 and any(c in part for c in "*?[")), len(parts))
    folder = local_folder("/".join(parts[:first]) + mark + query, "--text")
    return "/".join([str(folder), *parts[first:]])
