"""The specification of one training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
