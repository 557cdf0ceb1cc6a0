"""Ray tasks that finish a student: train what is left, save it, and embed what the evaluation will ask for.

A sweep gives its best trials, whose checkpoints are complete; a comparison gives configurations to train from the start.
Everything is left in the job's folder, so that a killed job goes on and a finished one is not repeated.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distilbench.cluster.nodes import waiting_told
from distilbench.cluster.path_map import PathMap
from distilbench.cluster.provenance import machine
from distilbench.cluster.resources import TrialResources
from distilbench.cluster.run_copy import active_map
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

RETRIES = 3
"""Times that a job is continued after its worker died."""
LOST_NODES = 20
"""Times that it is handed out again where the nodes of all these workers were lost."""


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

    def spec(self, prepared: Path, hang_s: float = 0.0) -> TrainingSpec:
        """The training that the student comes from."""
        candidate, log = self.candidate, self.run / "logs" / f"{self.folder.name}-hang.txt"
        trained = (candidate.method, candidate.params, candidate.seed, self.budget)
        return TrainingSpec(*trained, prepared, self.folder, log, hang_s)


@dataclass(frozen=True)
class Outcome:
    """The end of a job: why it failed ("" if it did not), and the dev metrics of its rungs."""

    job: Job
    failed: str
    rungs: tuple[Rung, ...]
    machine: dict[str, Any] | None = None
    """Its worker's machine, for its record; None where it is not known."""


def finish(
    job: Job, prepared_folder: Path, corpus: Corpus, resources: TrialResources, path_map: PathMap | None = None
) -> Outcome:
    """Train to the end from the newest checkpoint, export, embed. An exception is returned as the reason of a failure.

    With a `path_map`, the job's folders are the driver's; what is made goes to the storage.
    """
    import torch

    torch.set_num_threads(resources.cpus)
    limit_gpu_memory(resources.gpus)
    given, spec = job, job.spec(prepared_folder, resources.hang_s).localised(path_map)
    if path_map is not None:
        job = replace(job, run=path_map.in_run(job.run), folder=spec.folder)
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
                if spec.copy is not None and path_map is not None:
                    path_map.remote_of(given.run / job.model).put_all(files_in(job.run / job.model))
                    spec.copy.keep()
    except StorageGone:
        raise
    except Exception as error:
        failed = describe_error(error)
    rungs = retry_io(lambda: _with_memory(known_rungs(job.folder)))
    if path_map is not None and not path_map.here:
        remove_folder(job.run / job.model)
        remove_folder(job.folder)
    return Outcome(given, failed, rungs, machine())


def _with_memory(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """The rungs; peak memory of export and embedding is added to the last."""
    return tuple(
        rung.model_copy(update={"metrics": {**rung.metrics, **peaks()}}) if rung is rungs[-1] else rung
        for rung in rungs
    )


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
        return _finish_open(open_jobs, prepared, corpus, resources, on_outcome, deadline)


def _finish_open(
    open_jobs: Sequence[Job],
    prepared: Path,
    corpus: Corpus,
    resources: TrialResources,
    on_outcome: Callable[[Outcome], None],
    deadline: float,
) -> list[Job]:
    import ray

    options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_retries": RETRIES}
    remote = ray.remote(**options)(finish)
    shared = ray.put(corpus)
    # In the order given, so that a deadline cuts off the last ones; Ray alone may start queued tasks in another one.
    queue = list(open_jobs)
    waiting: dict[Any, Job] = {}
    lost = Counter[Path]()
    while queue or waiting:
        while queue and len(waiting) < resources.concurrency and time.time() < deadline:
            job = queue.pop(0)
            waiting[remote.remote(job, prepared, shared, resources, active_map())] = job
        left = deadline - time.time()
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=max(0.0, min(left, 3600.0))) if waiting else ([], [])
        for reference in ready:
            job = waiting.pop(reference)
            try:
                outcome = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                _cancel(waiting)
                if isinstance(error.cause, StorageGone):
                    raise StorageGone(str(error.cause)) from None
                raise
            except ray.exceptions.RayError as error:
                lost[job.folder] += 1
                if isinstance(error, ray.exceptions.NodeDiedError) and lost[job.folder] <= LOST_NODES:
                    queue.insert(0, job)
                    continue
                reason = f"its worker died {RETRIES + 1} times ({type(error).__name__})"
                outcome = Outcome(job, reason, tuple(known_rungs(job.folder)))
            _collect(job)
            on_outcome(outcome)
        if time.time() >= deadline:
            _cancel(waiting)
            return [*waiting.values(), *queue]
    return []


def _collect(job: Job) -> None:
    """Fetch what a worker on another node has made of it from the storage."""
    path_map = active_map()
    if path_map is not None and Encoded.load(job.folder) is None:
        model = job.run / job.model
        job.spec(job.folder).copy_by(path_map).collect(model, path_map.remote_of(model))


def _cancel(tasks: Iterable[Any]) -> None:
    import ray

    for reference in tasks:
        ray.cancel(reference, force=True)
