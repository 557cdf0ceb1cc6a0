"""The specification of one training; on a node without a shared disk it has folders of its own, and a copy in storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distilbench.cluster.path_map import PathMap
from distilbench.storage.files import fingerprint
from distilbench.trials.budget import Budget
from distilbench.trials.training_copy import TrainingCopy


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
    hang_s: float = 0.0
    """Seconds without progress after which the process ends itself; 0 is no limit."""
    costs: bool = False
    """Whether its last rung has what its kind of student costs (`trials.costs`)."""
    copy: TrainingCopy | None = None
    """Keeps the folder in the storage too; None where there is none."""

    def localised(self, path_map: PathMap | None) -> TrainingSpec:
        """Give this node's folders and the copy, of a training given with the driver's folders."""
        if path_map is None:
            return self
        return replace(
            self,
            prepared=path_map.prepared(self.prepared),
            folder=path_map.in_run(self.folder),
            log=path_map.in_run(self.log),
            copy=self.copy_by(path_map),
        )

    def copy_by(self, path_map: PathMap) -> TrainingCopy:
        """The copy of this training; what decides every checkpoint of it tells it from any other."""
        assert path_map.keys is not None
        spent = self.budget.model_dump(exclude={"trials", "stopping", "confirm"})
        training = fingerprint([self.method, self.params, self.seed, spent, path_map.keys.content])
        return TrainingCopy(path_map.in_run(self.folder), path_map.remote_of(self.folder), training)
