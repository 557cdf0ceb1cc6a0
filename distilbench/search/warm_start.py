"""Warm starts: the results of an earlier search if they measured the same, else its best settings to try first."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from distilbench.errors import InputError
from distilbench.search.space import SearchSpace
from distilbench.search.study import best_per_group, finished_trials, trial_params, trial_rungs
from distilbench.search.study_storage import latest_study, study_file
from distilbench.storage.files import bound_config, config_differences, write_json

FILE = "warm_start.json"
SEARCH_KEYS = frozenset(
    {
        "parameters",
        "fixed",
        "searcher",
        "budget.stopping",
        "budget.patience",
        "enqueue",
        "warm_start",
        "trials",
        "confirm",
        "seed",
    }
)
"""Settings that leave the meaning of a trial's objective as it is."""
STUDENT = "student."
"""Begins the keys of a run's configuration that are students of its search space: each stands for itself alone."""


class WarmStart(NamedTuple):
    """`history`: finished trials as plain dictionaries, for the searcher; `settings`: to be tried first."""

    history: list[dict[str, Any]]
    settings: list[dict[str, Any]]


def save_warm_start(run: Path, warm_start: WarmStart) -> None:
    """Keep it in the run: what is suggested depends on it."""
    write_json(run / FILE, warm_start._asdict())


def saved_warm_start(run: Path) -> WarmStart:
    """The warm start that is kept in the run; an empty one where there is none."""
    file = run / FILE
    return WarmStart(**json.loads(file.read_text())) if file.exists() else WarmStart([], [])


def import_history(source: Path, config: Mapping[str, Any], space: SearchSpace) -> WarmStart:
    """Read from the run in `source` what a search with `config` over `space` can use.

    Its finished trials, where both measure the same (data, teacher, student, steps, objectives); else, since their values
    would mean something else, only the settings of the best trial of each output dimension, as far as the space has them.
    """
    bound = bound_config(source)
    if bound is None or "method" not in bound:
        raise InputError(f"--warm-start {source}: no sweep's config.json in it; expected the folder of a sweep")
    if bound["method"] != config["method"]:
        raise InputError(f"--warm-start {source}: a sweep of {bound['method']}; expected one of {config['method']}")
    trials = finished_trials(latest_study(source))
    differing = {key for key, _ in config_differences(bound, dict(config))} - SEARCH_KEYS
    differing = {key for key in differing if not key.startswith(STUDENT) or (key in bound and key in config)}
    if differing:
        best = [ranked[0] for ranked in best_per_group(trials).values()]
        return WarmStart([], [s for s in (params_within(trial_params(t), space) for t in best) if s])
    history = []
    for trial in trials:
        objectives = {
            str(rung): v["objective"] for rung, v in trial_rungs(trial).items() if rung and not v.get("collapsed")
        }
        params = params_within(trial_params(trial), space)
        history.append({"params": params, "state": trial.state.name, "values": trial.values, "rungs": objectives})
    return WarmStart(history, [])


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


def as_frozen(history: Sequence[dict[str, Any]], space: SearchSpace, objectives: int) -> list[FrozenTrial]:
    """Kept trials as Optuna's, for a sampler to learn from; their parameters as far as the space has them (now)."""
    frozen = []
    for kept in history:
        params, distributions = space.in_study(params_within(kept["params"], space))
        rungs = {int(rung): math.nan if value is None else value for rung, value in kept["rungs"].items()}
        frozen.append(
            optuna.trial.create_trial(
                state=TrialState[kept["state"]],
                values=kept["values"] if kept["state"] == "COMPLETE" else None,
                params=params,
                distributions=distributions,
                intermediate_values=rungs if objectives == 1 else {},
            )
        )
    return frozen


def is_begun(run: Path) -> bool:
    """Whether a run that is bound to settings has anything that depends on them."""
    return study_file(run) is not None or any(run.glob("before-*"))


def set_aside(run: Path) -> Path:
    """Move what is in the run to `before-N`, and return that folder.

    `config.json` is only copied: the caller replaces it. Killed at any moment, it can be repeated: the study (its file, or
    the one that says where it is) goes last, so a folder without one is half-filled, and a run without one is empty.
    """
    before = sorted(run.glob("before-*"), key=lambda path: int(path.name.removeprefix("before-")))
    study = study_file(run)
    begun = bool(before) and not (study_file(before[-1]) and study)
    aside = before[-1] if begun else run / f"before-{1 + len(before)}"
    aside.mkdir(exist_ok=True)
    if study is not None:
        stays = (run / "config.json", study, *before, aside)
        moved = [path for path in run.iterdir() if path not in stays]
        for path in moved:
            path.rename(aside / path.name)
        shutil.copyfile(run / "config.json", aside / "config.json")
        study.rename(aside / study.name)
    return aside
