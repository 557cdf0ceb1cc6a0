"""The Optuna study: the truth about a sweep. What has begun and ended is in it, so what is left to do survives any crash."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from distilbench.records import Rung, result_rung
from distilbench.search.grid import grid
from distilbench.search.space import SearchSpace
from distilbench.stored import rival_group

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
"""What the study keeps of a rung beside its metrics."""
TAKEN = "taken"
"""User attribute of a study: of its first trials, how many are taken as they are, since another search suggested them."""

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
    """What is given to the first trials instead of drawn, {} where nothing is; a grid is given as a whole.

    For every output dimension the settings of the command (`user_settings`), then those of the space; then the published
    setting, at the dimensions where the budget can carry it (`SearchSpace.paper_dimensions`).
    """
    several = "output_dim" in space.parameters
    starts: list[dict[str, Any]] = []
    for setting in (*user_settings, *space.enqueue):
        per_dimension = several and "output_dim" not in setting
        starts += [{"output_dim": d, **setting} for d in space.dimensions] if per_dimension else [setting]
    for d in space.paper_dimensions:
        if paper := space.paper_setting(d):
            starts.append({"output_dim": d, **paper} if several else dict(paper))
    if space.searcher == "grid":
        starts += [point for point in grid(space, seed) if point not in starts]
    return starts[:trials]


def starts_for(
    space: SearchSpace,
    trials: int,
    seed: int,
    user_settings: Sequence[dict[str, Any]] = (),
    *,
    share_dimensions: bool = True,
) -> list[dict[str, Any]]:
    """The values that every trial is given: first settings, then the output dimensions, so that each has its share.

    With `share_dimensions` False (several objectives, of which the size is one) the sampler chooses the dimension.
    """
    starts = first_settings(space, trials, seed, user_settings)
    if space.searcher == "grid" or not share_dimensions or "output_dim" not in space.parameters:
        return starts
    share = Counter({d: 0 for d in space.dimensions})
    share.update(int(s["output_dim"]) for s in starts)
    while len(starts) < trials:
        fewest = min(share, key=lambda d: (share[d], d))
        starts.append({"output_dim": fewest})
        share[fewest] += 1
    return starts


def starts_after(starts: Sequence[dict[str, Any]], trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """`starts` for a search that goes on after `trials`: settings that none of them has had come next."""
    trial_settings = [trial_params(trial) for trial in trials]
    chosen = [s for s in starts if s.keys() - {"output_dim"}]
    new = [s for s in chosen if not any(all(k in p and p[k] == v for k, v in s.items()) for p in trial_settings)]
    rest = [{k: v for k, v in s.items() if k == "output_dim"} for s in starts[len(trial_settings) + len(new) :]]
    return [{} for _ in trial_settings] + new + rest


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


def trial_group(trial: FrozenTrial) -> int:
    """What a trial competes within (`stored.rival_group`)."""
    return rival_group(trial_params(trial))


def rung_key(rung: int) -> str:
    """The user attribute in which a trial's rung is kept: step, objective, metrics."""
    return f"rung-{rung}"


def trial_rungs(trial: FrozenTrial) -> dict[int, dict[str, Any]]:
    """What a trial has reported, by rung."""
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


def is_candidate(trial: FrozenTrial) -> bool:
    """Whether a trial has a student to choose: it came to its end, or was stopped when its student had its final form."""
    if trial.state == TrialState.PRUNED:
        rung = result_of(trial)
        return rung is not None and bool(rung.eligible) and rung.objective is not None
    return bool(trial.state == TrialState.COMPLETE)


def best_per_group(trials: Sequence[FrozenTrial], top: int = 1) -> dict[int, list[FrozenTrial]]:
    """The `top` candidates with the highest dev objective of each output dimension, or of each number of bytes where the
    parameters name a code (`stored.rival_group`); the earlier one of equals first.

    A trial of nested widths takes part at each of them.
    """
    candidates: dict[int, list[tuple[float, int, FrozenTrial]]] = {}
    for trial in filter(is_candidate, trials):
        rung = result_of(trial)
        for d in judged_widths(trial):
            objective = None if rung is None else rung.objective_at(d)
            value = math.nan if objective is None else objective
            group = rival_group(trial_params(trial), d)
            candidates.setdefault(group, []).append((-value, trial.number, trial))
    return {group: [member[2] for member in sorted(members)[:top]] for group, members in sorted(candidates.items())}


def nested_leader(ranked: Sequence[FrozenTrial], group: int) -> FrozenTrial:
    """The first of a group's ranked trials, or a nested one that is better over all widths and here within `SAME` of it."""
    first = ranked[0]
    nested = [t for t in ranked if len(judged_widths(t)) > 1]
    if first not in nested:
        return first
    overall = max(nested, key=result_objective)
    return overall if _objective_in(first, group) - _objective_in(overall, group) <= SAME else first


def _objective_in(trial: FrozenTrial, group: int) -> float:
    rung = result_of(trial)
    value = None if rung is None else rung.objective_at(width_in(trial, group))
    return -math.inf if value is None else value


def width_in(trial: FrozenTrial, group: int) -> int:
    """The width at which a trial takes part in a group of `best_per_group`."""
    return next(d for d in judged_widths(trial) if rival_group(trial_params(trial), d) == group)


def judged_widths(trial: FrozenTrial) -> list[int]:
    """The widths at which a trial is judged: its output dimension, or the nested ones."""
    rung = result_of(trial)
    nested = [] if rung is None else [name for name in rung.metrics if re.fullmatch(r"dev_(spearman|score)_\d+", name)]
    return [int(name.rpartition("_")[2]) for name in nested] or [trial_dimension(trial)]
