"""What a search takes over from an earlier one: its results where they mean the same, else its best settings to try first."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from distilbench.errors import InputError
from distilbench.search.space import SearchSpace
from distilbench.search.study import TAKEN, best_per_group, finished_trials, open_study, trial_params, trial_rungs
from distilbench.search.study_place import StudyPlace, known_place, study_file
from distilbench.storage.files import bound_config, config_differences, write_json
from distilbench.storage.patience import patiently

FILE = "earlier.json"
SEARCH_KEYS = frozenset(
    {
        "parameters",
        "fixed",
        "searcher",
        "budget.stopping",
        "budget.patience",
        "lag",
        "enqueue",
        "paper_steps",
        "earlier",
        "trials",
        "confirm",
        "transfer",
        "enough",
        "asked_steps",
        "seed",
    }
)
"""Settings that leave the meaning of a trial's objective as it is."""


class Earlier(NamedTuple):
    """`history`: finished trials as plain dictionaries, for the searcher; `settings`: to be tried first."""

    history: list[dict[str, Any]]
    settings: list[dict[str, Any]]


def latest_study(run: Path) -> optuna.Study:
    """The study of a run's folder.

    Raises:
        InputError: there is none.
    """
    return _place(run).latest()


def _place(run: Path) -> StudyPlace:
    place = known_place(run)
    if place is None:
        raise InputError(f"{run}: no study.db or study.json in it; expected the folder of a sweep")
    return place


def is_begun(run: Path) -> bool:
    """Whether a run that is bound to settings has anything that depends on them."""
    return study_file(run) is not None or any(run.glob("before-*"))


def keep_earlier(run: Path, earlier: Earlier) -> None:
    """Keep it in the run: what is suggested depends on it."""
    write_json(run / FILE, earlier._asdict())


def kept_earlier(run: Path) -> Earlier:
    """What `keep_earlier` has kept; nothing where it has not."""
    return Earlier(**json.loads((run / FILE).read_text())) if (run / FILE).exists() else Earlier([], [])


def take_over(source: Path, config: dict[str, Any], space: SearchSpace) -> Earlier:
    """What a search with `config` over `space` can take over from the run in `source`.

    Its finished trials, where both measure the same (data, teacher, student, steps, objectives); else, since their values
    would mean something else, only the settings of the best trial of each output dimension, as far as the space has them.

    Raises:
        InputError: `source` is no sweep, or of another method.
    """
    bound = bound_config(source)
    if bound is None or "method" not in bound:
        raise InputError(f"--warm-start {source}: no sweep's config.json in it; expected the folder of a sweep")
    if bound["method"] != config["method"]:
        raise InputError(f"--warm-start {source}: a sweep of {bound['method']}; expected one of {config['method']}")
    trials = finished_trials(latest_study(source))
    differing = {key for key, _ in config_differences(bound, config)} - SEARCH_KEYS
    if differing:
        best = [ranked[0] for ranked in best_per_group(trials).values()]
        return Earlier([], [s for s in (params_within(trial_params(t), space) for t in best) if s])
    history = []
    for trial in trials:
        objectives = {
            str(rung): v["objective"] for rung, v in trial_rungs(trial).items() if rung and not v.get("collapsed")
        }
        params = params_within(trial_params(trial), space)
        history.append({"params": params, "state": trial.state.name, "values": trial.values, "rungs": objectives})
    return Earlier(history, [])


def params_within(params: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    """Those of a trial's parameters that the space searches and can have with these values."""
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
    for earlier in history:
        params, distributions = space.in_study(params_within(earlier["params"], space))
        rungs = {int(rung): math.nan if value is None else value for rung, value in earlier["rungs"].items()}
        frozen.append(
            optuna.trial.create_trial(
                state=TrialState[earlier["state"]],
                values=earlier["values"] if earlier["state"] == "COMPLETE" else None,
                params=params,
                distributions=distributions,
                intermediate_values=rungs if objectives == 1 else {},
            )
        )
    return frozen


def carry_over(run: Path, space: SearchSpace, directions: Sequence[str]) -> None:
    """After a change of the space: a new study in the run, with every trial of the one before it under its number.

    A parameter that the new space does not have, or not with that value, is left out of the searcher's view of a trial.
    Killed at any moment, it can be repeated.
    """
    place = _place(run)
    before, storage = place.latest(), place.storage()
    begun, studies = before.get_trials(deepcopy=False), place.studies(storage)
    for name, is_whole in studies:
        if not is_whole:
            patiently(partial(_delete, name, storage), place.limit_s, what=place.what)
    generation = sum(is_whole for _, is_whole in studies)
    after = patiently(lambda: open_study(storage, place.later(generation), directions), place.limit_s, what=place.what)
    for name, value in before.user_attrs.items():
        if name != TAKEN:
            after.set_user_attr(name, value)
    for trial in begun:
        params, distributions = space.in_study(params_within(trial_params(trial), space))
        after.add_trial(
            optuna.trial.create_trial(
                state=trial.state,
                values=trial.values,
                params=params,
                distributions=distributions,
                user_attrs=trial.user_attrs,
                intermediate_values=trial.intermediate_values,
            )
        )
    after.set_user_attr(TAKEN, len(begun))


def _delete(name: str, storage: RDBStorage) -> None:
    with contextlib.suppress(KeyError):  # done, but its answer was lost
        optuna.delete_study(study_name=name, storage=storage)


def set_aside(run: Path, space: SearchSpace) -> Path:
    """After a change of data or metric: what is in the run goes to `before-N`, its best settings are tried first.

    Returns the folder that it went to. `config.json` is only copied: the caller replaces it. Killed at any moment, it can
    be repeated: the study (its file, or the one that says where it is) goes last, so a folder without one is half-filled, and
    a run without one is empty.
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
    settings = []
    for ranked in best_per_group(finished_trials(latest_study(aside))).values():
        settings.append(params_within(trial_params(ranked[0]), space))
    keep_earlier(run, Earlier([], [s for s in settings if s]))
    return aside
