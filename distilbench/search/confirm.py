"""Confirmation: the best trials of each output dimension are trained again with other seeds, and only then scored on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from distilbench.codes import CompetitionKey
from distilbench.search.search_plan import Search
from distilbench.search.stopping import waits_at_rungs
from distilbench.search.study import (
    best_per_group,
    distinct_settings,
    is_candidate,
    nested_leader,
    result_objective,
    trial_dimension,
    trial_group,
    trial_params,
    trial_rungs,
)
from distilbench.search.trial import trial_folder
from distilbench.storage.files import write_json
from distilbench.trials.budget import Confirmation
from distilbench.trials.jobs import Job
from distilbench.trials.scoring import Candidate

CONFIRMED = "confirmed.json"
CONFIRMATIONS = "confirmations.jsonl"
"""Records of the trainings with other seeds."""


def chosen_trials(
    trials: Sequence[FrozenTrial], groups: Sequence[CompetitionKey], top: int, waiting: bool = False
) -> dict[CompetitionKey, list[FrozenTrial]]:
    """The `top` trials of each group (`best_per_group`) by dev objective; where none has a student, the best
    that was interrupted.

    A trial that was stopped takes part with its best rung, and is trained to its end when it is confirmed; with `waiting` so
    does one that waited for its verdict when the time was over.
    Of trials with the same settings only the first: they are one training, made twice. Of nested trainings the one with
    the highest objective over all its widths is taken wherever none is better by more than `SAME`.
    """
    best = {}
    for group, candidates in best_per_group(trials, waiting).items():
        ranked = list(distinct_settings(candidates))
        first = nested_leader(ranked, group)
        best[group] = [first, *(t for t in ranked if t is not first)][:top]
    for group in groups:
        if group not in best:
            begun = [t for t in trials if t.state == TrialState.RUNNING and trial_group(t) == group and trial_rungs(t)]
            if begun:
                best[group] = [max(begun, key=result_objective)]
    return {group: best[group] for group in sorted(best)}


def _is_trained_on(trial: FrozenTrial, search: Search) -> bool:
    """Whether a chosen trial was stopped, or waits: it is trained to its end when it is confirmed."""
    waited = waits_at_rungs(search.space.budget) and is_candidate(trial, waiting=True)
    return trial.state == TrialState.PRUNED or (trial.state == TrialState.RUNNING and waited)


def shown_as(trial: FrozenTrial, search: Search) -> str:
    """The name of a chosen trial's row; "" if it is trained to its end, so that its settings say everything."""
    if trial.state != TrialState.RUNNING or _is_trained_on(trial, search):
        return ""
    rungs = trial_rungs(trial)
    return f"trial {trial.number}, interrupted after step {rungs[max(rungs)]['step']}"


def confirmation_jobs(run: Path, search: Search, chosen: Mapping[CompetitionKey, Sequence[FrozenTrial]]) -> list[Job]:
    """The first seed of every trial (its own training in the search), then the second of every one, and so on."""
    confirm: Confirmation = search.space.budget.confirm
    jobs = []
    # One trial may be chosen at several widths.
    distinct = {trial.number: trial for trials in chosen.values() for trial in trials}
    for seed in range(search.seed, search.seed + confirm.seeds):
        for trial in distinct.values():
            d = trial_dimension(trial)
            trained_on = _is_trained_on(trial, search)
            first, interrupted = seed == search.seed, trial.state == TrialState.RUNNING and not trained_on
            if interrupted and not first:
                continue  # its settings have not been tried to the end
            # A stopped trial is trained to its end here, which has a record of its own.
            recorded = first and not trained_on
            folder = trial_folder(run, trial.number) if first else run / "confirm" / f"{trial.number:05d}-seed{seed}"
            candidate = Candidate(
                run=search.name,
                role="student",
                method=search.space.method,
                dim=d,
                params=trial_params(trial),
                seed=seed,
                trial=trial.number,
                configuration=shown_as(trial, search),
            )
            jobs.append(
                Job(
                    candidate,
                    search.space.budget,
                    run.resolve(),
                    folder.resolve(),
                    # The trial is in the name: a row keeps its student when another trial is chosen later.
                    f"students/{search.space.method}-d{d}-trial{trial.number}-seed{seed}"
                    + ("-interrupted" if interrupted else ""),
                    as_it_is=interrupted,
                    recorded_in="" if recorded else CONFIRMATIONS,
                    best=True,
                )
            )
    return jobs


def write_confirmed(run: Path, search: Search, chosen: Mapping[CompetitionKey, Sequence[FrozenTrial]]) -> None:
    """Write the chosen trials of each group (`best_per_group`): the leaderboard shows the students of these alone."""
    rows = {
        str(group): [{"trial": trial.number, "configuration": shown_as(trial, search)} for trial in trials]
        for group, trials in chosen.items()
    }
    write_json(run / CONFIRMED, rows)
