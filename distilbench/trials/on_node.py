"""A training on a node without a shared disk: its folders there, and its copy in the storage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from distilbench.cluster.place import Place
from distilbench.storage.files import fingerprint
from distilbench.trials.budget import Budget
from distilbench.trials.training_copy import TrainingCopy
from distilbench.trials.training_spec import TrainingSpec


def training_of(method: str, params: dict[str, Any], seed: int, budget: Budget, content: str) -> str:
    """A key of everything that decides a training's checkpoints; `content` is that of its prepared inputs."""
    spent = budget.model_dump(exclude={"trials", "stopping", "confirm"})
    return fingerprint([method, params, seed, spent, content])


def training_copy(
    place: Place, folder: Path, method: str, params: dict[str, Any], seed: int, budget: Budget
) -> TrainingCopy:
    """The copy of the training whose folder on the driver is `folder`."""
    assert place.keys is not None
    of = training_of(method, params, seed, budget, place.keys.content)
    return TrainingCopy(place.in_run(folder), place.remote_of(folder), of)


def on_this_node(spec: TrainingSpec, place: Place | None) -> TrainingSpec:
    """A training given with the driver's folders, with this node's, and its copy."""
    if place is None:
        return spec
    return replace(
        spec,
        prepared=place.prepared(spec.prepared),
        folder=place.in_run(spec.folder),
        log=place.in_run(spec.log),
        copy=training_copy(place, spec.folder, spec.method, spec.params, spec.seed, spec.budget),
    )
