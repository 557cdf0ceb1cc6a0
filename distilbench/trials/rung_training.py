"""One training, from rung to rung: trained a slice of time at once, judged on dev at each rung, and continued from its
folder wherever it was interrupted.

The folder has the last two checkpoints and `rungs.json`. Both are written whole; a checkpoint comes before the rung's report.
After the device ran out of memory the training goes on from the last checkpoint with half the micro-batch, once. After any
other error of a GPU, which is lost to the process then, it goes on in another process, once.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from distilbench.errors import InputError
from distilbench.machine import peaks, release_memory
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.records import Rung, result_rung
from distilbench.storage.files import remove_folder, write_json
from distilbench.storage.retry import StorageGone, require_exists, retry_io
from distilbench.training.checkpoint import load_parameters, save_parameters
from distilbench.training.loop import Diverged, Trainer
from distilbench.trials.dev import dev_report
from distilbench.trials.training_spec import TrainingSpec
from distilbench.trials.watchdog import HANG_S, Watchdog

RUNGS = "rungs.json"
BEST = "best.safetensors"
"""The student's parameters at its best rung."""
KEEP_EVERY_S = 60.0
"""Between checkpoints within a rung: what a killed machine costs at most."""
DEVICE_ERRORS = 2
"""Processes that a training may end by an error of the GPU before it fails."""
HANGS = 2
"""Times that a training may hang before it fails."""


