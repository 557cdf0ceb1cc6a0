"""The folder of one training in storage: what a worker has kept of it is there for any other worker to go on from."""

from __future__ import annotations

from pathlib import Path

from distilbench.storage.files import remove_folder
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Absent, Remote

MARK = "training-"
"""Begins the name of an empty file that tells which training a folder is of."""
LAST = ("rungs.json", "encoded.json")
"""Files that are written when those before them are there."""


class TrainingCopy:
    """Keeps a training's `folder` on this node, and `remote` the same; `training` tells it from any other training."""

    def __init__(self, folder: Path, remote: Remote, training: str) -> None:
        self.folder, self.remote, self.mark = folder, remote, f"{MARK}{training[:24]}"
        self._copy = FolderCopy(folder, remote, LAST)

    def begin(self) -> None:
        """Make the folder what the storage has; what is of another training is deleted in both.

        Where the storage has nothing, what is here stays, and is copied: the run began without a storage.
        """
        there = self._copy.there()
        if there and self.mark not in there:
            self.remote.delete_all()
            there = self._copy.there()
        marks = {path.name for path in self.folder.glob(f"{MARK}*")}
        if there or (marks and self.mark not in marks):
            remove_folder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if there:
            try:
                self.remote.fetch_all(self.folder, there)
            except Absent:  # a driver has just deleted it: the verdict was that it ends here
                return
            self._copy.fetched()
        else:
            (self.folder / self.mark).touch()
            if any(path.name != self.mark for path in self.folder.iterdir()):
                self.keep()

    def keep(self) -> None:
        """Copy what has changed to the storage, then delete there what is not here any more."""
        self._copy.push()

    def collect(self, model: Path, remote_model: Remote) -> None:
        """On the driver: fetch the vectors and the student of a training that a worker has finished, if one has."""
        there = self.remote.list()
        names = remote_model.list() if LAST[1] in there and self.mark in there else {}
        if not names:
            return
        partial = model.with_name(f"{model.name}.partial")
        remove_folder(partial)
        remote_model.fetch_all(partial, names)
        remove_folder(model)
        partial.rename(model)
        names_here = [name for name in there if not name.endswith(".safetensors") and name not in LAST]
        for some in (names_here, *([name] for name in LAST if name in there)):
            self.remote.fetch_all(self.folder, some)
