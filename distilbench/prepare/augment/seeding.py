"""Random draws that depend on a sentence and a seed, whatever was drawn before them in the same process."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from distilbench.prepare.augment.operation import Copies


def seed_generators(seed: int, *parts: str) -> int:
    """Seed Python's and NumPy's global generators, which nlpaug draws from, with `seed` and `parts`. 20 µs.

    Returns:
        63 more bits, for a third generator.
    """
    digest = hashlib.sha256(json.dumps([seed, *parts]).encode()).digest()
    random.seed(int.from_bytes(digest[:8], "little"))
    np.random.seed(int.from_bytes(digest[8:12], "little"))
    return int.from_bytes(digest[12:20], "little") >> 1


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Python's and NumPy's global generators are afterwards as they were before."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def one_by_one(operation: str, change: Callable[[str], str]) -> Copies:
    """Copies made by `change`, which draws from the global generators, seeded anew for each sentence."""

    def copies(sentences: Sequence[str], seed: int) -> list[str]:
        changed = []
        with random_states_kept():
            for sentence in sentences:
                seed_generators(seed, operation, sentence)
                changed.append(change(sentence))
        return changed

    return copies
