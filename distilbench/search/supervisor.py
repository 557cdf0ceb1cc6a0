"""Workers as the driver sees them: one that is not heard of any more is ended, and those that never began are known.

A worker's own watchdog covers its training; between two slices, when it waits for the driver, nothing on its machine tells a
process that stands still from one that has nothing to do.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune import Callback

from distilbench.search.trial import hang_log
from distilbench.storage.retry import LIMIT_S
from distilbench.trials.watchdog import MARK

LOOK_S = 1.0
"""A longer time between two looks was the driver's own: it waited for storage, or its machine was suspended."""

PAUSE_S = 1.0
"""After a worker that died before it began: Ray gives work to a dead node until it notices, within a minute."""


def silence_limit(hang_s: float) -> float:
    """Seconds after which a trial that is at work must have been heard of: it may wait for storage once, and hang twice.

    Of `hang_s` 0 (no limit) it is 0 too.
    """
    return LIMIT_S + 3 * hang_s if hang_s else 0.0


class Supervisor(Callback):  # type: ignore[misc]
    """Kills the worker of a trial without a report for `limit_s` seconds (0: no limit); the searcher continues the trial.

    `begun(trial_id)` is told of every worker that has begun: a trial is not at fault when it dies before.
    """

    def __init__(
        self,
        run: Path,
        limit_s: float,
        begun: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.limit_s, self.begun, self.clock = run, limit_s or math.inf, begun, clock
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
        import ray

        self.on_trial_complete(0, [], trial)
        with contextlib.suppress(OSError):  # the trial goes on either way
            log = hang_log(self.run, int(trial.config["number"]))
            log.parent.mkdir(exist_ok=True)
            with log.open("a") as file:
                file.write(f"{MARK}the driver heard nothing for {self.limit_s:g} s)!\n")
        if trial.temporary_state.ray_actor is not None:
            ray.kill(trial.temporary_state.ray_actor)
