"""Ray Data actors that make the shards of an artifact, each actor many shards, each shard a file.

Only row numbers travel through Ray: the workers read sentences from files and write shards to files. What one process does as
fast on a single machine is done in this one: workers take 15-20 s to start.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import rich
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from distilbench.cluster.nodes import Node, places_on, possible_nodes, waiting_told
from distilbench.cluster.resources import quiet_data_log
from distilbench.errors import InputError
from distilbench.machine import peak_mb, release_memory
from distilbench.settings.place import AS_FIT, GPU_SHARE, PoolSize
from distilbench.stage_times import StageTiming, note_pool
from distilbench.storage.arrays import shard_name, shard_ranges
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from distilbench.cluster.driver_files import DriverFiles

FETCHED_AT_ONCE = 4
LINE_EVERY_S = 30
"""Between two lines on a stage where there is no terminal to draw a bar in."""

Shard = tuple[int, int, int]
"""Number of a shard and its rows [start, stop)."""


class ShardTask(ABC):
    """What an actor does: a small picklable description, from which every actor loads what it needs once.

    Its files go into `folder`. With a storage, every path in it is one of the driver's, and on other nodes one of theirs.
    """

    folder: Path
    unit: ClassVar[str] = "sentences"
    """What its rows are called."""

    def files(self, shard: int) -> tuple[str, ...]:
        """The files that a shard is, the last of which says that it is done."""
        return (shard_name(shard),)

    def suits_one_process(self, machine: Node) -> bool:
        """Whether one process does it as fast as a pool where this machine is all there is."""
        return False

    @property
    def threads_here(self) -> int | None:
        """Threads of that process: with two, one reads while the other computes; None: as `run_in_process` has it."""
        return 2

    def missing(self, rows: int, shard_rows: int) -> list[Shard]:
        """The shards of so many rows that are not in the folder yet."""
        shards = [(i, start, stop) for i, (start, stop) in enumerate(shard_ranges(rows, shard_rows))]
        return [s for s in shards if not all((self.folder / name).exists() for name in self.files(s[0]))]

    @abstractmethod
    def load(self) -> Callable[[int, int, int], None]:
        """Whatever takes long, in the actor; gives the function that writes the file of a shard, whole or not at all."""


class ShardWorker:
    """The Ray Data actor of a task."""

    def __init__(self, task: ShardTask, files: DriverFiles | None = None) -> None:
        import torch

        torch.set_num_threads(1)
        self.error = ""  # an exception would reach the driver as mere text
        self.task, self.files = task, files
        try:
            if files is not None and not files.here:
                files.provide(task)
            self.make = self.task.load()
        except InputError as error:
            self.error = str(error)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, list[Any]]:
        """Input columns `shard`, `start`, `stop`; output `shard`, `count` (rows done), `error` ("" for none), `peak_mb`."""
        counts = []
        for shard, start, stop in zip(batch["shard"], batch["start"], batch["stop"], strict=True):
            if not self.error:
                try:
                    self.make(int(shard), int(start), int(stop))
                    self._keep(int(shard))
                except InputError as error:
                    self.error = str(error)
            counts.append(int(stop - start))
        told = {"error": [self.error] * len(counts), "peak_mb": [peak_mb()] * len(counts)}
        return {"shard": batch["shard"].tolist(), "count": counts, **told}

    def _keep(self, shard: int) -> None:
        """Copy what was made to the storage, for the driver and for whoever goes on without it."""
        if self.files is not None:
            for name in self.task.files(shard):
                path = self.task.folder / name
                remote, stored = self.files.shard(path)
                remote.put(path, stored)
                if not self.files.here:
                    path.unlink()


def run_pool(
    task: ShardTask,
    shards: Sequence[Shard],
    label: str,
    *,
    size: PoolSize = AS_FIT,
    gpu: bool = False,
    store: ArtifactStore | None = None,
) -> None:
    """Have actors make the `shards` of a task, one actor per CPU or, with `gpu`, per share of a GPU where a node has one.

    As many as fit on the nodes that are up and those that may come; the first ones begin without the others. On one machine
    a task that suits one process is done in this one, unless a number of workers was asked for.

    Where `store` has a storage, every shard goes there as soon as it is made, and from there to this machine.
    """
    if not shards:
        return
    from distilbench.cluster.driver_files import share_files

    files, nodes = share_files(store, task) if store else None, possible_nodes(size.grow_to)
    if files is None and size.workers is None and len(nodes) == 1 and task.suits_one_process(nodes[0]):
        return run_in_process(task, shards, label, threads=task.threads_here)
    share = GPU_SHARE if gpu and any(node.gpus for node in nodes) else 0.0
    fit = places_on(nodes, 1, share)
    workers = max(1, min(size.workers or fit, fit, len(shards)))
    total = sum(stop - start for _, start, stop in shards)
    began, worker_mb = time.monotonic(), 0.0
    rows = _results(task, shards, files, workers, share)
    fetched: list[Future[None]] = []
    waiting = waiting_told(1, share, label)
    with waiting, progress(label, total, task.unit) as advance, ThreadPoolExecutor(FETCHED_AT_ONCE) as threads:
        for row in rows:
            if row["error"]:
                raise InputError(row["error"])
            worker_mb = max(worker_mb, row["peak_mb"])
            advance(row["count"])
            if files is not None:
                fetched.append(threads.submit(_collect, task, int(row["shard"]), files))
        for one in fetched:
            one.result()
    took = {"seconds": time.monotonic() - began, "worker_mb": worker_mb}
    note_pool(StageTiming(stage=label, count=total, workers=workers, device="cuda" if share else "cpu", **took))


def _results(
    task: ShardTask, shards: Sequence[Shard], files: DriverFiles | None, workers: int, share: float
) -> Iterator[dict[str, Any]]:
    import ray.data

    quiet_data_log()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # ours counts sentences, theirs counts blocks
    items = [dict(zip(("shard", "start", "stop"), map(np.int64, shard), strict=True)) for shard in shards]
    worker = type(type(task).__name__, (ShardWorker,), {})  # Ray's dashboard shows the name
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        worker,
        fn_constructor_args=(task, files),
        compute=ray.data.ActorPoolStrategy(size=workers),
        batch_size=1,
        num_cpus=1,
        num_gpus=share,
    )
    yield from dataset.iter_rows()


def run_in_process(task: ShardTask, shards: Sequence[Shard], label: str, *, threads: int | None = None) -> None:
    """Make the `shards` of a task, so many at a time: with two, one is read while the other is computed on a GPU.

    None is one on each of torch's threads, which computes on that alone.
    """
    import torch

    began, total = time.monotonic(), sum(stop - start for _, start, stop in shards)
    make = task.load()
    # Threads that share a matrix product wait for each other at its end: with another process on one of two cores,
    # all-MiniLM-L6-v2 read 25 sentences a second on two threads that did.
    alone = None if threads else partial(torch.set_num_threads, 1)
    pool = ThreadPoolExecutor(threads or torch.get_num_threads(), initializer=alone)
    with pool, progress(label, total, task.unit) as advance:
        try:
            made = {pool.submit(make, *shard): shard for shard in shards}
            for future in as_completed(made):
                future.result()
                _, start, stop = made[future]
                advance(stop - start)
        finally:
            pool.shutdown(cancel_futures=True)
    release_memory()
    device = "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]
    note_pool(StageTiming(stage=label, seconds=time.monotonic() - began, count=total, device=device))


def _collect(task: ShardTask, shard: int, driver: DriverFiles) -> None:
    for name in task.files(shard):
        if not (task.folder / name).exists():
            remote, stored = driver.shard(task.folder / name)
            remote.fetch(stored, task.folder / name)


@contextmanager
def progress(label: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Shows `label` at work on `total` things called `unit` ("sentences"); call what it gives with how many more are done.

    The rate is that since the first report, which also waited for workers to start.
    """
    console, last_line_at = rich.get_console(), time.monotonic()
    drawn = not console.is_jupyter or find_spec("ipywidgets") is not None  # what a notebook draws a bar with
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not drawn) as bar:
        task_id = bar.add_task(label, total=total, rate="")
        (task,) = bar.tasks

        def advance(count: int) -> None:
            nonlocal last_line_at
            bar.update(task_id, advance=count)
            speed = task.finished_speed or task.speed or task.completed / max(task.elapsed or 0.0, 1e-9)
            left = (total - task.completed) / speed if speed else 0.0
            rate = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"  # of what takes seconds each, two digits
            bar.update(task_id, rate=f"{rate} {unit}/s")
            in_place = drawn and (console.is_terminal or console.is_jupyter)
            if not in_place and time.monotonic() - last_line_at > LINE_EVERY_S:
                last_line_at = time.monotonic()
                done = f"{label}: {task.completed:,} of {total:,} {unit}"
                bar.console.print(f"{done}, {rate}/s, {left:,.0f} s left", markup=False)

        yield advance
    if not drawn:
        console.print(f"{label}: {task.completed:,} of {total:,} {unit}", markup=False)
