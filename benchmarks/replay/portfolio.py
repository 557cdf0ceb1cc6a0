"""Settings to try first, learnt from recorded trials: a portfolio, as in auto-sklearn 2.0 (Feurer et al. 2022).

One after the other the setting is added with which the best of all of them is highest, as a mean over the dimensions of all
tables. Values are those that each table's surrogate predicts, from the median setting (0) to the best one (1) of their group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict

from distilbench.codes import CompetitionKey
from distilbench.search.space import GIVEN
from replay.answers import Coordinates, Surrogate
from replay.tables import Table

FOLDS = 20


def portfolio(sources: Sequence[Surrogate], size: int) -> list[dict[str, Any]]:
    """The searched parameters, without dimension and student, of `size` settings of the tables, the best one first."""
    settings = _distinct([source.table for source in sources])
    value_SG = np.concatenate([_values(source, settings) for source in sources], axis=1)
    chosen: list[int] = []
    best_G = np.zeros(value_SG.shape[1])
    while len(chosen) < min(size, len(settings)):
        gain_S = np.maximum(value_SG, best_G).mean(axis=1)
        gain_S[chosen] = -np.inf
        chosen.append(int(np.argmax(gain_S)))
        best_G = np.maximum(best_G, value_SG[chosen[-1]])
    return [settings[i] for i in chosen]


def foreseen(table: Table) -> list[dict[str, Any]]:
    """The searched parameters of all settings, the best of every group first: a bound of what a model can do for a search.

    Best is what a random forest says that was fitted to the results of all settings but a twentieth, the setting's own. No
    search that begins with nothing knows as much.
    """
    finite = [s for s in table.settings if np.isfinite(s.value)]
    coordinates = Coordinates(table.space, finite)
    points = np.array([coordinates.point(s.params) for s in finite])
    forest = RandomForestRegressor(300, random_state=0)
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(forest, points, np.array([s.value for s in finite]), cv=folds)
    ranks: dict[CompetitionKey, int] = dict.fromkeys(table.groups, 0)
    order = list[tuple[int, int]]()
    for i in np.argsort(-predicted, kind="stable"):
        order.append((ranks[finite[i].group], int(i)))
        ranks[finite[i].group] += 1
    return [finite[i].searched for _, i in sorted(order, key=lambda rank_and_setting: rank_and_setting[0])]


def others(table: Table, tables: Sequence[Table]) -> list[Table]:
    """The tables of the same method and the same parameters that were recorded on other data."""
    return [
        other
        for other in tables
        if other.name != table.name
        and other.space.method == table.space.method
        and other.space.parameters.keys() == table.space.parameters.keys()
    ]


def _distinct(tables: Sequence[Table]) -> list[dict[str, Any]]:
    named = [{n: v for n, v in s.searched.items() if n not in GIVEN} for t in tables for s in t.settings]
    return list({repr(sorted(setting.items())): setting for setting in named}.values())


def _values(source: Surrogate, settings: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """The predicted value of each setting at each dimension (and student) of a table, 0 to 1."""
    table = source.table
    columns = [np.zeros(len(settings))]  # for a table whose settings are all alike
    heres = {tuple(sorted((n, s.params[n]) for n in GIVEN if n in s.params)) for s in table.settings}
    for here in sorted(heres):
        predicted = source.predicted(
            [{**table.space.fixed, **table.space.defaults, **setting, **dict(here)} for setting in settings]
        )
        value_S = np.array([p.value for p in predicted])
        for group in {p.group for p in predicted}:
            values = table.values(group)
            if len(values) < 2 or values[0] == (typical := float(np.median(values))):
                continue
            inside_S = np.array([p.group == group for p in predicted])
            columns.append(np.where(inside_S, np.clip((value_S - typical) / (values[0] - typical), 0, 1), 0.0))
    return np.stack(columns, axis=1)
