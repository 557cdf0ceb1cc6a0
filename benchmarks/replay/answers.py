"""What answers a suggestion instead of a training: the nearest recorded setting that is unused, or a fitted surrogate."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import optuna
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import KFold

from distilbench.codes import CompetitionKey
from distilbench.search.space import GIVEN, Range, SearchSpace
from replay.tables import Recorded, Table

WORST = 10
"""Percentile of the values under which all are alike to the surrogate: some settings are worse by a hundred times more than
the good ones differ."""
GRID = 4_000
"""Random settings of a group over which the surrogate's best are found."""


class Answers(Protocol):
    """Answers the suggestions of one search."""

    def answer(self, params: dict[str, Any]) -> Recorded:
        """What the training of a setting would have reported; its `params` are those that were trained."""


class Coordinates:
    """Settings as points: a number from 0 to 1 for each range (on its scale), one for each choice."""

    def __init__(self, space: SearchSpace, settings: Sequence[Recorded]) -> None:
        self.space = space
        self.columns: list[tuple[str, Any]] = []
        for name, r in space.parameters.items():
            if r.choices is None:
                self.columns.append((name, None))
            else:
                seen = {repr(s.params[name]): s.params[name] for s in settings}
                self.columns += [(name, value) for value in (*r.choices, *seen.values()) if repr(value) in seen]
        self.columns = list({(name, repr(value)): (name, value) for name, value in self.columns}.values())

    def point(self, params: dict[str, Any]) -> NDArray[np.float64]:
        """Where a setting is. Of a parameter that is not searched there it has the middle."""
        values = []
        for name, choice in self.columns:
            r, value = self.space.parameters[name], params[name]
            if not r.active(params):
                values.append(0.5 if choice is None else 0.0)
            elif choice is not None:
                values.append(0.7 * (repr(value) == repr(choice)))  # two of them: a distance of 1 between two choices
            else:
                values.append(_unit(r, float(value)))
        return np.array(values)


def _unit(r: Range, value: float) -> float:
    """The place of a number between `low` (0) and `high` (1), on the scale that it is searched on."""
    low, high, at = (math.log(v) if r.log else v for v in (r.low or 0.0, r.high or 0.0, value))
    return (at - low) / (high - low)


def random_settings(space: SearchSpace, count: int, seed: int) -> list[dict[str, Any]]:
    """Draw the hyper-parameters of `count` trials at random."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [space.suggest(study.ask()) for _ in range(count)]


class Nearest:
    """Answers with the nearest recorded setting of the same dimension (and student) that has not answered yet.

    When all have, they begin again.
    """

    def __init__(self, table: Table) -> None:
        self.coordinates = Coordinates(table.space, table.settings)
        self.settings = table.settings
        self.points = np.array([self.coordinates.point(s.params) for s in table.settings])
        self.by_shared: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for i, setting in enumerate(table.settings):
            self.by_shared[_shared(setting.params)].append(i)
        self.used: set[int] = set()

    def afresh(self) -> Nearest:
        """The same for another search."""
        again = object.__new__(Nearest)
        again.__dict__.update(self.__dict__, used=set())
        return again

    def answer(self, params: dict[str, Any]) -> Recorded:
        """The recorded setting."""
        here = self.by_shared[_shared(params)]
        if self.used.issuperset(here):
            self.used.difference_update(here)
        free = [i for i in here if i not in self.used]
        distances = np.abs(self.points[free] - self.coordinates.point(params)).sum(axis=1)
        chosen = free[int(np.argmin(distances))]
        self.used.add(chosen)
        return self.settings[chosen]


class Surrogate:
    """Answers with what Gaussian processes, one for each rung, make of the recorded settings. A setting is itself trained."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.coordinates = Coordinates(table.space, table.settings)
        self.rungs = max((s.rungs for s in table.settings if not s.failed), key=len)
        self.models = []
        self.agreement = float("nan")
        """Spearman's correlation of held-out results with predicted ones, in five folds, within groups."""
        for position in range(len(self.rungs)):
            points, values, groups = self._at(position)
            values = np.maximum(values, worst := float(np.percentile(values, WORST)))
            self.models.append((_fitted(points, values), worst))
            if position == len(self.rungs) - 1:
                self.agreement = _agreement(points, values, groups)

    def afresh(self) -> Surrogate:
        """The same for another search: nothing is remembered."""
        return self

    def _at(self, position: int) -> tuple[NDArray[np.float64], NDArray[np.float64], list[CompetitionKey]]:
        points, values, groups = [], [], []
        for setting in self.table.settings:
            if position < len(setting.rungs) and (value := setting.rungs[position]["objective"]) is not None:
                points.append(self.coordinates.point(setting.params))
                values.append(value)
                groups.append(setting.group)
        return np.array(points), np.array(values), groups

    def answer(self, params: dict[str, Any]) -> Recorded:
        """What is predicted for the setting."""
        return self.predicted([params])[0]

    def predicted(self, several: Sequence[dict[str, Any]]) -> list[Recorded]:
        """What is predicted for settings."""
        points = np.array([self.coordinates.point(params) for params in several])
        values = np.array([np.maximum(model.predict(points), worst) for model, worst in self.models])
        return [
            Recorded(
                params,
                {n: params[n] for n, r in self.table.space.parameters.items() if r.active(params)},
                [
                    {**rung, "objective": float(v), "metrics": {"dev_quality": None}}
                    for rung, v in zip(self.rungs, at, strict=True)
                ],
            )
            for params, at in zip(several, values.T, strict=True)
        ]

    def values(self, group: CompetitionKey) -> list[float]:
        """The results of random settings of a group, the best first."""
        if not hasattr(self, "_values"):
            self._values: dict[CompetitionKey, list[float]] = defaultdict(list)
            drawn = random_settings(self.table.space, GRID, seed=0)
            for setting in self.predicted(drawn):
                self._values[setting.group].append(setting.value)
        return sorted(self._values[group], reverse=True)


def _shared(params: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(params.get(name) for name in sorted(GIVEN))


def _fitted(points: NDArray[np.float64], values: NDArray[np.float64]) -> GaussianProcessRegressor:
    scale = np.ones(points.shape[1])
    kernel = ConstantKernel(1.0) * Matern(scale, (0.1, 30), nu=2.5) + WhiteKernel(0.1, (1e-4, 2))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(points, values)


def _agreement(points: NDArray[np.float64], values: NDArray[np.float64], groups: Sequence[CompetitionKey]) -> float:
    from scipy.stats import spearmanr

    predicted = np.empty_like(values)
    kernel = _fitted(points, values).kernel_
    for train, test in KFold(5, shuffle=True, random_state=0).split(points):
        model = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True)
        predicted[test] = model.fit(points[train], values[train]).predict(points[test])
    names = np.array([str(group) for group in groups])
    within = [spearmanr(predicted[names == n], values[names == n]).statistic for n in sorted(set(names))]
    return float(np.mean(within))
