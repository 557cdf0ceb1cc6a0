"""The Optuna study: the truth about a sweep. What has begun and ended is in it, so what is left to do survives any crash."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from distilbench.codes import CompetitionKey, competition_key
from distilbench.errors import InputError
from distilbench.records import Rung, result_rung
from distilbench.storage.files import fingerprint
from distilbench.storage.retry import reason_of

STUDY = "study.db"
"""In a run's folder."""
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
PARAMS = "params"
"""User attribute of a trial: all its hyper-parameters, those that are not searched included."""
STEPS = "steps"
"""User attribute: the optimiser steps that it was trained, also those after a rung at which it was stopped afterwards."""
LAST = "last"
"""User attribute of a trial that has come to its end: its last rung, at which it is not judged."""
MACHINE = "machine"
"""User attribute of a trial: the device and CPUs of the machine that it came to its end on, where a worker has told them."""
NO_METRICS = ("step", "objective", "collapsed", "eligible")
"""Keys of a stored rung that are no metrics."""

SAME = 1.0
"""Points by which two nested trainings may differ at a width for the one that is better over all widths to be taken there
too: one student that serves all widths is one model to deploy, and one to confirm. Seeds of a training differ by 0.3."""


def open_study(storage: str | BaseStorage, name: str, directions: Sequence[str] = ("maximize",)) -> optuna.Study:
    """Create the study, or load the one that is there. Nothing is drawn by it: suggestions come with all their values."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    opened = _opened(storage)
    return optuna.create_study(
        study_name=next(iter(optuna.get_all_study_names(opened)), name),
        storage=opened,
        directions=list(directions),
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


def study_url(run: Path) -> str:
    """The SQLAlchemy URL of the study in a run's folder, an SQLite file."""
    return f"sqlite:///{run.resolve() / STUDY}".replace("{", "{{").replace("}", "}}")  # Optuna fills in braces


def load_study(run: Path) -> optuna.Study:
    """The study of a sweep's folder."""
    opened = _opened(study_url(run)) if (run / STUDY).exists() else None
    names = optuna.get_all_study_names(opened) if opened else []
    if not names:
        raise InputError(f"{run}: no study in a {STUDY} of it; expected the folder of a sweep")
    return optuna.load_study(study_name=names[0], storage=opened)


def _opened(storage: str | BaseStorage) -> BaseStorage:
    try:
        return optuna.storages.get_storage(storage)
    except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        raise InputError(f"{storage}: {reason_of(error)}; expected the study of a sweep") from None


def begin_trial(
    study: optuna.Study,
    number: int,
    params: Mapping[str, Any],
    drawn: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
) -> optuna.Trial:
    """Add the RUNNING trial `number` with these values in one transaction, unless an earlier attempt has added it.

    `params` are `drawn` and those that are not searched.
    """
    if len(study.get_trials(deepcopy=False)) <= number:
        study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING,
                params=dict(drawn),
                distributions=dict(distributions),
                user_attrs={PARAMS: dict(params)},
            )
        )
    return optuna.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)


def trial_params(trial: FrozenTrial) -> dict[str, Any]:
    """All hyper-parameters of a trial."""
    return dict(trial.user_attrs[PARAMS])


def trial_dimension(trial: FrozenTrial) -> int:
    """The output dimension of a trial."""
    return int(trial.user_attrs[PARAMS]["output_dim"])


def trial_group(trial: FrozenTrial) -> CompetitionKey:
    """The group that a trial competes in (`codes.competition_key`)."""
    return competition_key(trial_params(trial))


def rung_key(rung: int) -> str:
    """The user attribute in which a trial's rung is kept: step, objective, metrics."""
    return f"rung-{rung}"


def trial_rungs(trial: FrozenTrial) -> dict[int, dict[str, Any]]:
    """The reports of a trial, by rung."""
    names = [name for name in trial.user_attrs if name.startswith("rung-")]
    return dict(sorted((int(name.removeprefix("rung-")), trial.user_attrs[name]) for name in names))


