"""Retrieval within the query's own cluster (MCR2, table 1), beside k-means. PROVISIONAL: its author is at work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import RetrievalSet, Rows
from distilbench.evaluation.sts import Embed
from distilbench.records import ClusterCost


def cluster_costs(
    embed: Embed,
    task: RetrievalSet,
    clusters: int,
    assign: Callable[[Rows], NDArray[np.int64]] | None,
    threads: int = 1,
    seed: int = 0,
) -> list[ClusterCost]:
    """Nothing yet."""
    return []
