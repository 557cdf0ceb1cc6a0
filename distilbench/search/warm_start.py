"""Warm starts: the best settings of an earlier search are tried first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distilbench.errors import InputError
from distilbench.search.space import SearchSpace
from distilbench.search.study import best_per_group, finished_trials, trial_params
from distilbench.search.study_storage import latest_study
from distilbench.storage.files import bound_config

FILE = "warm_start.json"
"""In a run's folder: the settings that it was given, since what is suggested depends on them."""


def saved_settings(run: Path) -> list[dict[str, Any]]:
    """The settings of an earlier search that a run was given; [] where it was given none."""
    file = run / FILE
    return list(json.loads(file.read_text())) if file.exists() else []


def best_settings(source: Path, space: SearchSpace) -> list[dict[str, Any]]:
    """The settings of the best trial of each group of the run in `source`, as far as the space has them."""
    bound = bound_config(source)
    if bound is None or "method" not in bound:
        raise InputError(f"--warm-start {source}: no sweep's config.json in it; expected the folder of a sweep")
    if bound["method"] != space.method:
        raise InputError(f"--warm-start {source}: a sweep of {bound['method']}; expected one of {space.method}")
    best = best_per_group(finished_trials(latest_study(source)))
    return [s for ranked in best.values() if (s := params_within(trial_params(ranked[0]), space))]


def params_within(params: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    """The parameters of a trial that the space searches, with values that it allows."""
    fitting_values, drawn = {}, {**space.fixed, **space.defaults, **params}
    for name in space.parameters:
        if name in params and space.parameters[name].active(drawn):
            distribution = space.distribution(name, drawn)
            try:
                inside = distribution._contains(distribution.to_internal_repr(params[name]))
            except (ValueError, TypeError):
                inside = False
            if inside:
                fitting_values[name] = params[name]
    return fitting_values
