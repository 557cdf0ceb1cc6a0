"""One training, from rung to rung: trained a slice of time at once, judged on dev at each rung, and continued from its
folder wherever it was interrupted.

The folder has the last two checkpoints and `rungs.json`. Both are written whole; a checkpoint comes before the rung's report.
"""

from __future__ import annotations

import gc
import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.records import Rung
from distilbench.search.budget import Budget
from distilbench.search.dev import dev_report
from distilbench.search.patience import StorageGone, patiently
from distilbench.search.watchdog import Watchdog
from distilbench.store import write_json
from distilbench.training.loop import Diverged, Trainer

RUNGS = "rungs.json"
KEEP_EVERY_S = 60.0
"""Between checkpoints within a rung: what a killed machine costs at most."""
HANGS = 2
"""Times that a training may hang before it fails."""


@dataclass(frozen=True)
class TrainingSpec:
    """What is trained, and where. `folder` and `prepared` are folders, `log` the file for the stacks of a hanging process."""

    method: str
    params: dict[str, Any]
    seed: int
    budget: Budget
    prepared: Path
    folder: Path
    log: Path
    hang_s: float = 0.0
    """Seconds without progress after which the process ends itself; 0 is no limit."""
    teacher_ms: float | None = None
    """The teacher's milliseconds per sentence, where the encoding latency is an objective."""


class RungTraining:
    """A training at a rung. `failed` says why it goes no further ("": nothing is wrong)."""

    def __init__(self, spec: TrainingSpec, device: str) -> None:
        self.spec, self.failed, self.speed = spec, "", 0.0
        self.rungs: list[Rung] = []
        self.watchdog = Watchdog(spec.log, spec.hang_s)
        if self.watchdog.hangs() >= HANGS:
            self.failed = f"no progress for {spec.hang_s:g} s, {HANGS} times; where it was stuck is in {spec.log.name}"
            return
        with self.watchdog:
            self.failed = self._guarded(lambda: self._load(device))

    def _load(self, device: str) -> str:
        spec = self.spec
        self.prepared = load_prepared(spec.prepared)
        self.method = build_method(spec.method, spec.params, self.prepared, spec.seed, device)
        self.trainer = Trainer(self.method, spec.seed, spec.budget.steps, spec.budget.data_shares)
        self.steps = spec.budget.rung_steps(self.trainer.total_steps)
        file = spec.folder / RUNGS
        kept = json.loads(file.read_text()) if file.exists() else {"rungs": [], "failed": ""}
        self.rungs = [Rung.model_validate(rung) for rung in kept["rungs"]]
        self._seconds = 0.0
        self.trainer.resume(spec.folder)
        self._kept_at, self._halved = time.monotonic(), False
        return str(kept["failed"])

    @property
    def done(self) -> bool:
        """Whether there is nothing left to train."""
        return bool(self.failed) or (
            len(self.rungs) == len(self.steps) and self.trainer.step >= self.trainer.total_steps
        )

    def advance(self, seconds: float = math.inf) -> None:
        """Train to the next rung and judge it there, or for `seconds` where that is less.

        Raises:
            StorageGone: the folder cannot be written; the training is not at fault, and goes on from it later.
        """
        if not self.done:
            with self.watchdog:
                self.failed = self._guarded(lambda: self._advance(seconds))
                if self.failed and self.rungs:
                    self._write()

    def _guarded(self, act: Callable[[], str]) -> str:
        """`act()`, whose exceptions become the reason of a failure: one would come again. Not so where storage failed."""
        try:
            return act()
        except (StorageGone, OSError) as error:
            if isinstance(error, OSError):
                raise StorageGone(describe_error(error)) from None
            raise
        except torch.OutOfMemoryError as error:
            if self._halve():
                return self._guarded(act)
            return f"out of memory on the device{self._tried()}: {str(error).splitlines()[0]:.200}"
        except Exception as error:
            return describe_error(error)

    def _halve(self) -> bool:
        """After the device ran out of memory: go on with half the micro-batch, once. The interrupted step is taken anew."""
        if getattr(self, "_halved", True) or not self.method.halve_micro_batches():
            return False
        self._halved = True
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return True

    def _tried(self) -> str:
        if getattr(self, "_halved", False):
            return ", also with half the micro-batch"
        return "; this method's batch cannot be read in parts, so batch_size has to be smaller"

    def _advance(self, seconds: float) -> str:
        began, at = time.monotonic(), self.trainer.step
        until, number = began + seconds, min(len(self.rungs) + 1, len(self.steps))
        step = min(self.steps[number - 1], self.trainer.total_steps)

        def pause() -> bool:
            self.watchdog.alive()
            now = time.monotonic()
            if now - self._kept_at > KEEP_EVERY_S:
                self._keep(len(self.rungs))
            return now > until

        self.trainer.train_until(step, pause)
        spent = time.monotonic() - began
        self.speed = (self.trainer.step - at) / spent if spent > 0 and self.trainer.step > at else self.speed
        self._seconds += spent
        if self.trainer.step < step:
            return ""
        if len(self.rungs) < number:
            self._keep(number)
            return self._judge(number)
        return ""

    def _keep(self, rung: int) -> None:
        patiently(lambda: self.trainer.save(self.spec.folder, rung))
        self._kept_at = time.monotonic()
        self.watchdog.alive()

    def keep(self) -> None:
        """Write a checkpoint of where it is now, unless a rung's is there."""
        if not self.failed and self.trainer.step > (self.rungs[-1].step if self.rungs else 0):
            self._keep(len(self.rungs))

    def _judge(self, number: int) -> str:
        began = time.monotonic()
        objective, found, reason = dev_report(self.method, self.spec.prepared, self.prepared)
        final = number == len(self.steps)
        if final and self.spec.teacher_ms is not None:
            from distilbench.evaluation.latency import encoding_latency

            found = {**found, "latency_ms": encoding_latency(self.method, self.prepared, self.spec.teacher_ms)}
        seconds = self._seconds + time.monotonic() - began
        metrics = {**found, "loss": self.trainer.take_loss(), "rung_seconds": seconds}
        if self._halved:
            metrics["micro_batches"] = 2.0
        shown = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        finite = objective if math.isfinite(objective) else None
        self._seconds = 0.0
        self.rungs.append(Rung(rung=number, step=self.trainer.step, objective=finite, metrics=shown))
        self.failed = reason or ("" if finite is not None else f"objective is {objective}")
        self._write()
        return self.failed

    def _write(self) -> None:
        content = {"rungs": [rung.model_dump() for rung in self.rungs], "failed": self.failed}
        patiently(lambda: write_json(self.spec.folder / RUNGS, content))


def known_rungs(folder: Path) -> list[Rung]:
    """The rungs that a training in `folder` has reported."""
    file = folder / RUNGS
    return [Rung.model_validate(rung) for rung in json.loads(file.read_text())["rungs"]] if file.exists() else []


def build_method(method_name: str, params: dict[str, Any], prepared: Prepared, seed: int, device: str) -> Method:
    """A method with freshly drawn parameters; the same for the same seed."""
    cls = get_method(method_name)
    torch.manual_seed(seed)
    return cls(cls.params_type.model_validate(params), prepared, device)


def describe_error(error: Exception) -> str:
    """Why a training failed: the message of an expected error, else also its type and place."""
    if isinstance(error, (Diverged, InputError)):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
