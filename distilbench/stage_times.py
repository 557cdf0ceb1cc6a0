"""Time and memory of each stage of a sweep: `timings.json` in the run's folder, which `plan` reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from distilbench.events import INTERRUPTED, Event
from distilbench.machine import GPU_PEAK, PEAK, peak_mb
from distilbench.storage.files import DiskFull, write_json
from distilbench.storage.retry import require_exists

TIMINGS = "timings.json"


class StageTiming(BaseModel):
    """A stage that was carried out, or the part of it that a driver did."""

    model_config = ConfigDict(frozen=True)

    stage: str
    """"start", "prepare", "costs", "teacher", "search", "confirm", "score", "references" or "report"; of a pool its label."""
    seconds: float
    count: int = 0
    """Sentences, rows, trials or trainings."""
    workers: int = 1
    device: str = "cpu"
    driver_mb: float = 0.0
    """The most memory that the driver has had resident until the stage ended, in MB; 0 where it was not noted."""
    worker_mb: float = 0.0
    """The peak memory in MB of the worker that had most: of a pool, or of the trainings that ended in the stage."""
    gpu_mb: float = 0.0
    """The same of the GPU's memory; 0 where none was used."""


_list = TypeAdapter(list[StageTiming])
_pools: list[StageTiming] = []


def note_pool(took: StageTiming) -> None:
    """Keep what a pool of workers took until the run that it was for takes it."""
    _pools.append(took)


def keep_start(run: Path, seconds: float) -> None:
    """Keep how long it took until the first stage. Pools that were noted before, of another run, are not this one's."""
    _pools.clear()
    keep(run, StageTiming(stage="start", seconds=seconds))


@contextlib.contextmanager
def timed_stage(run: Path, stage: str, count: int = 0) -> Iterator[None]:
    """Time a stage of `run`; it is written if it ends well."""
    began = time.monotonic()
    yield
    keep(run, StageTiming(stage=stage, seconds=time.monotonic() - began, count=count))


def keep(run: Path, *took: StageTiming) -> None:
    """Add what the run's pools took, and these, to its file. Where it cannot be written the sweep goes on without."""
    driver_mb = peak_mb()
    added = [*_pools, *(timing.model_copy(update={"driver_mb": driver_mb}) for timing in took)]
    _pools.clear()
    with contextlib.suppress(OSError, DiskFull):
        require_exists(run)
        write_json(run / TIMINGS, [timing.model_dump() for timing in (*read_timings(run), *added)])


def read_timings(run: Path) -> list[StageTiming]:
    """The stages of a run's file in the order of time; [] if there is none, or it is something else."""
    with contextlib.suppress(OSError, ValueError):
        return _list.validate_json((run / TIMINGS).read_bytes())
    return []


class StageTimes:
    """Writes how long search, confirmation and scoring took, with `workers` trials at once; a listener of the tally."""

    def __init__(self, run: Path, workers: int) -> None:
        self.run, self.took, self.began = run, StageTiming(stage="", seconds=0.0, workers=workers), time.monotonic()

    def __call__(self, event: Event) -> None:
        """Count what has ended, with its memory; write the stage that is over."""
        took = self.took
        if event.record:
            metrics = [rung.metrics for rung in event.record.rungs]
            worker_mb = max([took.worker_mb, *(m.get(PEAK) or 0.0 for m in metrics)])
            gpu_mb = max([took.gpu_mb, *(m.get(GPU_PEAK) or 0.0 for m in metrics)])
            took = took.model_copy(update={"count": took.count + 1, "worker_mb": worker_mb, "gpu_mb": gpu_mb})
            self.took = took
        if not event.stage:
            return
        now = time.monotonic()
        if took.stage and event.stage != INTERRUPTED:
            keep(self.run, took.model_copy(update={"seconds": now - self.began}))
        stage = "" if event.stage == "done" else event.stage
        self.took, self.began = StageTiming(stage=stage, seconds=0.0, workers=took.workers), now
