"""The specification of one training; where machines have no shared disk, its folder has a copy in the storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distilbench.cluster.driver_files import DriverFiles
from distilbench.storage.files import fingerprint, remove_folder
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Absent, Remote
from distilbench.trials.budget import Budget

MARK = "training-"
"""Begins the name of an empty file that tells which training a folder is of."""
LAST = ("rungs.json", "encoded.json")
"""Files that are written when those before them are there."""


@dataclass(frozen=True)
class TrainingSpec:
    """One training. `folder` and `prepared` are folders, `log` is the file for the stacks of a hanging process."""

    method: str
    params: dict[str, Any]
    seed: int
    budget: Budget
    prepared: Path
    folder: Path
    log: Path
    cost: Mapping[str, float] = field(default_factory=dict)
    """Metrics of its last rung that its kind of student has (`trials.costs`)."""
    copy: TrainingCopy | None = None
    """Keeps the folder in the storage too; None where there is none."""

    def on_node(self, files: DriverFiles | None) -> TrainingSpec:
        """The same with its copy and its inputs on this node; None: every node sees the driver's disk."""
        if files is None:
            return self
        self.log.parent.parent.mkdir(parents=True, exist_ok=True)
        return replace(self, prepared=files.prepared(self.prepared), copy=self.copy_by(files))

    def copy_by(self, files: DriverFiles) -> TrainingCopy:
        """The copy of this training; what decides every checkpoint of it tells it from any other."""
        spent = self.budget.model_dump(exclude={"trials", "stopping", "confirm"})
        training = fingerprint([self.method, self.params, self.seed, spent, files.content])
        return TrainingCopy(self.folder, files.remote_of(self.folder), training)


class TrainingCopy(FolderCopy):
    """A training's folder on this node and in the storage: any other worker goes on from what a worker has kept there."""

    def __init__(self, folder: Path, remote: Remote, training: str) -> None:
        super().__init__(folder, remote, LAST)
        self.mark = f"{MARK}{training[:24]}"

    def begin(self) -> None:
        """Make the folder what the storage has; what is of another training is deleted in both.

        Where the storage has nothing, what is here stays, and is copied: the run began without a storage.
        """
        stored = self.remote.list()
        if stored and self.mark not in stored:
            self.remote.delete_all()
            stored = {}
        if stored:
            try:
                self.fetch(stored)
            except Absent:  # a driver has just deleted it: the verdict was that it ends here
                remove_folder(self.folder)
                self.folder.mkdir(parents=True)
            return
        if self.folder.exists() and not (self.folder / self.mark).exists() and any(self.folder.glob(f"{MARK}*")):
            remove_folder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / self.mark).touch()
        if len(list(self.folder.iterdir())) > 1:
            self.push()

    def collect(self, model: Path, remote_model: Remote) -> None:
        """On the driver: fetch the vectors and the student of a training that a worker has finished, if one has.

        A driver that did not come to that, and goes on, may have deleted the student there with all that its run has not:
        then it is made again.
        """
        stored = self.remote.list()
        if not {LAST[1], self.mark} <= stored.keys() or not (names := remote_model.list()):
            return
        try:
            FolderCopy(model, remote_model).fetch(names)
        except Absent:  # it is being deleted
            return
        checkpoints = {name for name in stored if name.endswith(".safetensors") and "/" not in name}
        here = [name for name in stored if name not in checkpoints and name not in LAST]
        for some in (here, *([name] for name in LAST if name in stored)):
            self.remote.fetch_all(self.folder, some)
