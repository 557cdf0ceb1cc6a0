"""`distilbench plan`: how long a sweep will take, from the times of a smaller one that is finished."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from distilbench.errors import InputError
from distilbench.records import TrialRecord, read_records
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

    Raises:
        InputError: the run has no times of a finished search.
    """
    methods = [run] if (run / "trials.jsonl").exists() else sorted(p.parent for p in run.glob("*/trials.jsonl"))
    searched = [timing for folder in methods for timing in read_timings(folder) if timing.stage == "search"]
    if not searched:
        raise InputError(f"--from {run}: no times of a finished search in it; expected runs/NAME of a finished sweep")
    stages = _shared(settings, run, ("start", "prepare"))
    for folder in methods:
        name = f" ({folder.name})" if len(methods) > 1 else ""
        stages += [stage._replace(name=stage.name + name) for stage in _of_method(settings, folder, len(methods))]
    stages += _shared(settings, run, ("report",))
    total_s = math.fsum(stage.planned_s for stage in stages)
    dollars = None if settings.price is None else settings.price * total_s / 3600
    table = Table("stage", "took", "planned")
    for stage in stages:
        table.add_row(stage.name, shown(stage.took_s), shown(stage.planned_s))
    table.add_section()
    table.add_row("all", shown(math.fsum(stage.took_s for stage in stages)), shown(total_s))
    console.print(table)
    if dollars is not None:
        console.print(f"${dollars:,.2f} at ${settings.price:g} an hour", markup=False, highlight=False)
    longest = max(stages, key=lambda stage: stage.planned_s)
    helps = "more trials at once shorten it" if longest.name.startswith(AT_ONCE) else "more trials at once do not"
    console.print(f"The longest stage is {longest.name}: {helps}.", markup=False)
    return {"stages": [stage._asdict() for stage in stages], "seconds": total_s, "dollars": dollars}


def shown(seconds: float) -> str:
    """A time for the reader: "12 s", "3.4 min", "5.6 h"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5970 else f"{seconds / 3600:,.1f} h"


def _shared(settings: PlanSettings, run: Path, names: Sequence[str]) -> list[Stage]:
    """Those of these stages, which all methods of a run have in common, that the run has."""
    timings, stages = read_timings(run), []
    for name in (name for name in names if any(t.stage == name for t in timings)):
        factor, timing = 1.0, _total(timings, name)
        if name == "prepare" and settings.sentences is not None and timing.count:
            factor = settings.sentences / timing.count
        stages.append(Stage(name, timing.seconds, timing.seconds * factor))
    return stages


def _of_method(settings: PlanSettings, folder: Path, methods: int) -> list[Stage]:
    """The stages of one method's run; all methods share `--trials`."""
    timings, config = read_timings(folder), bound_config(folder) or {}
    records = [r for r in read_records(folder / "trials.jsonl") if isinstance(r, TrialRecord)]
    steps = settings.steps / int(config["budget.steps"]) if settings.steps is not None else 1.0
    trials = settings.trials / methods / max(1, len(records)) if settings.trials is not None else 1.0
    longest_s = max(map(_training_s, records), default=0.0)
    stages = []
    for name in ("references", "costs", "search", "confirm", "score"):
        if not any(t.stage == name for t in timings):
            continue
        timing = _total(timings, name)
        planned_s = timing.seconds
        if name in AT_ONCE:
            busy = min(timing.workers, max(1, timing.count))
            work_s = timing.seconds * busy * steps * (trials if name == "search" else 1.0)
            planned_s = max(work_s / (settings.workers or busy), longest_s * steps)
        stages.append(Stage(name, timing.seconds, planned_s))
    return stages


def _total(timings: Sequence[StageTiming], stage: str) -> StageTiming:
    """The time of a stage, summed over all drivers of a run."""
    parts = [timing for timing in timings if timing.stage == stage]
    return StageTiming(
        stage=stage,
        seconds=math.fsum(part.seconds for part in parts),
        count=max(part.count for part in parts) if stage == "prepare" else sum(part.count for part in parts),
        workers=max(part.workers for part in parts),
    )


def _training_s(record: TrialRecord) -> float:
    return math.fsum(rung.metrics.get("rung_seconds") or 0.0 for rung in record.rungs)
