"""A local folder and its copy in the storage: what has changed is copied, and what is gone is deleted there."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from distilbench.storage.files import file_sha256, remove_folder
from distilbench.storage.remote import Remote, files_in, in_parallel


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
