"""Run the trials of a study on Ray Tune until none is left."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from distilbench.provenance import provenance
from distilbench.records import Rung, TrialRecord, append_records, read_records
from distilbench.search.cluster import TrialResources, wait_for_idle
from distilbench.search.space import SearchSpace
from distilbench.search.study import finished_trials, trial_dimension, trial_params
from distilbench.search.trial import trial_folder
from distilbench.store import remove_folder

WORKER_RETRIES = 3
"""Times that a trial is continued after its worker died."""


def run_trials(
    run: Path,
    prepared: Path,
    study: optuna.Study,
    space: SearchSpace,
    seed: int,
    resources: TrialResources,
    console: Console,
) -> None:
    """Finish every queued and interrupted trial; each leaves a line in `trials.jsonl` and on the console."""
    from ray import tune

    from distilbench.search.searcher import RungScheduler, StudySearcher
    from distilbench.search.trial import trainable_for

    write_missing_records(run, study, space, seed)

    def on_finish(trial: FrozenTrial) -> None:
        append_records(run / "trials.jsonl", [trial_record(run.name, trial, space, seed)])
        if trial.state != TrialState.COMPLETE:
            remove_folder(trial_folder(run, trial.number))
        console.print(_line(trial, study, space))

    searcher = StudySearcher(study, space, resources.concurrency, on_finish)
    if not searcher.remaining:
        return
    wait_for_idle(resources)
    tuner = tune.Tuner(
        trainable_for(space.method),
        param_space={
            "run": str(run.resolve()),
            "prepared": str(prepared.resolve()),
            "method": space.method,
            "seed": seed,
            "budget": space.budget.model_dump(),
            "cpus": resources.cpus,
            "gpus": resources.gpus,
        },
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=RungScheduler(searcher),
            num_samples=searcher.remaining,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=time.strftime("%Y%m%d-%H%M%S"),
            storage_path=str((run / "tune").resolve()),
            failure_config=tune.FailureConfig(max_failures=WORKER_RETRIES),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            verbose=0,
        ),
    )
    tuner.fit()


def discard_checkpoints(run: Path, keep: set[int]) -> None:
    """Delete the checkpoints of all trials but those numbered in `keep`."""
    kept = {trial_folder(run, number) for number in keep}
    for folder in (run / "trials").glob("*"):
        if folder not in kept:
            remove_folder(folder)


def write_missing_records(run: Path, study: optuna.Study, space: SearchSpace, seed: int) -> None:
    """Append the record of every finished trial that has none (the driver was killed between telling and writing)."""
    known = {r.number for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord)}
    missing = [t for t in finished_trials(study) if t.number not in known]
    append_records(run / "trials.jsonl", [trial_record(run.name, t, space, seed) for t in missing])


def trial_record(run: str, trial: FrozenTrial, space: SearchSpace, seed: int) -> TrialRecord:
    """The record of a finished trial, from the study alone."""
    rungs = []
    for rung, value in sorted(trial.intermediate_values.items()):
        kept = dict(trial.user_attrs[f"rung-{rung}"])
        rungs.append(Rung(rung=rung, step=kept.pop("step"), objective=value, metrics=kept))
    return TrialRecord(
        run=run,
        number=trial.number,
        state=trial.state.name,
        reason=trial.user_attrs.get("reason", ""),
        method=space.method,
        params=trial_params(trial, space),
        seed=seed,
        dim=trial_dimension(trial, space),
        objective=rungs[-1].objective if rungs else None,
        rungs=rungs,
        provenance=provenance(),
    )


def _line(trial: FrozenTrial, study: optuna.Study, space: SearchSpace) -> str:
    done = len(finished_trials(study))
    total = len(study.get_trials(deepcopy=False))
    dim = trial_dimension(trial, space)
    if not trial.intermediate_values:
        return (
            f"[{done:>3}/{total}] trial {trial.number:<3} d={dim:<4} {trial.state.name:<8} {trial.user_attrs['reason']}"
        )
    last = max(trial.intermediate_values)
    kept = trial.user_attrs[f"rung-{last}"]
    return (
        f"[{done:>3}/{total}] trial {trial.number:<3} d={dim:<4} {trial.state.name:<8} after {kept['step']} steps: dev "
        f"{kept['dev_spearman']:.2f} ({trial.intermediate_values[last]:+.2f} to PCA)"
    ).replace("[", "\\[", 1)
