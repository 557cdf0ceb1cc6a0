"""Ray tasks that finish a student: train what is left, save it, and embed what the evaluation will ask for.

A sweep gives its best trials, whose checkpoints are complete; a comparison gives configurations to train from the start.
Everything is left in the job's folder, so that a killed job goes on and a finished one is not repeated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilbench.cluster.driver_files import DriverFiles
from distilbench.cluster.nodes import RETRIES, waiting_told
from distilbench.cluster.provenance import machine
from distilbench.cluster.resources import TrialResources
from distilbench.cluster.run_copy import driver_files
from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import default_device
from distilbench.heartbeat import beat
from distilbench.machine import limit_gpu_memory, peaks
from distilbench.methods.method import Method
from distilbench.records import Rung
from distilbench.storage.files import remove_folder
from distilbench.storage.remote import files_in
from distilbench.storage.retry import StorageGone, require_exists, retry_io
from distilbench.trials.budget import Budget
from distilbench.trials.rung_training import RungTraining, describe_error, known_rungs
from distilbench.trials.scoring import Candidate, Encoded, encode_method
from distilbench.trials.training_spec import TrainingSpec


@dataclass(frozen=True)
class Job:
    """A candidate to finish; `folder` keeps its checkpoints and vectors, `model` is where the student goes (in the run)."""

    candidate: Candidate
    budget: Budget
    run: Path
    folder: Path
    model: str
    as_it_is: bool = False
    """Whether the student is taken from its newest checkpoint without further training."""
    recorded_in: str = ""
    """The file of the run in which its training is recorded; "" where it was, as a trial of a search."""
    best: bool = False
    """Whether the student is taken from its best rung by dev, as a search does, or from its last."""

    def spec(self, prepared: Path) -> TrainingSpec:
        """The training that the student comes from."""
        candidate, log = self.candidate, self.run / "logs" / f"{self.folder.name}-hang.txt"
        trained = (candidate.method, candidate.params, candidate.seed, self.budget)
        return TrainingSpec(*trained, prepared, self.folder, log)


@dataclass(frozen=True)
class Outcome:
    """The end of a job: why it failed ("" if it did not), and the dev metrics of its rungs."""

    job: Job
    failed: str
    rungs: tuple[Rung, ...]
    machine: dict[str, Any] | None = None
    """Its worker's machine, for its record; None where it is not known."""


def finish(
    job: Job, prepared_folder: Path, corpus: Corpus, resources: TrialResources, files: DriverFiles | None = None
) -> Outcome:
    """Train to the end from the newest checkpoint, export, embed. An exception is returned as the reason of a failure.

    With `files`, what is made goes to the storage.
    """
    import torch

    torch.set_num_threads(resources.cpus)
    limit_gpu_memory(resources.gpus)
    spec = job.spec(prepared_folder).on_node(files)
    try:
        training = RungTraining(spec, default_device())
        while not training.done and not job.as_it_is:
            training.advance()
        failed = training.failed
        if not failed:
            with training.watchdog:
                if job.best:
                    training.take_best()
                _export(job, training.method, corpus, spec.prepared)
                if spec.copy is not None and files is not None:
                    files.remote_of(job.run / job.model).put_all(files_in(job.run / job.model))
                    spec.copy.push()
    except StorageGone:
        raise
    except Exception as error:
        failed = describe_error(error)
    rungs = retry_io(lambda: known_rungs(job.folder))
    if rungs:  # the memory of export and embedding is the last one's
        rungs[-1] = rungs[-1].model_copy(update={"metrics": {**rungs[-1].metrics, **peaks()}})
    if files is not None and not files.here:
        remove_folder(job.run / job.model)
        remove_folder(job.folder)
    return Outcome(job, failed, tuple(rungs), machine())


def _export(job: Job, method: Method, corpus: Corpus, prepared: Path) -> None:
    method.eval()
    folder = job.run / job.model
    partial = folder.with_name(folder.name + ".partial")
    # Before the export, which moves the method to the CPU.
    encoded = retry_io(lambda: encode_method(method, corpus, job.model))

    def write() -> None:
        require_exists(prepared)
        remove_folder(partial)
        partial.parent.mkdir(parents=True, exist_ok=True)
        method.export(partial)
        beat()
        remove_folder(folder)
        partial.rename(folder)
        encoded.save(job.folder)

    retry_io(write, what=folder)


def finish_jobs(
    jobs: Sequence[Job],
    prepared: Path,
    corpus: Corpus,
    resources: TrialResources,
    on_outcome: Callable[[Outcome], None],
    deadline: float = math.inf,
) -> list[Job]:
    """Finish every job that has no vectors of the evaluation rows yet, as many at a time as there are resources for; those
    that have come first.

    Returns the jobs that were not finished by `deadline` (seconds since the epoch): they were stopped, and go on from their
    checkpoints when they are asked for again.
    """
    import ray

    open_jobs = []
    for job in jobs:
        _collect(job)
        if Encoded.load(job.folder) is None:
            open_jobs.append(job)
        else:
            on_outcome(Outcome(job, "", tuple(known_rungs(job.folder))))
    if not open_jobs:
        return []
    with waiting_told(resources.cpus, resources.gpus, "Trainings"):
        return _finish_open(open_jobs, (prepared, ray.put(corpus), resources, driver_files()), on_outcome, deadline)


def _finish_open(
    queue: list[Job], given: tuple[Any, ...], on_outcome: Callable[[Outcome], None], deadline: float
) -> list[Job]:
    """Finish jobs on Ray's workers; `given` is what `finish` takes beside the job."""
    import ray

    resources: TrialResources = given[2]
    remote = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=RETRIES)(finish)
    running: dict[Any, Job] = {}
    try:
        while (queue or running) and time.time() < deadline:
            # In the order given, so that a deadline cuts off the last ones; Ray alone may start queued tasks in another one.
            while queue and len(running) < resources.concurrency:
                job = queue.pop(0)
                running[remote.remote(job, *given)] = job
            ready, _ = ray.wait(list(running), num_returns=1, timeout=max(0.0, min(deadline - time.time(), 3600.0)))
            for reference in ready:
                job = running.pop(reference)
                try:
                    outcome = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, StorageGone):
                        raise StorageGone(str(error.cause)) from None
                    raise
                except ray.exceptions.RayError as error:
                    reason = f"its worker died {RETRIES + 1} times ({type(error).__name__})"
                    outcome = Outcome(job, reason, tuple(known_rungs(job.folder)))
                _collect(job)
                on_outcome(outcome)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
    return [*running.values(), *queue]


def _collect(job: Job) -> None:
    """Fetch what a worker on another node has made of it from the storage."""
    files = driver_files()
    if files is not None and Encoded.load(job.folder) is None:
        model = job.run / job.model
        job.spec(job.folder).copy_by(files).collect(model, files.remote_of(model))
