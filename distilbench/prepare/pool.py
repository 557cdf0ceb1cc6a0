"""Ray Data actors that make the shards of an artifact, each actor many shards, each shard a file.

Only row numbers travel through Ray: the workers read sentences from files and write shards to files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.errors import InputError
from distilbench.prepare.progress import progress

GPU_SHARE = 0.25
"""Of a GPU for each worker: several of them tokenise and write while one computes."""

Shard = tuple[int, int, int]
"""Number of a shard and its rows [start, stop)."""


@dataclass(frozen=True)
class PoolSize:
    """How many workers at once (None: as fit), and the share of a GPU for each where they use one."""

    workers: int | None = None
    gpus: float = GPU_SHARE


AS_FIT = PoolSize()


class ShardTask(ABC):
    """What an actor does: a small picklable description, from which every actor loads what it needs once."""

    @abstractmethod
    def load(self) -> Callable[[int, int, int], None]:
        """Whatever takes long, in the actor; gives the function that writes the file of a shard, whole or not at all.

        Raises:
            InputError: it cannot be loaded; the function raises it where a shard cannot be made.
        """


class ShardWorker:
    """The Ray Data actor of a task."""

    def __init__(self, task: ShardTask) -> None:
        import torch

        torch.set_num_threads(1)
        self.error = ""  # an exception would reach the driver as mere text
        try:
            self.make = task.load()
        except InputError as error:
            self.error = str(error)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, list[Any]]:
        """Input columns `shard`, `start` and `stop`; output `count` (rows done) and `error` ("" for none)."""
        counts = []
        for shard, start, stop in zip(batch["shard"], batch["start"], batch["stop"], strict=True):
            if not self.error:
                try:
                    self.make(int(shard), int(start), int(stop))
                except InputError as error:
                    self.error = str(error)
            counts.append(int(stop - start))
        return {"count": counts, "error": [self.error] * len(counts)}


def run_pool(
    task: ShardTask, shards: Sequence[Shard], label: str, unit: str, *, size: PoolSize = AS_FIT, gpu: bool = False
) -> None:
    """Have actors make the `shards` of a task, one actor per CPU or, with `gpu`, per share of a GPU.

    Raises:
        InputError: a worker has an `error`; the shards made so far are there.
    """
    import ray
    import ray.data

    total = sum(stop - start for _, start, stop in shards)
    resources = ray.cluster_resources()
    gpus, cpus = resources.get("GPU", 0.0), int(resources.get("CPU", 1))
    share = size.gpus if gpu and gpus else 0.0
    fit = min(cpus, int(gpus / share)) if share else cpus
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # ours counts sentences, theirs counts blocks
    items = [dict(zip(("shard", "start", "stop"), map(np.int64, shard), strict=True)) for shard in shards]
    worker = type(type(task).__name__, (ShardWorker,), {})  # Ray's dashboard shows the name
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        worker,
        fn_constructor_args=(task,),
        compute=ray.data.ActorPoolStrategy(size=max(1, min(size.workers or fit, fit, len(items)))),
        batch_size=1,
        num_cpus=1,
        num_gpus=share,
    )
    with progress(label, total, unit) as advance:
        for row in dataset.iter_rows():
            if row["error"]:
                raise InputError(row["error"])
            advance(row["count"])
