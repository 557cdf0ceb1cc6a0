"""What this process takes of its machine: the most memory, resident and on a GPU, what goes back, and torch's threads."""

from __future__ import annotations

import gc
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")
"""Where Linux says it. What `getrusage` says there is also of the process that started this one, until it began its own."""
PEAK, GPU_PEAK = "peak_mb", "gpu_peak_mb"
"""Among a rung's metrics: the most memory until then in MB, resident and on the GPU, of the training's worker. On a GPU it is
what torch held for this trial, without the context (some 500 MB)."""


def peak_mb() -> float:
    """The most memory of this process so far in MB (10^6 bytes): pages of files that it has mapped count too, a GPU's not."""
    status = STATUS.read_text() if STATUS.exists() else ""
    if peak := re.search(r"VmHWM:\s*(\d+) kB", status):
        return int(peak[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def process_mark(pid: int) -> str | None:
    """The start time of a process, which tells it from a later one of the same number; "" if the system does not say.

    None: there is no such process, or it has ended and only its parent has not noticed.
    """
    try:
        # After the name, which may hold anything but is in brackets: the state, and as the 20th the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def peaks() -> dict[str, float]:
    """The metrics of memory."""
    import torch

    on_gpu = {GPU_PEAK: torch.cuda.max_memory_reserved() / 1e6} if torch.cuda.is_initialized() else {}  # type: ignore[no-untyped-call]
    return {PEAK: peak_mb(), **on_gpu}


def release_memory() -> None:
    """Give back what nothing refers to any more, on a GPU to the other processes."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()  # nothing where no GPU is in use


def count_gpu_peak_anew() -> None:
    """Begin to count the most memory of the GPU for the next trial."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()


GPU_MARGIN = 2.0
"""Of its share of a GPU's memory that a process may take: most take less, and one that takes all stops the others."""


def limit_gpu_memory(share: float) -> None:
    """Let torch take no more of the GPU than the process's share allows; beyond it memory is out, as on a full GPU."""
    import torch

    if 0 < share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(min(1.0, GPU_MARGIN * share))


@contextmanager
def torch_threads(threads: int | None, *, most: bool = False) -> Iterator[None]:
    """torch on so many threads meanwhile; with `most` on no more than these, and with None on as many as before."""
    import torch

    before = torch.get_num_threads()
    wanted = threads or before
    torch.set_num_threads(min(before, wanted) if most else wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
