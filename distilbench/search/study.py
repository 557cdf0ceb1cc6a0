"""The Optuna study: the truth about a sweep. What has begun and ended is in it, so what is left to do survives any crash."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from distilbench.codes import CompetitionKey, competition_key
from distilbench.encoders.student import aliases
from distilbench.records import Rung, result_rung
from distilbench.search.grid import grid
from distilbench.search.space import SearchSpace
from distilbench.storage.files import fingerprint

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
    """Create the study, or load it when it is there. Nothing is drawn by it: suggestions come with all their values."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name=name,
        storage=storage,
        directions=list(directions),
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of an SQLite file."""
    return f"sqlite:///{path.resolve()}"


def first_settings(
    space: SearchSpace, trials: int, seed: int, user_settings: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The settings that the first trials are given; a grid is given as a whole.

    For every student that is searched and can have them, at every output dimension, the settings of the command
    (`user_settings`), then those of the space.
    """
    starts = [start for setting in (*user_settings, *space.enqueue) for start in _at_all(space, setting)]
    if space.searcher == "grid":
        starts += [point for point in grid(space, seed) if point not in starts]
    return starts[:trials]


def _at_all(space: SearchSpace, setting: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A setting for every student that is searched and can have it (where it names one also for the same start with fewer
    tokens), and at every output dimension that is searched, unless it names one."""
    settings = [dict(setting)]
    if "student" in space.parameters:
        asked = [student for student in space.students if setting.get("student", student) in aliases(student)]
        named = [{**setting, "student": student} for student in asked]
        settings = [
            one for one in named if one == setting or all(space.searched(n, one)[1].holds(v) for n, v in one.items())
        ]
    if "output_dim" not in space.parameters or "output_dim" in setting:
        return settings
    return [{"output_dim": d, **one} for one in settings for d in space.dimensions]


def starts_for(
    space: SearchSpace,
    trials: int,
    seed: int,
    user_settings: Sequence[dict[str, Any]] = (),
    *,
    share_dimensions: bool = True,
) -> list[dict[str, Any]]:
    """The values that every trial is given: first settings, then students and output dimensions, so that each has its share.

    Where trials compete within bytes, the settings of the command are followed by a trial of each number of bytes.
    With `share_dimensions` False (several objectives, of which the size is one) the sampler chooses the dimension.
    """
    starts = first_settings(space, sys.maxsize, seed, user_settings)
    students = space.students if "student" in space.parameters else []
    dimensions = space.dimensions if share_dimensions and "output_dim" in space.parameters else []
    if space.searcher == "grid" or not (students or dimensions):
        return starts[:trials]
    named: list[dict[str, Any]] = [{"student": student} for student in students] or [{}]
    sized: list[dict[str, Any]] = [{"output_dim": d} for d in dimensions] or [{}]
    if dimensions and (sizes := space.code_settings):
        given = sum(len(_at_all(space, setting)) for setting in user_settings)
        before, after = starts[:given], starts[given:]
        starts = [*before, *_each_size_first(space, sizes, after, named, before)]
    pairs = [{**student, **d} for d in sized for student in named]
    share = [sum(all(start[k] == v for k, v in pair.items()) for start in starts) for pair in pairs]
    while len(starts) < trials:
        fewest = share.index(min(share))
        starts.append(dict(pairs[fewest]))
        share[fewest] += 1
    return starts[:trials]


def _each_size_first(
    space: SearchSpace,
    sizes: Mapping[int, dict[str, Any]],
    starts: Sequence[dict[str, Any]],
    students: Sequence[dict[str, Any]],
    before: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """`starts`, those first that begin a number of bytes (of a student); with a start for each that none is sure to have.

    `before` are the starts before them.
    """
    begun = {(start.get("student"), space.bytes_of(start)) for start in before}
    first: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for start in starts:
        size = space.bytes_of(start)
        (rest if size is None or (start.get("student"), size) in begun else first).append(start)
        begun.add((start.get("student"), size))
    missing = [{**student, **code} for size, code in sizes.items() for student in students]
    missing = [start for start in missing if (start.get("student"), space.bytes_of(start)) not in begun]
    return [*first, *missing, *rest]


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


def best_per_group(
    trials: Sequence[FrozenTrial], top: int = 1, waiting: bool = False
) -> dict[CompetitionKey, list[FrozenTrial]]:
    """The `top` candidates with the highest dev objective of each group; the earlier one of equals first.

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
    ordered = sorted(candidates)
    return {group: [member[2] for member in sorted(candidates[group])[:top]] for group in ordered}


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
