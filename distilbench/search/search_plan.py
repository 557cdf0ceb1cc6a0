"""The plan of one search: everything that its trials follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from distilbench.search.space import SearchSpace

STARTUP = 8
"""Random trials before TPE models the objective."""


def make_sampler(space: SearchSpace, seed: int) -> BaseSampler:
    """Make the sampler that a space names."""
    if space.searcher == "tpe":
        return TPESampler(constant_liar=True, seed=seed, n_startup_trials=STARTUP)
    return RandomSampler(seed=seed)


@dataclass(frozen=True)
class Search:
    """The plan of one search."""

    name: str
    """The run's, in records."""
    space: SearchSpace
    objectives: tuple[str, ...]
    wanted: int
    """Trials in all."""
    starts: Sequence[dict[str, Any]]
    """Values that the first trials are given."""
    max_pending: int
    """A trial is suggested from the results of those at least so many before it."""
    seed: int
    select: str = "sts"
    """The measure that selects students."""

    def make_sampler(self, stream: int) -> BaseSampler:
        """Make a fresh sampler; `stream` numbers a stream of random draws."""
        return make_sampler(self.space, self.seed + stream)
