"""A folder that a command writes whole: beside its place, then renamed; it replaces only an earlier one of its kind."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilbench.errors import InputError
from distilbench.settings.place import check_writable
from distilbench.storage.files import FULL, disk_full, file_sha256, write_json

FORMAT = 1


@dataclass(frozen=True)
class OutputFolder:
    """Where the folder goes, as the user says it with `option`; `kept` is a model's folder that must stay as it is."""

    option: str
    folder: Path
    kind: str
    """Such as "export"."""
    manifest: str
    """The file that makes it one of ours: it has the SHA-256 of every other file."""
    kept: Path | None = None

    def check(self) -> None:
        """Refuse a place that holds, or lies in, something of somebody's, or that cannot be written."""
        target, why = self.folder.absolute(), ""
        kept = self.kept and self.kept.resolve()
        if kept and (target.resolve().is_relative_to(kept) or kept.is_relative_to(target.resolve())):
            why = "the student itself is kept there"
        elif target.is_symlink():
            why = "a link"
        elif target.exists() and not target.is_dir():
            why = "a file"
        elif target.is_dir() and any(target.iterdir()):
            why = self._others(target)
        if why:
            expected = f"expected a new or empty folder, or an earlier {self.kind}"
            raise InputError(f"{self.option} {self.folder}: {why}; {expected}")
        check_writable(self.option, target.parent)

    def _others(self, target: Path) -> str:
        """Name what is in a folder beside an earlier one of ours; "" if nothing is."""
        try:
            manifest = json.loads((target / self.manifest).read_text())
            files, ours = dict(manifest["files"]), manifest["format"] == FORMAT
        except (OSError, ValueError, LookupError, TypeError):
            files, ours = {}, False
        if not ours:
            return f"not empty, and no {self.kind} of ours"
        present = {p.relative_to(target).as_posix(): p for p in target.rglob("*") if not p.is_dir() or p.is_symlink()}
        del present[self.manifest]
        changed = sorted(n for n, p in present.items() if p.is_symlink() or files.get(n) != file_sha256(p))
        some = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        return f"in it {some} {'was' if len(changed) == 1 else 'were'} added or changed since" if changed else ""

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Give a folder to write into, which takes its place when the block ends well; an earlier one is deleted then."""
        target = self.folder.absolute()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # The old one is moved into the same folder: both are gone when it is left.
            with tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".partial", dir=target.parent) as name:
                new, old = Path(name) / "new", Path(name) / "old"
                new.mkdir()
                yield new
                self.check()
                if target.exists():
                    target.rename(old)
                try:
                    new.rename(target)
                except OSError:
                    if old.exists():
                        old.rename(target)
                    raise
        except OSError as error:
            if error.errno in FULL or "No space left" in str(error):  # of several files copytree has no number
                raise disk_full(self.folder, error) from None
            reason = error.strerror or str(error)[:300]
            raise InputError(f"{self.option} {self.folder}: cannot be written: {reason}") from None

    def write_manifest(self, folder: Path, **facts: Any) -> dict[str, Any]:
        """Write the manifest of what is in `folder`, with these facts of it."""
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        sums = {p.relative_to(folder).as_posix(): file_sha256(p) for p in files}
        manifest = {"format": FORMAT, **facts, "files": sums}
        write_json(folder / self.manifest, manifest)
        return manifest
