"""How many threads torch computes on, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


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