def judged_rungs(trial: FrozenTrial) -> dict[int, float]:
    """The objectives by which a trial is judged: at each rung after its start at which it had not collapsed."""
    rungs = {rung: values for rung, values in trial_rungs(trial).items() if rung and not values.get("collapsed")}
    return {rung: math.nan if values["objective"] is None else values["objective"] for rung, values in rungs.items()}


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """COMPLETE, PRUNED and FAIL trials by number."""
    return study.get_trials(deepcopy=False, states=FINISHED)


def as_rung(number: int, stored_rung: Mapping[str, Any]) -> Rung:
    """A rung as the study keeps it."""
    metrics = {name: value for name, value in stored_rung.items() if name not in NO_METRICS}
    return Rung(
        rung=number,
        step=stored_rung["step"],
        objective=stored_rung["objective"],
        metrics=metrics,
        eligible=None if stored_rung.get("collapsed") else stored_rung.get("eligible"),
    )


def result_of(trial: FrozenTrial) -> Rung | None:
    """The rung whose student is the trial's result; None where it has reported none."""
    return result_rung([as_rung(number, stored_rung) for number, stored_rung in trial_rungs(trial).items()])


def result_objective(trial: FrozenTrial) -> float:
    """The dev objective of a trial's result; NaN where it has none."""
    rung = result_of(trial)
    return math.nan if rung is None or rung.objective is None else rung.objective


def is_candidate(trial: FrozenTrial, waiting: bool = False) -> bool:
    """Whether a trial has a student to choose: it came to its end, or was stopped when its student had its final form.

    With `waiting` so can one that has not ended: it waits for its verdict.
    """
    if trial.state == TrialState.PRUNED or (waiting and trial.state == TrialState.RUNNING):
        rung = result_of(trial)
        return rung is not None and bool(rung.eligible) and rung.objective is not None
    return bool(trial.state == TrialState.COMPLETE)


def best_per_group(trials: Sequence[FrozenTrial], waiting: bool = False) -> dict[CompetitionKey, list[FrozenTrial]]:
    """The candidates of each group, the highest dev objective first; the earlier one of equals first.

    A trial of nested widths takes part at each of them; `waiting` as for `is_candidate`.
    """
    candidates: dict[CompetitionKey, list[tuple[float, int, FrozenTrial]]] = {}
    for trial in (t for t in trials if is_candidate(t, waiting)):
        rung = result_of(trial)
        for d in judged_widths(trial):
            objective = None if rung is None else rung.objective_at(d)
            value = math.nan if objective is None else objective
            group = competition_key(trial_params(trial), d)
            candidates.setdefault(group, []).append((-value, trial.number, trial))
    return {group: [member[2] for member in sorted(candidates[group])] for group in sorted(candidates)}


def distinct_settings(trials: Iterable[FrozenTrial]) -> Iterator[FrozenTrial]:
    """The trials in their order, of those with the same settings the first: they are one training, made twice."""
    seen = set[str]()
    for trial in trials:
        if (key := fingerprint(trial_params(trial))) not in seen:
            seen.add(key)
            yield trial


def nested_leader(ranked: Sequence[FrozenTrial], group: CompetitionKey) -> FrozenTrial:
    """The first of a group's ranked trials, or a nested one that is better over all widths and here within `SAME` of it."""
    first = ranked[0]
    nested = [t for t in ranked if len(judged_widths(t)) > 1]
    if first not in nested:
        return first
    overall = max(nested, key=result_objective)
    return overall if _objective_in(first, group) - _objective_in(overall, group) <= SAME else first


def _objective_in(trial: FrozenTrial, group: CompetitionKey) -> float:
    rung = result_of(trial)
    value = None if rung is None else rung.objective_at(width_in(trial, group))
    return -math.inf if value is None else value


def width_in(trial: FrozenTrial, group: CompetitionKey) -> int:
    """The width at which a trial takes part in a group of `best_per_group`."""
    return next(d for d in judged_widths(trial) if competition_key(trial_params(trial), d) == group)


def judged_widths(trial: FrozenTrial) -> list[int]:
    """The widths at which a trial is judged: its output dimension, or the nested ones."""
    rung = result_of(trial)
    return ([] if rung is None else rung.widths) or [trial_dimension(trial)]
