"""Run the trials of a study on Ray Tune until none is left, or the time is over."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
from optuna.trial import FrozenTrial, TrialState

from distilbench.cluster.nodes import lost_nodes, waiting_told
from distilbench.cluster.provenance import provenance
from distilbench.cluster.resources import TrialResources, wait_for_idle
from distilbench.cluster.run_copy import active_copy, driver_files
from distilbench.errors import InputError
from distilbench.progress.tally import Tally
from distilbench.records import EncoderCost, TrialRecord, append_records, read_trials
from distilbench.search.search_plan import Search
from distilbench.search.study import (
    MACHINE,
    as_rung,
    best_per_group,
    distinct_settings,
    finished_trials,
    nested_leader,
    result_objective,
    trial_dimension,
    trial_params,
    trial_rungs,
)
from distilbench.search.trial import Supervisor, TrialTrainable, trial_folder
from distilbench.storage.files import remove_folder
from distilbench.storage.retry import require_exists, retry_io
from distilbench.trials.costs import cost_metrics

if TYPE_CHECKING:
    from ray.tune import Tuner

    from distilbench.search.searcher import StudySearcher

SETTINGS = {
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # Tune's snapshots of all trials: the study is the truth
    "TUNE_RESULT_BUFFER_LENGTH": "1",  # a buffered report would be judged late
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Tune's own only ends the search, and swallows Ctrl-C ever after
}


class _Recorder:
    """Writes the record of each finished trial, and tells the tally."""

    def __init__(self, run: Path, study: optuna.Study, search: Search, tally: Tally) -> None:
        self.run, self.study, self.search, self.tally = run, study, search, tally
        self.held: set[int] = set()
        """Trials that have finished here and whose checkpoints are kept, being the best of their group so far."""

        self.started, self.progressed, self.waiting = tally.started, tally.progressed, tally.waiting

    def finished(self, trial: FrozenTrial) -> None:
        record = trial_record(trial, self.search)

        def append() -> None:
            require_exists(self.run)
            append_records(self.run / "trials.jsonl", [record])

        retry_io(append)
        if trial.state == TrialState.FAIL:
            self._discard(trial.number)
        else:
            self._keep_the_best(trial)
        self.tally.finished(record)

    def _keep_the_best(self, trial: FrozenTrial) -> None:
        """Keep a trial's checkpoints only while it may be confirmed: no other trial of its group is better."""
        self.held.add(trial.number)
        top = self.search.space.budget.confirm.top
        kept: set[int] = set()
        for group, ranked in best_per_group(finished_trials(self.study)).items():
            first = itertools.islice(distinct_settings(ranked), top)
            kept |= {t.number for t in (*first, nested_leader(ranked, group))}
        for number in self.held - kept:
            self.held.discard(number)
            self._discard(number)

    def _discard(self, number: int) -> None:
        remove_folder(trial_folder(self.run, number))
        if copy := active_copy():
            copy.forget(trial_folder(self.run, number))


@dataclass(frozen=True)
class SearchPlace:
    """The folders, machines and time of a search."""

    run: Path
    prepared: Path
    resources: TrialResources
    deadline: Callable[[], float] = lambda: math.inf
    """Seconds since the epoch at which no trial is begun any more."""
    costs: Mapping[str, EncoderCost] = field(default_factory=dict)
    """Costs of the kinds of students, where they were measured."""


def run_trials(study: optuna.Study, search: Search, at: SearchPlace, tally: Tally | None = None) -> None:
    """Begin and finish trials until there are all, or the deadline has come.

    Each finished trial leaves a line in `trials.jsonl`; one that was interrupted is RUNNING in the study and keeps its
    checkpoints. Storage that is gone or full is an InputError; what is finished is kept.
    """
    # Workers are started together: one after the other they would take 10 s each.
    os.environ.update(SETTINGS, TUNE_MAX_PENDING_TRIALS_PG=str(at.resources.concurrency))
    from distilbench.search.searcher import StudySearcher

    run, resources = at.run, at.resources
    write_missing_records(run, study, search)
    tally = tally or Tally(run, search.space.method, search.wanted)
    recorder = _Recorder(run, study, search, tally)
    searcher = StudySearcher(study, search, resources.concurrency, recorder, at.deadline, lost_nodes)
    if not searcher.remaining or searcher.over:
        return
    wait_for_idle(resources)
    with waiting_told(resources.cpus, resources.gpus, "Trials"):
        _tuner(search, at, searcher).fit()
    if searcher.halted:
        raise InputError(f"{run}: the search stopped, {searcher.halted}")
    if not searcher.died:
        remove_folder(run / "tune")  # what is in it says nothing that the study does not


def _tuner(search: Search, at: SearchPlace, searcher: StudySearcher) -> Tuner:
    from ray import tune

    from distilbench.search.searcher import RungScheduler

    resources = at.resources
    return tune.Tuner(
        type(search.space.method.upper(), (TrialTrainable,), {}),  # Ray's dashboard shows the name
        param_space={
            "run": str(at.run.resolve()),
            "prepared": str(at.prepared.resolve()),
            "method": search.space.method,
            "seed": search.seed,
            "budget": search.space.budget.model_dump(),
            "cpus": resources.cpus,
            "gpus": resources.gpus,
            "deadline": at.deadline(),
            "costs": {kind: cost_metrics(cost) for kind, cost in at.costs.items()},
            "files": driver_files(),
        },
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=RungScheduler(searcher),
            num_samples=-1,  # until the searcher says that there is no more
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=time.strftime("%Y%m%d-%H%M%S"),
            storage_path=str((at.run / "tune").resolve()),
            failure_config=tune.FailureConfig(max_failures=0),  # the searcher hands such a trial out again
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[Supervisor(at.run, searcher.begun)],
            verbose=0,
        ),
    )


def discard_checkpoints(run: Path, keep: set[int]) -> None:
    """Delete the checkpoints of all trials but those numbered in `keep`."""
    kept_folders = {trial_folder(run, number) for number in keep}
    for folder in (run / "trials").glob("*"):
        if folder not in kept_folders:
            remove_folder(folder)
    if copy := active_copy():
        copy.keep_trainings(run, {folder.name for folder in kept_folders})


def write_missing_records(run: Path, study: optuna.Study, search: Search) -> None:
    """Append the record of every finished trial that has none (the driver was killed between telling and writing)."""
    recorded = {record.number for record in read_trials(run / "trials.jsonl")}
    missing = [t for t in finished_trials(study) if t.number not in recorded]
    append_records(run / "trials.jsonl", [trial_record(t, search) for t in missing])


def trial_record(trial: FrozenTrial, search: Search) -> TrialRecord:
    """The record of a finished trial, from the study alone."""
    rungs = [as_rung(number, metrics) for number, metrics in trial_rungs(trial).items()]
    several = trial.state == TrialState.COMPLETE and len(search.objectives) > 1
    objective = result_objective(trial)
    return TrialRecord(
        run=search.name,
        number=trial.number,
        state=trial.state.name,
        reason=trial.user_attrs.get("reason", ""),
        method=search.space.method,
        params=trial_params(trial),
        seed=search.seed,
        dim=trial_dimension(trial),
        objective=objective if math.isfinite(objective) else None,
        rungs=rungs,
        values=dict(zip(search.objectives, trial.values, strict=True)) if several else {},
        select=search.select,
        provenance=provenance(trial.user_attrs.get(MACHINE)),
    )
