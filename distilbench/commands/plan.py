"""`distilbench plan`: how long a sweep will take, from the times of a smaller one that is finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from distilbench.errors import InputError
from distilbench.progress.console import duration
from distilbench.records import read_trials
from distilbench.settings.commands import PlanSettings
from distilbench.stage_times import StageTiming, read_timings
from distilbench.storage.files import bound_config

AT_ONCE = ("search", "confirm")
"""Stages that more trials at once shorten."""


class Stage(NamedTuple):
    """Seconds of one stage: in the finished run, and as planned."""

    name: str
    took_s: float
    planned_s: float


def plan(settings: PlanSettings, run: Path, console: Console) -> dict[str, Any]:
    """Print how long a sweep will take that differs from the finished one in `run` by `settings`; all of it, JSON-able.

    A search takes in proportion to its trials and their steps, and shorter with more of them at once; a preparation takes
    in proportion to its sentences; the other stages take what they took.
    """
    methods = [run] if (run / "trials.jsonl").exists() else sorted(p.parent for p in run.glob("*/trials.jsonl"))
    if not any(timing.stage == "search" for folder in methods for timing in read_timings(folder)):
        raise InputError(f"--from {run}: no times of a finished search in it; expected runs/NAME of a finished sweep")
    stages = []
    for timing in _stages(run, ("start", "prepare")):
        sentences = settings.sentences if timing.stage == "prepare" else None
        scale = sentences / timing.count if sentences and timing.count else 1.0
        stages.append(Stage(timing.stage, timing.seconds, timing.seconds * scale))
    for folder in methods:
        stages += _of_method(settings, folder, len(methods))
    stages += [Stage(timing.stage, timing.seconds, timing.seconds) for timing in _stages(run, ("report",))]
    total_s = math.fsum(stage.planned_s for stage in stages)
    table = Table("stage", "took", "planned")
    for stage in (*stages, Stage("all", math.fsum(stage.took_s for stage in stages), total_s)):
        table.add_row(stage.name, duration(stage.took_s), duration(stage.planned_s))
    console.print(table)
    dollars = None if settings.price is None else settings.price * total_s / 3600
    if dollars is not None:
        console.print(f"${dollars:,.2f} at ${settings.price:g} an hour", markup=False, highlight=False)
    longest = max(stages, key=lambda stage: stage.planned_s)
    helps = "more trials at once shorten it" if longest.name.startswith(AT_ONCE) else "more trials at once do not"
    console.print(f"The longest stage is {longest.name}: {helps}.", markup=False)
    return {"stages": [stage._asdict() for stage in stages], "seconds": total_s, "dollars": dollars}


def _of_method(settings: PlanSettings, folder: Path, methods: int) -> Iterator[Stage]:
    """The stages of one method's run; all methods share `--trials`."""
    config = bound_config(folder) or {}
    records = read_trials(folder / "trials.jsonl")
    steps = settings.steps / int(config["budget.steps"]) if settings.steps is not None else 1.0
    trials = settings.trials / methods / max(1, len(records)) if settings.trials is not None else 1.0
    longest_s = max((record.seconds for record in records), default=0.0)
    for timing in _stages(folder, ("costs", "teacher", "search", "confirm", "score", "references")):
        name, planned_s = timing.stage, timing.seconds
        if name in AT_ONCE:
            busy = min(timing.workers, max(1, timing.count))
            work_s = timing.seconds * busy * steps * (trials if name == "search" else 1.0)
            planned_s = max(work_s / (settings.workers or busy), longest_s * steps)
        yield Stage(f"{name} ({folder.name})" if methods > 1 else name, timing.seconds, planned_s)


def _stages(run: Path, names: Sequence[str]) -> Iterator[StageTiming]:
    """Those of these stages that the run has, each with its time summed over all drivers."""
    timings = read_timings(run)
    for name in names:
        if parts := [timing for timing in timings if timing.stage == name]:
            seconds, counts = math.fsum(part.seconds for part in parts), [part.count for part in parts]
            count = max(counts) if name == "prepare" else sum(counts)
            yield StageTiming(stage=name, seconds=seconds, count=count, workers=max(part.workers for part in parts))
