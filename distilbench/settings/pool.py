"""The number of workers that prepare data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distilbench.cluster.nodes import Node

GPU_SHARE = 0.25
"""The share of a GPU for each worker: several of them tokenise and write while one computes."""


@dataclass(frozen=True)
class PoolSize:
    """The number of workers at once (None: as fit), and each one's share of a GPU if they use one."""

    workers: int | None = None
    gpus: float = GPU_SHARE
    grow_to: tuple[Node, ...] = ()
    """Nodes that an autoscaler may have: workers wait for these too."""


AS_FIT = PoolSize()
