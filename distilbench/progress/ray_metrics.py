"""A sweep as gauges of Ray, for Prometheus; `grafana.json` beside this file draws them."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from distilbench.progress.tally import STAGES, Tally, best_of
from distilbench.records import TrialRecord
from distilbench.watchers import Watcher

SWEEP = ("run", "method")
TRIAL = (*SWEEP, "trial")

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "distilbench_sweep_stage": ("1 for the stage that a sweep is in, 0 for the others", (*SWEEP, "stage")),
    "distilbench_sweep_running_trials": ("Trials that run now", SWEEP),
    "distilbench_sweep_finished_trials": ("Trials finished, by state", (*SWEEP, "state")),
    "distilbench_sweep_wanted_trials": ("Trials wanted in all", SWEEP),
    "distilbench_sweep_confirmations": ("Trainings that confirmed a trial", SWEEP),
    "distilbench_sweep_best_dev": ("Dev score x 100 of the best trial of a group", (*SWEEP, "group")),
    "distilbench_sweep_steps_per_second": ("Optimiser steps per second of all trials together", SWEEP),
    "distilbench_sweep_seconds_left": ("Seconds to the end of the search", SWEEP),
    "distilbench_trial_step": ("Optimiser steps of a running trial", TRIAL),
    "distilbench_trial_loss": ("Training loss of a running trial", TRIAL),
    "distilbench_trial_objective": ("Objective of a running trial at its last rung", TRIAL),
    "distilbench_trial_dev": ("Dev score x 100 of a running trial at its last rung", TRIAL),
}
"""Meaning and tags."""

EVERY_S = 5.0
"""Ray forgets a gauge that was not set for two of its 10 s intervals: a finished trial's go by themselves, the others
are set again and again, also while nothing is reported."""


class Value(NamedTuple):
    """What one gauge is set to, for one set of tags."""

    name: str
    tags: dict[str, str]
    value: float


class RayMetrics(Watcher):
    """Keeps the gauges of a sweep; does nothing where Ray does not run."""

    def __init__(self, tally: Tally) -> None:
        import ray
        from ray.util.metrics import Gauge

        self.tally = tally
        self.values = sweep_values(self.tally)
        self.gauges: dict[str, Gauge] = {}
        self.closed = threading.Event()
        if ray.is_initialized():
            self.gauges = {name: Gauge(name, meaning, tags) for name, (meaning, tags) in GAUGES.items()}
            threading.Thread(target=self._repeat, name="sweep metrics", daemon=True).start()

    def started(self, number: int, params: dict[str, Any]) -> None:
        """Count it."""
        self._note()

    def progressed(self, number: int, result: dict[str, Any]) -> None:
        """Note how far it is."""
        self._note()

    def waiting(self, number: int) -> None:
        """Count it no longer."""
        self._note()

    def finished(self, record: TrialRecord) -> None:
        """Count it."""
        self._note()

    def stage(self, name: str) -> None:
        """Set the stage, at once."""
        self._note()
        self._publish()

    def close(self) -> None:
        """Let the gauges go."""
        self.closed.set()

    def _note(self) -> None:
        if self.gauges:
            self.values = sweep_values(self.tally)  # a new list: the thread may be reading the old

    def _repeat(self) -> None:
        while not self.closed.wait(EVERY_S):
            self._publish()

    def _publish(self) -> None:
        import ray

        if self.gauges and ray.is_initialized():
            for value in self.values:
                self.gauges[value.name].set(value.value, tags=value.tags)


def _group(record: TrialRecord) -> str:
    """What the trial competes within, for a legend: "16 bytes"."""
    return f"{record.group} bytes"


def sweep_values(tally: Tally) -> list[Value]:
    """What the gauges are set to now; what nothing is known of is left out."""
    progress = tally.progress()
    sweep = {"run": progress.run, "method": progress.method}
    values: list[tuple[str, dict[str, str], float | None]] = [
        ("distilbench_sweep_running_trials", {}, len(progress.running)),
        ("distilbench_sweep_wanted_trials", {}, progress.wanted),
        ("distilbench_sweep_confirmations", {}, progress.confirmed),
        ("distilbench_sweep_steps_per_second", {}, progress.steps_per_second),
        ("distilbench_sweep_seconds_left", {}, progress.seconds_left),
    ]
    values += [("distilbench_sweep_stage", {"stage": stage}, stage == progress.stage) for stage in STAGES]
    values += [("distilbench_sweep_finished_trials", {"state": s}, n) for s, n in progress.counts.items()]
    best = best_of(tally.records.values())
    values += [("distilbench_sweep_best_dev", {"group": _group(r)}, r.dev) for r in best.values()]
    for r in progress.running:
        mine = {"trial": str(r.number)}
        values += [
            ("distilbench_trial_step", mine, r.step),
            ("distilbench_trial_loss", mine, r.loss),
            ("distilbench_trial_objective", mine, r.objective),
            ("distilbench_trial_dev", mine, r.dev),
        ]
    return [Value(name, sweep | tags, float(value)) for name, tags, value in values if value is not None]
