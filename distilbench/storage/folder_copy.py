"""A local folder and the same in the storage: what has changed is copied, in either direction, and what is gone is deleted.

What a command is given by its URI (data, runs) is fetched; a run, a training and a report are kept in the storage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from distilbench.errors import InputError
from distilbench.storage.files import file_sha256, remove_folder, write_json
from distilbench.storage.remote import Remote, check_uri, files_in, in_parallel, is_uri, local_name
from distilbench.storage.store import default_store

NO_TRAININGS = r"(^|/)(trials|confirm)/"
WITHOUT_STUDENTS = rf"{NO_TRAININGS}|(^|/)(students/|spaces/|prepared/(?!layer-ranking))"
ONLY_RECORDS = rf"{WITHOUT_STUDENTS}|(^|/)(predictions|logs)/|\.db$"


@dataclass
class FolderCopy:
    """Keeps in `remote` what is in `folder`.

    `copied` says by their names which files are. Files whose names end in one of `last` are written when the others are
    there, in this order. With `hold`, which copies such a file as it is at one moment, they are read before the others, in
    the opposite order: so the copy always has what is named in them.
    """

    folder: Path
    remote: Remote
    last: tuple[str, ...] = ()
    copied: Callable[[str], bool] = lambda name: True
    hold: Callable[[Path, Path], None] | None = None
    _known: dict[str, object] | None = None
    """The state of each file in the storage as it was here when it was copied; None: it has to be copied again."""

    def files(self) -> dict[str, Path]:
        """The files that are to be in the storage."""
        files = files_in(self.folder) if self.folder.is_dir() else {}
        return {name: path for name, path in files.items() if self.copied(name)}

    def fetch(self, names: Iterable[str]) -> None:
        """Make the folder what the storage has under these names."""
        names, fresh = list(names), self.folder.with_name(f".{self.folder.name}.fetching")
        remove_folder(fresh)
        self.remote.fetch_all(fresh, names)
        remove_folder(self.folder)
        fresh.rename(self.folder)
        self._known = {name: self._state(name, self.folder / name) for name in names}

    def push(self) -> None:
        """Copy what has changed, then delete what is gone; a folder that is lost does not empty its copy."""
        with tempfile.TemporaryDirectory(prefix="distilbench-") as temporary:
            held: dict[str, Path] = {}
            if self.hold:
                for end in reversed(self.last):
                    for name, path in self.files().items():
                        if name.endswith(end):
                            held[name] = Path(temporary) / f"{len(held)}{path.suffix}"
                            self.hold(path, held[name])
            self._push({**self.files(), **held})

    def _push(self, files: dict[str, Path]) -> None:
        known = self._known = self._in_storage(files) if self._known is None else self._known

        def put(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # replaced or deleted meanwhile: the next pass has it
                state = self._state(name, files[name])
                if state != known.get(name):
                    self.remote.put(files[name], name)
                    known[name] = state

        in_parallel(put, [name for name in files if not name.endswith(self.last)])
        for end in self.last:
            for name in files:
                if name.endswith(end):
                    put(name)
        gone = [name for name in known if name not in files] if files else []
        self.remote.delete(*gone)
        for name in gone:
            del known[name]

    def _in_storage(self, files: dict[str, Path]) -> dict[str, object]:
        """What an earlier process has copied: a file is the same if it has not been written since."""
        known: dict[str, object] = {}
        for name, entry in self.remote.list().items():
            if self.copied(name):
                known[name] = None
                with contextlib.suppress(KeyError, FileNotFoundError):
                    here = files[name].stat()
                    if here.st_size == entry.size and here.st_mtime_ns <= (entry.changed or 0):
                        known[name] = self._state(name, files[name])
        return known

    def _state(self, name: str, path: Path) -> object:
        if self.hold and name.endswith(self.last):
            return file_sha256(path)
        state = path.stat()
        return state.st_size, state.st_mtime_ns


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
