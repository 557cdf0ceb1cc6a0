"""Ray tasks that finish a student: train what is left, save it, and embed what the evaluation will ask for.

A sweep gives its best trials, whose checkpoints are complete; a comparison gives configurations to train from the start.
Everything is left in the job's folder, so that a killed job goes on and a finished one is not repeated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distilbench.data.corpus import Corpus
from distilbench.encoder import default_device
from distilbench.evaluation.scoring import Candidate, Encoded, encode_method
from distilbench.prepare.prepared import load_prepared
from distilbench.records import Rung
from distilbench.search.cluster import TrialResources
from distilbench.search.space import Budget
from distilbench.search.trial import build_method, describe_error, dev_report
from distilbench.store import remove_folder, write_json
from distilbench.training.loop import Trainer

RUNGS = "rungs.json"
RETRIES = 3
"""Times that a job is continued after its worker died."""


@dataclass(frozen=True)
class Job:
    """A candidate to finish; `folder` keeps its checkpoints and vectors, `model` is where the student goes (in the run)."""

    candidate: Candidate
    budget: Budget
    run: Path
    folder: Path
    model: str


@dataclass(frozen=True)
class Outcome:
    """What a job came to: why it failed ("" when it did not), and the dev metrics of its rungs."""

    job: Job
    failed: str
    rungs: tuple[Rung, ...]


def finish(job: Job, prepared_folder: Path, corpus: Corpus, threads: int) -> Outcome:
    """Train to the end from the newest checkpoint, export, embed. An exception is returned as the reason of a failure."""
    import torch

    torch.set_num_threads(threads)
    try:
        failed = _finish(job, prepared_folder, corpus)
    except Exception as error:
        failed = describe_error(error)
    return Outcome(job, failed, tuple(_known_rungs(job)))


def _known_rungs(job: Job) -> list[Rung]:
    file = job.folder / RUNGS
    return [Rung.model_validate(r) for r in json.loads(file.read_text())] if file.exists() else []


def _finish(job: Job, prepared_folder: Path, corpus: Corpus) -> str:
    candidate, prepared = job.candidate, load_prepared(prepared_folder)
    method = build_method(candidate.method, candidate.params, prepared, candidate.seed, default_device())
    trainer = Trainer(method, candidate.seed, job.budget.steps)
    steps = job.budget.rung_steps(trainer.total_steps)
    done = trainer.resume(job.folder)
    # A killed job may have saved a rung and not reported it: its last one is judged again. A sweep has judged all of them.
    judged = max(0, done - 1) if candidate.trial is None else done
    for number, step in enumerate(steps[judged:], start=judged + 1):
        if number > done:
            loss = trainer.train_until(step)
            trainer.save(job.folder, number)
        else:
            loss = math.nan
        objective, found, collapsed = dev_report(method, prepared_folder, prepared)
        rungs = _known_rungs(job)
        if len(rungs) < number:
            metrics = {name: value if math.isfinite(value) else None for name, value in {**found, "loss": loss}.items()}
            rungs.append(Rung(rung=number, step=trainer.step, objective=objective, metrics=metrics))
            write_json(job.folder / RUNGS, [r.model_dump() for r in rungs])
        if collapsed:
            return collapsed
    method.eval()
    folder = job.run / job.model
    partial = folder.with_name(folder.name + ".partial")
    remove_folder(partial)
    partial.parent.mkdir(parents=True, exist_ok=True)
    encoded = encode_method(method, corpus, job.model)  # before the export, which moves the method to the CPU
    method.export(partial)
    remove_folder(folder)
    partial.rename(folder)
    encoded.save(job.folder)
    return ""


def finish_jobs(
    jobs: Sequence[Job],
    prepared: Path,
    corpus: Corpus,
    resources: TrialResources,
    on_outcome: Callable[[Outcome], None],
) -> None:
    """Finish every job that has no vectors yet, as many at a time as there are resources for; those that have come first."""
    open_jobs = []
    for job in jobs:
        if Encoded.load(job.folder) is None:
            open_jobs.append(job)
        else:
            on_outcome(Outcome(job, "", tuple(_known_rungs(job))))
    for outcome in _outcomes(open_jobs, prepared, corpus, resources) if open_jobs else ():
        on_outcome(outcome)


def _outcomes(jobs: Sequence[Job], prepared: Path, corpus: Corpus, resources: TrialResources) -> Iterator[Outcome]:
    import ray

    options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_retries": RETRIES}
    remote = ray.remote(**options)(finish)
    shared = ray.put(corpus)
    waiting = {remote.remote(job, prepared, shared, resources.cpus): job for job in jobs}
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        job = waiting.pop(ready)
        try:
            yield ray.get(ready)
        except ray.exceptions.RayError as error:
            yield Outcome(job, f"its worker died {RETRIES + 1} times ({type(error).__name__})", ())
