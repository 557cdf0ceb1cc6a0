"""The work of a pool in this very process: for one encoder on one machine it is done before Ray has started."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from distilbench.prepare.pool import Shard, ShardTask
from distilbench.prepare.progress import progress


def run_in_process(task: ShardTask, shards: Sequence[Shard], label: str, *, gpu: bool = False) -> None:
    """Make the `shards` of a task, one on each of torch's threads at a time; with `gpu` one after the other."""
    import torch

    threads = 1 if gpu else torch.get_num_threads()
    make = task.load()

    def one(shard: int, start: int, stop: int) -> int:
        # Threads that share a matrix product wait for each other at its end: with another process on one of two cores,
        # all-MiniLM-L6-v2 read 25 sentences a second on two threads that did.
        if not gpu:
            torch.set_num_threads(1)
        make(shard, start, stop)
        return stop - start

    with (
        ThreadPoolExecutor(threads) as pool,
        progress(label, sum(stop - start for _, start, stop in shards), task.unit) as advance,
    ):
        try:
            for future in as_completed([pool.submit(one, *shard) for shard in shards]):
                advance(future.result())
        finally:
            pool.shutdown(cancel_futures=True)
