"""The work of a pool in this very process: for one encoder on one machine it is done before Ray has started."""

from __future__ import annotations

from collections.abc import Sequence

from distilbench.prepare.pool import Shard, ShardTask
from distilbench.prepare.progress import progress


def run_here(task: ShardTask, shards: Sequence[Shard], label: str, unit: str) -> None:
    """Make the `shards` of a task one after the other, with torch's own threads.

    Raises:
        InputError: as the task's; the shards made so far are there.
    """
    make = task.load()
    with progress(label, sum(stop - start for _, start, stop in shards), unit) as advance:
        for shard, start, stop in shards:
            make(shard, start, stop)
            advance(stop - start)
