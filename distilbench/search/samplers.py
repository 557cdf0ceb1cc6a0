"""Samplers by name: Optuna's, and one with a model over all output dimensions."""

from __future__ import annotations

import warnings
from typing import Any

import optuna

from distilbench.choices import Searcher
from distilbench.errors import InputError
from distilbench.search.forest import ForestSampler
from distilbench.search.space import SearchSpace

SEARCHERS: dict[Searcher, str] = {
    "tpe": "Tree-structured Parzen Estimator (Bergstra et al. 2011), told of running trials (constant liar)",
    "cmaes": "CMA-ES (Hansen 2016) on the numbers, independent draws for choices; one objective",
    "nsga2": "NSGA-II (Deb et al. 2002)",
    "nsga3": "NSGA-III (Deb and Jain 2014)",
    "gp": "Gaussian process, log expected improvement",
    "forest": "random forests over all dimensions, on the places of trials within their own (after SMAC); one objective",
    "random": "independent random draws (Bergstra and Bengio 2012)",
    "grid": "every combination, in a seeded order",
}
GENERATIONS: frozenset[Searcher] = frozenset({"cmaes", "nsga2", "nsga3"})
"""Searchers that learn only from trials to which they gave a generation when these began."""
STARTUP = 8
"""Random trials before a model of the objective is used."""


def random_settings(space: SearchSpace, count: int, seed: int) -> list[dict[str, Any]]:
    """Hyper-parameters of so many trials, drawn at random."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [space.suggest(study.ask()) for _ in range(count)]


def make_sampler(space: SearchSpace, seed: int, trials: int, objectives: int) -> optuna.samplers.BaseSampler:
    """The sampler that a space names, for so many trials of so many objectives. A grid's points are queued, so its sampler is
    never asked.

    Raises:
        InputError: the searcher cannot have several objectives.
    """
    searcher = space.searcher
    if searcher in ("cmaes", "forest") and objectives > 1:
        raise InputError(
            f"--searcher {searcher}: it has one objective, not {objectives}; expected nsga2, nsga3, tpe or gp"
        )
    population = min(50, max(4, trials // 4))  # Optuna's 50 would leave a short search at random draws
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match searcher:
            case "tpe":
                return optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=STARTUP)
            case "cmaes":
                return optuna.samplers.CmaEsSampler(
                    seed=seed,
                    n_startup_trials=STARTUP,
                    independent_sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
                    warn_independent_sampling=False,
                )
            case "nsga2":
                return optuna.samplers.NSGAIISampler(seed=seed, population_size=population)
            case "nsga3":
                return optuna.samplers.NSGAIIISampler(seed=seed, population_size=population)
            case "gp":
                return optuna.samplers.GPSampler(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)
            case "forest":
                return ForestSampler(space, seed, STARTUP)
            case "random" | "grid":
                return optuna.samplers.RandomSampler(seed=seed)
