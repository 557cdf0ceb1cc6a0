"""A sampler with one model over all output dimensions: random forests on the places of trials within their groups.

As in SMAC (Hutter et al. 2011), a forest of regression trees is fitted to all trials that have ended, and the candidate with
the best prediction is suggested. Here the target is the place of a trial among those of its own dimension, by
`transfer.places`. So dimensions learn from each other, and trials that were stopped early count too. Every suggestion has a
fresh forest on its own bootstrap samples, which is what tells apart suggestions of the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial
from scipy.stats import norm
from sklearn.ensemble import ExtraTreesRegressor

from distilbench.codes import CompetitionKey, competition_key
from distilbench.search.space import Range, SearchSpace
from distilbench.search.transfer import places

TREES = 48
DRAWN = 300
"""Candidates drawn at random."""
CHANGED = 300
"""Candidates that are changed copies of the best trials."""
PARENTS = 8
"""Trials that are changed: those with the highest places, of all dimensions."""
RATE = 0.4
"""Probability that a parameter of such a copy is changed."""
STEP = 0.15
"""How far a number is moved then, as a share of its range (standard deviation)."""
RANDOM_TURN = 4
"""Every so many-th trial is drawn at random, so that nothing is overlooked for good."""


class ForestSampler(optuna.samplers.BaseSampler):  # type: ignore[misc]
    """Suggests all parameters of `space` together; those that a trial is given stay."""

    def __init__(self, space: SearchSpace, seed: int, startup: int) -> None:
        self.space, self.startup = space, startup
        self.rng = np.random.RandomState(seed)
        self._random = optuna.samplers.RandomSampler(seed=seed)
        self._chosen: dict[str, Any] = {}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Choose the parameters, and give their distributions."""
        ended = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
        self._chosen = {}
        distributions: dict[str, BaseDistribution] = {}
        if len(ended) >= self.startup and trial.number % RANDOM_TURN != RANDOM_TURN - 1:
            given = _named(trial.system_attrs.get("fixed_params", {}))
            self._chosen, distributions = self.space.in_study(self._active(self._best(ended, given)))
        return distributions

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: Any) -> dict[str, Any]:
        """What was chosen."""
        return self._chosen

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random draw: before there is a model, and where it is the turn of one."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _active(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: params[name] for name, r in self.space.parameters.items() if r.active(params)}

    def _whole(self, trial: FrozenTrial) -> dict[str, Any]:
        return {**self.space.fixed, **self.space.defaults, **_named(trial.params)}

    def _best(self, ended: Sequence[FrozenTrial], given: Mapping[str, Any]) -> dict[str, Any]:
        """The candidate that the forest expects most of."""
        settings = {t.number: self._whole(t) for t in ended}

        def group_of(trial: FrozenTrial) -> CompetitionKey:
            return competition_key(settings[trial.number])

        ranked = places(ended, group_of)
        numbers = sorted(ranked, key=lambda number: (-ranked[number], number))
        parents = [settings[number] for number in numbers[:PARENTS]]
        candidates = [self.space.suggest(_Draw(self.rng, given)) for _ in range(DRAWN)]
        for turn in range(CHANGED):
            candidates.append(self.space.suggest(_Draw(self.rng, given, parents[turn % len(parents)])))
        forest = ExtraTreesRegressor(
            TREES, min_samples_leaf=2, bootstrap=True, random_state=self.rng.randint(2**31 - 1), n_jobs=1
        )
        forest.fit([self._point(settings[n]) for n in numbers], norm.ppf([ranked[n] for n in numbers]))
        expected = forest.predict(np.array([self._point(params) for params in candidates]))
        return candidates[int(np.argmax(expected))]

    def _point(self, params: Mapping[str, Any]) -> NDArray[np.float64]:
        """A setting as numbers: each range on its scale, each choice by its number, or one column for each word."""
        columns: list[float] = []
        for name, r in self.space.parameters.items():
            active, value = r.active(params), params[name]
            _, searched = self.space.searched(name, params)
            if searched.choices is None:
                columns.append(searched.unit(float(value)) if active else -1.0)
            elif all(isinstance(c, int | float) and not isinstance(c, bool) for c in r.choices or ()):
                columns.append(float(value) if active else -1.0)
            else:
                columns += [float(active and value == choice) for choice in r.choices or ()]
        return np.array(columns)


class _Draw:
    """Suggests values at random; where a parent is given, its own, some of them changed. What is given stays."""

    def __init__(
        self, rng: np.random.RandomState, given: Mapping[str, Any], parent: Mapping[str, Any] | None = None
    ) -> None:
        self.rng, self.given, self.parent = rng, given, parent

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of `choices`."""
        own = name.partition("@")[0]
        if own in self.given:
            return self.given[own]
        if self.parent is not None and self.parent.get(own) in choices and self.rng.rand() >= RATE:
            return self.parent[own]
        return choices[self.rng.randint(len(choices))]

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int:
        """A whole number from `low` to `high`."""
        return int(np.clip(round(self.suggest_float(name, low, high, log=log)), low, high))

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """A number from `low` to `high`."""
        own, r = name.partition("@")[0], Range(low=float(low), high=float(high), log=log)
        if own in self.given:
            return float(self.given[own])
        if self.parent is None or not low <= float(self.parent[own]) <= high:
            return r.number(self.rng.rand())
        if self.rng.rand() >= RATE:
            return float(self.parent[own])
        return r.number(float(np.clip(r.unit(float(self.parent[own])) + STEP * self.rng.randn(), 0, 1)))


def _named(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by their own names, without the student of whom a range is."""
    return {name.partition("@")[0]: value for name, value in params.items()}
