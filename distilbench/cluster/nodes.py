"""The nodes of a Ray cluster: what each has, how much of a kind of work really fits on them, and which ones may still come.

Shares of GPUs, and what is left of CPUs, do not add up over nodes: one trial, or one worker, runs on one of them. On a
cluster that grows, more work is begun than fits now: what waits for its place is what makes Ray's autoscaler bring nodes.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import rich

from distilbench.errors import InputError

LOOK_S = 5.0
"""Between two looks at the nodes."""
PATIENCE_S = 20.0
"""Without a node that has room before that is said: Ray itself notices a lost node within half a minute."""
AGAIN_S = 600.0
"""Between two lines that say the same."""
RETRIES = 10
"""Times that a task is begun again after its worker or its node died."""
HEAD = "node:__internal_head__"

T = TypeVar("T")


class Node(NamedTuple):
    """The resources of one node, or what work needs of one; `memory` in bytes, 0 where that is not known."""

    cpus: int
    gpus: float = 0
    memory: int = 0

    def fits(self, cpus: int, gpus: float) -> int:
        """Count the pieces of work of so many CPUs and GPUs that fit: a share is of one GPU, more are whole ones."""
        count = self.cpus // cpus
        if gpus:
            count = min(count, int(1 / gpus + 1e-9) * int(self.gpus) if gpus <= 1 else int(self.gpus // gpus))
        return count

    def __str__(self) -> str:
        counts = [(self.cpus, "CPU"), (self.gpus, "GPU")]
        parts = [f"{count:g} {unit}{'s' if count != 1 else ''}" for count, unit in counts if count or unit == "CPU"]
        return ", ".join([*parts, *([f"{self.memory / 2**30:.0f} GiB"] if self.memory else [])])


def parse_growth(text: str) -> tuple[Node, ...]:
    """The nodes of `--grow-to`: "8x16:1,4x32" is 8 of 16 CPUs and a GPU and 4 of 32 CPUs; "" is none."""
    nodes: list[Node] = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        match = re.fullmatch(r"(\d{1,5})x(\d{1,5})(?::(\d{1,3}))?", part)
        if match is None or not int(match[1]) or not int(match[2]):
            raise InputError(
                f"--grow-to {text}: {part!r} is no kind of node; expected COUNTxCPUS or COUNTxCPUS:GPUS, several with commas "
                "between, such as 8x16:1,4x32"
            )
        nodes += [Node(int(match[2]), int(match[3] or 0))] * int(match[1])
    return tuple(nodes)


def alive_nodes() -> list[Node]:
    """The nodes that are up, the head first."""
    import ray

    resources = sorted((node["Resources"] for node in ray.nodes() if node["Alive"]), key=lambda r: HEAD not in r)
    return [Node(int(r.get("CPU", 0)), int(r.get("GPU", 0)), int(r.get("memory", 0))) for r in resources]


def lost_nodes() -> frozenset[str]:
    """The ids of the nodes that were up and are not any more."""
    import ray

    return frozenset(node["NodeID"] for node in ray.nodes() if not node["Alive"])


def possible_nodes(grow_to: Sequence[Node] = ()) -> list[Node]:
    """The nodes that are up, and those of `grow_to` that are not; a worker of such a size is taken to be one of them."""
    nodes = alive_nodes()
    coming = Counter((node.cpus, node.gpus) for node in grow_to) - Counter((node.cpus, node.gpus) for node in nodes[1:])
    return nodes + [Node(*kind) for kind in coming.elements()]


def places_on(nodes: Iterable[Node], cpus: int, gpus: float) -> int:
    """Count the pieces of work that fit on the nodes together."""
    return sum(node.fits(cpus, gpus) for node in nodes)


def described(nodes: Sequence[Node]) -> str:
    """Such as "1 node of 8 CPUs, 4 nodes of 16 CPUs, 1 GPU, 64 GiB"."""
    kinds = Counter(map(str, nodes))
    return "; ".join(f"{count} node{'s' if count > 1 else ''} of {kind}" for kind, count in kinds.items()) or "none"


def nodes_line(grow_to: Sequence[Node] = ()) -> str:
    """A line on the nodes for the start of a command; "" if there is only one. Needs `ray.init`."""
    nodes, up = possible_nodes(grow_to), len(alive_nodes())
    coming = f"; may come: {described(nodes[up:])}" if len(nodes) > up else ""
    return f"Nodes: {described(nodes[:up])}{coming}" if len(nodes) > 1 else ""


@contextmanager
def waiting_told(cpus: int, gpus: float, what: str) -> Iterator[None]:
    """While in it, it is said when no node that is up has room for `what`, and when one has again."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(ended, cpus, gpus, what), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=LOOK_S)


def _watch(ended: threading.Event, cpus: int, gpus: float, what: str) -> None:
    since = last_line = None
    while not ended.wait(LOOK_S):
        try:
            nodes = alive_nodes()
        except Exception:  # Ray is being stopped; the work says so itself
            return
        now = time.monotonic()
        if places_on(nodes, cpus, gpus):
            if last_line is not None:
                rich.print(f"{what}: goes on; nodes now: {described(nodes)}")
            since = last_line = None
        else:
            since = since or now
            if now - since >= PATIENCE_S and (last_line is None or now - last_line >= AGAIN_S):
                last_line = now
                rich.print(f"{what}: waiting for a node with {Node(cpus, gpus)}; there is now: {described(nodes)}")


def gpus_elsewhere(grow_to: Sequence[Node] = ()) -> bool:
    """Whether this machine has no GPU that torch sees, but a node of the cluster has one, or may have. False without Ray."""
    import ray

    from distilbench.encoders.encoder import default_device

    if not ray.is_initialized() or default_device() != "cpu":
        return False
    return any(node.gpus for node in possible_nodes(grow_to))


def on_gpu_node(function: Callable[..., T], *args: Any, gpus: float = 1.0, what: str) -> T:
    """`function(*args)` on a node with a GPU, waited for where none is up. Begun again where it died: must be repeatable."""
    import ray

    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(function)
    with waiting_told(1, gpus, what):
        try:
            return ray.get(remote.remote(*args))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise InputError(str(error.cause)) from None
            raise
        except ray.exceptions.RayError as error:
            raise InputError(f"{what}: its worker died {RETRIES + 1} times ({type(error).__name__})") from None


def working_device(grow_to: Sequence[Node] = ()) -> str:
    """ "cuda" or "cpu": where encoding is done. Without a GPU here a node that has one is asked what torch sees there."""
    from distilbench.encoders.encoder import default_device

    if not gpus_elsewhere(grow_to):
        return default_device()
    return on_gpu_node(default_device, gpus=0.01, what="A look at a GPU node")
