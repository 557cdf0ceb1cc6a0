"""The folder of one training in storage: what a worker has kept of it is there for any other worker to go on from."""

from __future__ import annotations

from pathlib import Path

from distilbench.cluster.place import Place
from distilbench.storage.files import remove_folder
from distilbench.storage.remote import Absent, Remote, files_in

OF = "training-"
"""Begins the name of an empty file that tells which training a folder is of."""
ENCODED_FILES = ("encoded.json", "vectors.npy", "calibration.npy")
LAST = ("rungs.json", "encoded.json")
"""What says that the files before it are there."""


class TrainingCopy:
    """Keeps a training's `folder` on this node, and `remote` the same."""

    def __init__(self, folder: Path, remote: Remote, of: str) -> None:
        self.folder, self.remote, self.mark = folder, remote, f"{OF}{of[:24]}"
        self._known: dict[str, tuple[int, int]] = {}
        """What each file that the storage has was like here."""

    def begin(self) -> None:
        """Make the folder what the storage has; what is of another training is deleted in both.

        Where the storage has nothing, what is here stays, and is copied: the run began without a storage.
        """
        there = self.remote.list()
        if there and self.mark not in there:
            self.remote.delete_all()
            there = {}
        marks = {path.name for path in self.folder.glob(f"{OF}*")}
        if there or (marks and self.mark not in marks):
            remove_folder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._known.clear()
        if there:
            try:
                self.remote.fetch_all(self.folder, there)
            except Absent:  # a driver has just deleted it: the verdict was that it ends here
                return
            self._known = {name: _looks(path) for name, path in files_in(self.folder).items()}
        else:
            (self.folder / self.mark).touch()
            if any(name != self.mark for name in files_in(self.folder)):
                self.keep()

    def keep(self) -> None:
        """Copy what has changed to the storage, then delete there what is not here any more."""
        own = files_in(self.folder)
        looks = {name: _looks(path) for name, path in own.items()}
        new = [name for name, look in looks.items() if self._known.get(name) != look]
        self.remote.put_all(self.folder, new, [name for name in LAST if name in new])
        self.remote.delete(*(name for name in self._known if name not in own))
        self._known = looks


def collect(copy: TrainingCopy, place: Place, model: str) -> None:
    """On the driver: fetch the vectors and the student of a training that a worker has finished, if one has."""
    assert place.run is not None and place.remote_run is not None
    there = copy.remote.list()
    if LAST[1] not in there or copy.mark not in there:
        return
    folder, student = place.run / model, place.remote_run / model
    names = student.list()
    if not names:
        return
    partial = folder.with_name(f"{folder.name}.partial")
    remove_folder(partial)
    student.fetch_all(partial, names)
    remove_folder(folder)
    partial.rename(folder)
    names_here = [name for name in there if not name.endswith(".safetensors") and name not in LAST]
    copy.remote.fetch_all(copy.folder, names_here)
    for name in LAST:
        if name in there:
            copy.remote.fetch(name, copy.folder / name)


def remove_encoded_there(training: Remote) -> None:
    """Delete the vectors of a training from the storage, as `remove_encoded` does here."""
    training.delete(*(name for name in training.list() if name in ENCODED_FILES))


def _looks(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns
