"""The clusters that a sweep is planned for: nodes with CPUs and GPUs, and their price where the user gives one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from distilbench.cluster.nodes import Node
from distilbench.cluster.resources import GPU_SHARE, TrialShare
from distilbench.errors import InputError
from distilbench.settings.sweep import CPUS_PER_GPU

_NODES = re.compile(r"(\d+)x(\d+)(?::(\d+))?(?:@(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Nodes:
    """So many machines of one kind."""

    count: int
    cpus: int
    gpus: int = 0
    dollars: float | None = None
    """For one of them for an hour; None is not known."""

    def workers(self, cpus: int, gpus: float) -> int:
        """How many workers fit that take `cpus` and a share of one GPU (up to 1), or whole GPUs, each on one machine."""
        return self.count * Node(self.cpus, self.gpus).fits(cpus, gpus)


@dataclass(frozen=True)
class Cluster:
    """Machines that are all there from the first minute to the last."""

    name: str
    nodes: tuple[Nodes, ...]
    option: str = ""
    """How the user named it, such as `--nodes 8x16:1`."""

    @property
    def cpus(self) -> int:
        """The CPUs of all machines."""
        return sum(n.count * n.cpus for n in self.nodes)

    @property
    def gpus(self) -> int:
        """The GPUs of all machines."""
        return sum(n.count * n.gpus for n in self.nodes)

    @property
    def dollars_per_hour(self) -> float | None:
        """The price of all machines; None where the price of one is not known."""
        prices = [n.count * n.dollars for n in self.nodes if n.dollars is not None]
        return math.fsum(prices) if len(prices) == len(self.nodes) else None

    def workers(self, cpus: int, gpus: float) -> int:
        """How many workers fit that take so much."""
        return sum(n.workers(cpus, gpus) for n in self.nodes)

    def trials_at_once(self, share: TrialShare) -> int:
        """As `cluster.resources.trial_resources` shares it: one CPU each, a quarter of a GPU where there are GPUs.

        Raises:
            InputError: one trial does not fit.
        """
        gpus = GPU_SHARE if share.gpus is None and self.gpus else share.gpus or 0.0
        fits = self.workers(share.cpus or 1, gpus)
        if not fits:
            raise InputError(
                f"{self.option or self.name}: a trial of {share.cpus or 1} CPUs and {gpus:g} GPUs fits on none of its nodes; "
                "expected larger nodes, or --cpus-per-trial and --gpus-per-trial that fit"
            )
        return min(fits, share.at_once or fits)


def parse_nodes(text: str) -> Cluster:
    """A cluster from "8x16:1@1.20,1x8@0.40": COUNT x CPUS[:GPUS][@DOLLARS_PER_HOUR], with commas between kinds.

    Raises:
        InputError: it is not that.
    """
    kinds = []
    for part in text.split(","):
        match = _NODES.fullmatch(part.strip())
        if match is None or int(match[1]) < 1 or int(match[2]) < 1:
            raise InputError(
                f"--nodes {text}: {part.strip()!r} is not COUNTxCPUS[:GPUS][@DOLLARS_PER_HOUR]; expected such as 8x16:1@1.20"
            )
        count, cpus, gpus, dollars = match.groups()
        kinds.append(Nodes(int(count), int(cpus), int(gpus or 0), None if dollars is None else float(dollars)))
    return Cluster(text.strip(), tuple(kinds), f"--nodes {text.strip()}")


def parse_gpus(text: str, cpus_per_gpu: int = CPUS_PER_GPU) -> list[Cluster]:
    """Clusters of so many nodes with one GPU each, from "1,8,64" or "1,8,64@2.50" (dollars for a node's hour).

    Raises:
        InputError: it is not that.
    """
    match = re.fullmatch(r"([\d\s,]+)(?:@(\d+(?:\.\d+)?))?", text.strip())
    counts = [c.strip() for c in match[1].split(",")] if match else []
    if match is None or not all(c.isdigit() and int(c) > 0 for c in counts):
        raise InputError(f"--gpus {text}: expected numbers of GPUs such as 1,8,64, or with a node's price, 1,8,64@2.50")
    dollars = None if match[2] is None else float(match[2])
    return [
        Cluster(f"{count} GPU" + "s" * (count > 1), (Nodes(count, cpus_per_gpu, 1, dollars),), f"--gpus {text.strip()}")
        for count in dict.fromkeys(map(int, counts))
    ]


def clusters_for(gpus: str | None, nodes: Sequence[str], cpus_per_gpu: int, own_cluster: Cluster) -> list[Cluster]:
    """The clusters that are asked for; without any, this machine (`own_cluster`) and 1, 8 and 64 GPUs.

    Raises:
        InputError: one cannot be read.
    """
    if gpus is None and not nodes:
        return [own_cluster, *parse_gpus("1,8,64", cpus_per_gpu)]
    return [*(parse_gpus(gpus, cpus_per_gpu) if gpus else []), *(parse_nodes(text) for text in nodes)]
