"""What the tests of the preparation share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distilbench.prepare.pool import Shard, ShardTask


@pytest.fixture(scope="session")
def run_in_process() -> Callable[..., None]:
    """What Ray Data does with a task, in this process: a worker's start takes seconds."""

    def run(task: ShardTask, shards: list[Shard], *_: Any, **__: Any) -> None:
        make = task.load()
        for shard in shards:
            make(*shard)

    return run
