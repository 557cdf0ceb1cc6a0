"""A sweep as gauges of Ray, on the port that Prometheus reads."""

from __future__ import annotations

import threading
from typing import Any

from distilbench.events import Event
from distilbench.progress.tally import Tally, best_of

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "stage": ("1 for the stage that a sweep is in", ("stage",)),
    "running_trials": ("Trials that run now", ()),
    "finished_trials": ("Trials finished, by state", ("state",)),
    "wanted_trials": ("Trials wanted in all", ()),
    "best_dev": ("Dev score x 100 of the best trial of a group, such as 16 bytes", ("group",)),
    "steps_per_second": ("Optimiser steps per second of all trials together", ()),
    "seconds_left": ("Seconds to the end of the search", ()),
}
"""Meaning, and tags beside run and method; their names begin with `distilbench_sweep_`."""
EVERY_S = 5.0
"""Ray forgets a gauge that was not set for two of its 10 s intervals, so they are set also while nothing is reported."""


class SweepMetrics:
    """Sets the gauges of a sweep; does nothing where Ray does not run."""

    def __init__(self, tally: Tally) -> None:
        import ray
        from ray.util.metrics import Gauge

        self.tally, self.closed = tally, threading.Event()
        self.values = sweep_values(tally)
        self.gauges: dict[str, Any] = {}
        if ray.is_initialized():
            for name, (text, tags) in GAUGES.items():
                self.gauges[name] = Gauge(f"distilbench_sweep_{name}", text, ("run", "method", *tags))
            threading.Thread(target=self._repeat, name="sweep metrics", daemon=True).start()

    def __call__(self, event: Event) -> None:
        """Note the state for the next time that the gauges are set."""
        if event.kind == "close":
            self.closed.set()
        self.values = sweep_values(self.tally)  # a new list: the thread may be reading the old

    def _repeat(self) -> None:
        import ray

        while not self.closed.wait(EVERY_S) and ray.is_initialized():
            for name, tags, value in self.values:
                self.gauges[name].set(value, tags=tags)


def sweep_values(tally: Tally) -> list[tuple[str, dict[str, str], float]]:
    """Gauge, tags and value of what is known now."""
    progress = tally.progress()
    values: list[tuple[str, dict[str, str], float | None]] = [
        ("stage", {"stage": progress.stage}, 1),
        ("running_trials", {}, len(progress.running)),
        ("wanted_trials", {}, progress.wanted),
        ("steps_per_second", {}, progress.steps_per_second),
        ("seconds_left", {}, progress.seconds_left),
        *(("finished_trials", {"state": state}, count) for state, count in progress.counts.items()),
        *(("best_dev", {"group": _ascii(f"{r.group} bytes")}, r.dev) for r in best_of(tally.records.values()).values()),
    ]
    sweep = {"run": _ascii(progress.run), "method": progress.method}
    return [(name, sweep | tags, float(value)) for name, tags, value in values if value is not None]


def _ascii(text: str) -> str:
    """Ray takes tags in ASCII only: "ü" becomes "\\xfc"."""
    return text.encode("ascii", "backslashreplace").decode()
