"""A trial in Tune: the trainable of any method, on workers that stay warm, and what ends a worker that is heard no more."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, PlacementGroupFactory

from distilbench.cluster.driver_files import DriverFiles
from distilbench.cluster.provenance import machine
from distilbench.machine import count_gpu_peak_anew, limit_gpu_memory, release_memory
from distilbench.methods import get_method
from distilbench.storage.files import remove_folder
from distilbench.storage.retry import LIMIT_S, StorageGone
from distilbench.trials.budget import Budget
from distilbench.trials.costs import kind_key
from distilbench.trials.rung_training import RungTraining
from distilbench.trials.training_spec import TrainingSpec
from distilbench.trials.watchdog import HANG_S, MARK

SLICE_S = 5.0
"""A trial reports at every rung, and at least this often."""
LOOK_S = 1.0
"""A longer time between two looks was the driver's own: it waited for storage, or its machine was suspended."""

SILENCE_S = LIMIT_S + 3 * HANG_S
"""Within this time a trial that is at work must have been heard of: it may wait for storage once, and hang twice."""
PAUSE_S = 1.0
"""After a worker that died before it began: Ray gives work to a dead node until it notices, within a minute."""


def trial_folder(run: Path, number: int) -> Path:
    """The folder of a trial's checkpoints."""
    return run / "trials" / f"{number:05d}"


def hang_log(run: Path, number: int) -> Path:
    """The file for the stacks of a trial's hanging process; it outlives the trial's folder."""
    return run / "logs" / f"{number:05d}-hang.txt"


class TrialTrainable(tune.Trainable):  # type: ignore[misc]
    """Trains for a slice of time, or to the next rung, at each step; continues from its own newest checkpoint.

    Config: `run` and `prepared` (folders), `method`, `seed`, `budget`, `cpus`, `gpus`, `costs` (metrics by kind of
    student), `deadline` (of the search, in seconds since the epoch), `files` (None where every node sees the driver's disk),
    and per trial `number` and `params`.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """CPUs and GPUs of a trial. `tune.with_resources` would hide the method's name in Ray's dashboard."""
        return PlacementGroupFactory([{"CPU": config["cpus"], "GPU": config["gpus"]}])

    def setup(self, config: dict[str, Any]) -> None:
        """Start or continue the trial."""
        import torch

        torch.set_num_threads(config["cpus"])
        limit_gpu_memory(config["gpus"])
        self.machine = machine()
        self.training: RungTraining | None = None
        get_method(config["method"])  # for what it imports
        gc.collect()
        gc.freeze()  # of what the imports made nothing is ever free: looking at it takes 0.3 s before each trial
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial on this warm worker."""
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        from distilbench.encoders.encoder import default_device

        files: DriverFiles | None = config.get("files")
        if files is not None and not files.here and self.training is not None:
            remove_folder(self.training.spec.folder)  # what it holds is in the storage
        self.training = None  # the last trial's memory goes before the next one's is taken
        release_memory()
        count_gpu_peak_anew()
        self.halt, self.deadline = "", float(config["deadline"])
        run, number = Path(config["run"]), int(config["number"])
        spec = TrainingSpec(
            method=config["method"],
            params=config["params"],
            seed=config["seed"],
            budget=Budget.model_validate(config["budget"]),
            prepared=Path(config["prepared"]),
            folder=trial_folder(run, number),
            log=hang_log(run, number),
            cost=config["costs"].get(kind_key(config["method"], config["params"]), {}),
        )
        try:
            self.training = RungTraining(spec.on_node(files), default_device())
        except StorageGone as error:
            self.halt = str(error)

    def step(self) -> dict[str, Any]:
        """Train a slice. The result has every rung so far: a report that a killed driver never heard comes again."""
        training = self.training
        before = len(training.rungs) if training else 0
        try:
            if training is not None:
                training.advance(SLICE_S)
                if time.time() > self.deadline:
                    training.keep()
        except StorageGone as error:
            self.halt = str(error)
        if training is None or self.halt:
            return {"halt": self.halt, "failed": "", "rungs": [], "rung": before, "done": True}  # Tune wants its metric
        loaded, new = training.loaded, training.rungs[before:]
        metrics = {**new[-1].metrics, "objective": new[-1].objective} if new else {}
        return {
            "loss": training.trainer.mean_loss if loaded else None,
            **metrics,  # flat, for Tune's loggers
            "halt": "",
            "failed": training.failed,
            "collapsed": training.collapsed,
            "rungs": [rung.model_dump() for rung in training.rungs],
            "rung": training.rungs[-1].rung if training.rungs else 0,
            "step": training.trainer.step if loaded else 0,
            "total_steps": training.trainer.total_steps if loaded else 0,
            "steps_per_second": training.speed,
            "final": training.done and not training.failed,
            "done": training.done,
            "machine": self.machine,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the training keeps its own, in the run's folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: `setup` has loaded it."""


class Supervisor(Callback):  # type: ignore[misc]
    """Kills the worker of a trial without a report for `limit_s` seconds; the searcher continues the trial.

    A worker's own watchdog covers its training; between two slices, when it waits for the driver, nothing on its machine
    tells a process that stands still from one that has nothing to do.

    `begun(trial_id)` is told of every worker that has begun: a trial is not at fault when it dies before.
    """

    def __init__(
        self,
        run: Path,
        begun: Callable[[str], None],
        limit_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.begun, self.limit_s, self.clock = run, begun, limit_s, clock
        self._running: dict[str, tuple[Any, float]] = {}
        """By trial id: the trial, and when it was heard of."""
        self._now, self._looked = 0.0, clock()

    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        """Look for silent trials."""
        now = self.clock()
        self._now, self._looked = self._now + min(LOOK_S, now - self._looked), now
        for trial in [trial for trial, heard in self._running.values() if self._now - heard > self.limit_s]:
            self._end(trial)

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Its worker was given something to do."""
        self._running[trial.trial_id] = (trial, self._now)
        self.begun(trial.trial_id)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        """It is alive."""
        if trial.trial_id in self._running:
            self._running[trial.trial_id] = (trial, self._now)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Nothing more is expected of it."""
        self._running.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Its worker died."""
        if trial.trial_id not in self._running:
            time.sleep(PAUSE_S)
        self.on_trial_complete(iteration, trials, trial)

    def _end(self, trial: Any) -> None:
        self.on_trial_complete(0, [], trial)
        with contextlib.suppress(OSError):  # the trial goes on either way
            log = hang_log(self.run, int(trial.config["number"]))
            log.parent.mkdir(exist_ok=True)
            with log.open("a") as file:
                file.write(f"{MARK}the driver heard nothing for {self.limit_s:g} s)!\n")
        if trial.temporary_state.ray_actor is not None:
            ray.kill(trial.temporary_state.ray_actor)
