"""A sweep as its driver tells it to its tally, without the sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distilbench.progress.tally import Tally
from distilbench.records import Provenance, Rung, TrialRecord

PROVENANCE = Provenance(created_at="2026-01-01T00:00:00+00:00", commit="", versions={}, device="CPU", cpus=2)


def heard(show: Any) -> Tally:
    """The tally of what shows it, which hears of it from now on."""
    show.tally.listeners.append(show)
    return show.tally


def tally_of(run: Path, **changes: Any) -> Tally:
    values = {"run": run, "method": "mcr2", "trials": 24, "resources": "4 trials at once, each on 1 of 4 CPUs"}
    return Tally(**{**values, **changes})


def record(number: int, **changes: Any) -> TrialRecord:
    """A finished trial: by default COMPLETE after `step` = 450 steps with an objective of 0.5."""
    step, objective = changes.pop("step", 450), changes.get("objective", 0.5)
    metrics = {"dev_score": 80.0 + (objective or 0.0), "dev_pca_score": 80.0}
    values: dict[str, Any] = {
        "run": "r",
        "number": number,
        "state": "COMPLETE",
        "reason": "",
        "method": "mcr2",
        "params": {"output_dim": 32},
        "seed": 0,
        "dim": 32,
        "objective": objective,
        "rungs": [Rung(rung=1, step=step, objective=objective, metrics=metrics)] if step else [],
        "provenance": PROVENANCE,
    }
    return TrialRecord(**{**values, **changes})


def report(step: int, **more: Any) -> dict[str, Any]:
    """A report of a running trial between two rungs."""
    return {"rung": 0, "step": step, "total_steps": 450, "steps_per_second": 10.0, "loss": 0.25, **more}


def failed(number: int, reason: str) -> TrialRecord:
    """A trial that failed before its first rung."""
    return record(number, state="FAIL", reason=reason, objective=None, step=0)