class RungTraining:
    """A training at a rung. `failed` says why it goes no further ("": nothing is wrong), `collapsed` whether the last rung
    itself is what is wrong.
    """

    def __init__(self, spec: TrainingSpec, device: str) -> None:
        self.spec, self.device, self.failed, self.speed = spec, device, "", 0.0
        self.collapsed = False
        self.rungs: list[Rung] = []
        self._seconds, self._kept_at, self._halved = 0.0, time.monotonic(), False
        self._device_errors: list[str] = []
        get_method(spec.method)  # its imports may take longer than a training may stand still
        self.watchdog = Watchdog(spec.log)
        if retry_io(self.watchdog.hangs) >= HANGS:
            self.rungs = retry_io(lambda: known_rungs(spec.folder))
            self.failed = f"no progress for {HANG_S:g} s, {HANGS} times; where it was stuck is in {spec.log.name}"
            return
        with self.watchdog:
            self.failed = self._guarded(self._load)

    @property
    def loaded(self) -> bool:
        """Whether there is a method in memory: not where it could not be made, nor after memory ran out for good."""
        return hasattr(self, "trainer")

    def _load(self) -> str:
        spec = self.spec
        require_exists(spec.prepared)  # without the run's folder it would begin from zero
        if spec.copy is not None:
            spec.copy.begin()
        file = spec.folder / RUNGS
        kept = json.loads(file.read_text()) if file.exists() else {"rungs": [], "failed": ""}
        self.rungs = [Rung.model_validate(rung) for rung in kept["rungs"]]
        result = result_rung(self.rungs)
        if result is not None and result.eligible and not (spec.folder / BEST).exists():
            remove_folder(spec.folder)  # what it was at its best is gone from outside: it is trained again
            kept, self.rungs = {"rungs": [], "failed": ""}, []
        self._halved = self._halved or bool(kept.get("halved"))
        self.collapsed = bool(kept.get("collapsed"))
        self._device_errors = list(kept.get("device_errors", []))
        if len(self._device_errors) >= DEVICE_ERRORS:
            return str(self._device_errors[-1])
        self.prepared = load_prepared(spec.prepared)
        self.method = build_method(spec.method, spec.params, self.prepared, spec.seed, self.device)
        if self._halved:
            self.method.halve_micro_batches()
        trainer = Trainer(self.method, spec.seed, spec.budget.steps_of(spec.params))
        self.steps = spec.budget.rung_steps(trainer.total_steps)
        trainer.resume(spec.folder)
        if trainer.step == self._reported:
            trainer.take_loss()  # the checkpoint was written before the rung, whose mean this is, was reported
        require_exists(spec.prepared)
        self.trainer = trainer
        self._kept_at = time.monotonic()
        return str(kept["failed"])

    @property
    def _reported(self) -> int:
        """The step of the last rung."""
        return self.rungs[-1].step if self.rungs else 0

    @property
    def _last(self) -> int:
        """The number of the last rung; 0 before the first."""
        return self.rungs[-1].rung if self.rungs else 0

    @property
    def done(self) -> bool:
        """Whether there is nothing left to train."""
        return bool(self.failed) or (self._last == len(self.steps) and self.trainer.step >= self.trainer.total_steps)

    def advance(self, seconds: float = math.inf) -> None:
        """Train to the next rung and judge it there, or for `seconds` where that is less."""
        if not self.done:
            with self.watchdog:
                self.failed = self._guarded(lambda: self._advance(seconds))
                if self.failed and self.rungs:
                    self._write()

    def _guarded(self, act: Callable[[], str]) -> str:
        """`act()`, whose exceptions become the reason of a failure: one would come again. Not so where storage failed."""
        while True:
            try:
                return retry_io(act)
            except StorageGone:
                raise
            except Exception as error:
                if not _out_of_memory(error):
                    if _device_lost(error):
                        self._leave(describe_error(error))
                    return describe_error(error)
                reason = " ".join(str(error).split())[:200]
            # Only here: the exception held what the failed step had in memory.
            tried = ", also with half the micro-batch" if self._halved else ""
            if self.loaded and not self._halved:
                self._halved = self.method.halve_micro_batches()
                if self._halved:
                    self._release()
                    self._write()
                    continue
                tried = "; this method's batch cannot be read in parts, so batch_size has to be smaller"
            self._release()
            return f"out of memory on the device{tried}: {reason}"

    def _leave(self, reason: str) -> NoReturn:
        """End this process, to which the GPU is lost: whatever it begins now fails alike. Another one goes on."""
        print(reason, file=sys.stderr, flush=True)  # noqa: T201
        self._device_errors.append(reason)
        with contextlib.suppress(Exception):  # unwritten, it is tried once more
            self._write()
        os._exit(1)

    def _release(self) -> None:
        """Give up all memory on the device; what was trained since the last checkpoint is trained again."""
        if self.loaded:
            del self.method, self.trainer
        release_memory()

    def _advance(self, seconds: float) -> str:
        if not self.loaded and (failed := self._load()):
            return failed
        began, at = time.monotonic(), self.trainer.step
        if self.spec.budget.start and not self.rungs and self.trainer.enter_start():
            self._judge(0)
        until, number = began + seconds, min(self._last + 1, len(self.steps))
        again = self.trainer.step < self._reported  # the newest checkpoint was damaged, so it is from the one before
        step = self._reported if again else min(self.steps[number - 1], self.trainer.total_steps)

        def pause() -> bool:
            self.watchdog.alive()
            now = time.monotonic()
            if now - self._kept_at > KEEP_EVERY_S:
                self._keep(self._last)
            return now > until

        self.trainer.train_until(step, pause)
        spent = time.monotonic() - began
        self.speed = (self.trainer.step - at) / spent if spent > 0 and self.trainer.step > at else self.speed
        self._seconds += spent
        if self.trainer.step < step:
            return ""
        if again:
            self._seconds = 0.0
            self.trainer.take_loss()
        elif self._last < number:
            self._keep(number)
            return self._judge(number)
        return ""

    def _keep(self, rung: int) -> None:
        self._stored(lambda: self.trainer.save(self.spec.folder, rung))
        self._kept_at = time.monotonic()
        self.watchdog.alive()

    def _stored(self, write: Callable[[], None]) -> None:
        def present() -> None:
            require_exists(self.spec.prepared)
            write()

        retry_io(present)
        if self.spec.copy is not None:
            self.spec.copy.push()

    def keep(self) -> None:
        """Write a checkpoint of where it is now, unless a rung's is there."""
        if not self.failed and self.trainer.step > self._reported:
            self._keep(self._last)

    def _judge(self, number: int) -> str:
        """Judge it at a rung; why it fails there (""). A start (rung 0) cannot fail: training may mend it."""
        began = time.monotonic()
        objective, found, reason = dev_report(self.method, self.spec.prepared, self.prepared)
        if number == len(self.steps):
            found = {**found, **self.spec.cost}
        seconds = self._seconds + time.monotonic() - began
        metrics = {**found, "loss": self.trainer.take_loss(), "rung_seconds": seconds, **peaks()}
        if self._halved:
            metrics["micro_batches"] = 2.0
        self.watchdog.alive()
        shown = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        finite = objective if math.isfinite(objective) else None
        self._seconds = 0.0
        failed = reason or ("" if finite is not None else f"objective is {objective}")
        if number:
            self.failed, self.collapsed = failed, bool(failed)
        eligible = self.trainer.in_last_phase and not failed
        rung = Rung(rung=number, step=self.trainer.step, objective=finite, metrics=shown, eligible=eligible)
        self.rungs.append(rung)
        if eligible and result_rung(self.rungs) is rung:
            self._stored(lambda: save_parameters(self.spec.folder / BEST, self.method))
        self._write()
        return self.failed

    def take_best(self) -> None:
        """Give the student the parameters that it had at its best rung; nothing where that is where it stands."""
        result = result_rung(self.rungs)
        if result is not None and result.eligible and result.step != self.trainer.step:
            load_parameters(self.spec.folder / BEST, self.method)

    def _write(self) -> None:
        rungs = [rung.model_dump() for rung in self.rungs]
        content = {"rungs": rungs, "failed": self.failed, "collapsed": self.collapsed, "halved": self._halved}
        content["device_errors"] = self._device_errors
        self._stored(lambda: write_json(self.spec.folder / RUNGS, content))


def known_rungs(folder: Path) -> list[Rung]:
    """The rungs that a training in `folder` has reported."""
    file = folder / RUNGS
    return [Rung.model_validate(rung) for rung in json.loads(file.read_text())["rungs"]] if file.exists() else []


def build_method(method_name: str, params: dict[str, Any], prepared: Prepared, seed: int, device: str) -> Method:
    """A method with freshly drawn parameters; the same for the same seed."""
    cls = get_method(method_name)
    torch.manual_seed(seed)
    return cls(cls.params_type.model_validate(params), prepared.of(params), device)


def _out_of_memory(error: Exception) -> bool:
    """Also where a library asked for the memory, or the device is the CPU: these have no exception of their own."""
    signs = ("out of memory", "_ALLOC_FAILED", "can't allocate memory")
    said = isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
    return said or isinstance(error, torch.OutOfMemoryError)


def _device_lost(error: Exception) -> bool:
    """Whether the GPU is lost to this process for good: a failed assertion or a bad address there, or a broken GPU."""
    return isinstance(error, torch.AcceleratorError) or (isinstance(error, RuntimeError) and "CUDA error" in str(error))


def describe_error(error: Exception) -> str:
    """The reason that a training failed: the message of an expected error, else also its type and place."""
    if isinstance(error, (Diverged, InputError)):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
