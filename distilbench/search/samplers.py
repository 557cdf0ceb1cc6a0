"""Optuna's samplers by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.samplers import BaseSampler

from distilbench.choices import Searcher
from distilbench.errors import InputError
from distilbench.search.space import SearchSpace

STARTUP = 8
"""Random trials before a model of the objective is used."""
GENERATIONS: frozenset[Searcher] = frozenset({"cmaes", "nsga2", "nsga3"})
"""Searchers that learn only from trials to which they gave a generation when these began."""
LEARNS_NOTHING: frozenset[Searcher] = frozenset({"random", "grid"})
"""Searchers whose suggestions do not depend on results."""


def _tpe(**more: Any) -> BaseSampler:
    return optuna.samplers.TPESampler(constant_liar=True, **more)


SAMPLERS: dict[Searcher, Callable[[int, int], BaseSampler]] = {
    "tpe": lambda seed, population: _tpe(seed=seed, n_startup_trials=STARTUP),
    "cmaes": lambda seed, population: optuna.samplers.CmaEsSampler(
        seed=seed,
        n_startup_trials=STARTUP,
        independent_sampler=_tpe(seed=seed),
        warn_independent_sampling=False,
    ),
    "nsga2": lambda seed, population: optuna.samplers.NSGAIISampler(seed=seed, population_size=population),
    "nsga3": lambda seed, population: optuna.samplers.NSGAIIISampler(seed=seed, population_size=population),
    "gp": lambda seed, population: optuna.samplers.GPSampler(
        seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False
    ),
    "random": lambda seed, population: optuna.samplers.RandomSampler(seed=seed),
    "grid": lambda seed, population: optuna.samplers.RandomSampler(seed=seed),  # never asked: its points are queued
}
"""By name: (seed, population of a generation) -> a sampler."""


def make_sampler(space: SearchSpace, seed: int, trials: int, objectives: int) -> BaseSampler:
    """Make the sampler that a space names, for so many trials of so many objectives."""
    if space.searcher == "cmaes" and objectives > 1:
        raise InputError(f"--searcher cmaes: it has one objective, not {objectives}; expected nsga2, nsga3, tpe or gp")
    population = min(50, max(4, trials // 4))  # Optuna's 50 would leave a short search at random draws
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return SAMPLERS[space.searcher](seed, population)
