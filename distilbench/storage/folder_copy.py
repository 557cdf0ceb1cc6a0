"""A local folder and its copy in the storage: what has changed is copied, and what is gone is deleted there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from distilbench.storage.files import file_sha256
from distilbench.storage.remote import Remote, files_in, in_parallel

SMALL = 4 << 20
"""Bytes up to which the content of a file that was written again is compared."""


class _Copied(NamedTuple):
    """A file at the time when it was copied; `changed` is 0 if another process copied it."""

    size: int
    changed: int = 0
    digest: str = ""


class FolderCopy:
    """Keeps in `remote` what is in `folder`.

    `copied` says by their names which files are; `fixed` which ones never change, so that equal size means equal. Files whose
    names end in one of `last` are written when the others are there, in this order.
    """

    def __init__(
        self,
        folder: Path,
        remote: Remote,
        last: tuple[str, ...] = (),
        *,
        copied: Callable[[str], bool] = lambda name: True,
        fixed: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.folder, self.remote, self.last, self.copied, self.fixed = folder, remote, last, copied, fixed
        self._known: dict[str, _Copied] | None = None

    def files(self) -> dict[str, Path]:
        """The files that are to be in the storage."""
        files = files_in(self.folder) if self.folder.is_dir() else {}
        return {name: path for name, path in files.items() if self.copied(name)}

    def there(self) -> list[str]:
        """The names of the files that are in the storage; from now on they are known."""
        self._known = {n: _Copied(entry.size) for n, entry in self.remote.list().items() if self.copied(n)}
        return list(self._known)

    def fetched(self) -> None:
        """The folder has just been fetched: it is the same as its copy."""
        self._known = {name: _look(path) for name, path in self.files().items()}

    def push(self, held: Mapping[str, Path] | None = None) -> None:
        """Copy what has changed, then delete what is gone; a folder that is lost does not empty its copy.

        `held` are copies of files as they were at one moment, which are copied instead.
        """
        if self._known is None:
            self.there()
        assert self._known is not None
        known, files = self._known, {**self.files(), **(held or {})}
        changed = [name for name, path in files.items() if self._has_changed(name, path)]
        rank = {name: next((i for i, end in enumerate(self.last) if name.endswith(end)), -1) for name in changed}

        def put(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):  # replaced or deleted meanwhile: the next pass has it
                look = _look(files[name])
                self.remote.put(files[name], name)
                known[name] = look

        in_parallel(put, [name for name in changed if rank[name] < 0])
        for name in sorted((name for name in changed if rank[name] >= 0), key=rank.__getitem__):
            put(name)
        gone = [name for name in known if name not in files] if files else []
        self.remote.delete(*gone)
        for name in gone:
            del known[name]

    def _has_changed(self, name: str, path: Path) -> bool:
        assert self._known is not None
        before = self._known.get(name)
        try:
            state = path.stat()
            if before is None or (before.size == state.st_size and before.changed == state.st_mtime_ns):
                return before is None
            same = before.digest == _look(path).digest != "" or (
                self.fixed(name) and not before.changed and before.size == state.st_size
            )
        except FileNotFoundError:
            return False
        if same:
            self._known[name] = before._replace(size=state.st_size, changed=state.st_mtime_ns)
        return not same


def _look(path: Path) -> _Copied:
    state = path.stat()
    return _Copied(state.st_size, state.st_mtime_ns, file_sha256(path) if state.st_size <= SMALL else "")
