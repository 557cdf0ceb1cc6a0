"""`distilbench plan`: measure or read rates, and print what the sweep will take."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from distilbench.cluster.provenance import own_cpus
from distilbench.commands.sweep import sweep_members
from distilbench.errors import InputError
from distilbench.planning.given_rates import read_rates
from distilbench.planning.machines import Cluster, Nodes, clusters_for
from distilbench.planning.model import plan_sweep
from distilbench.planning.table import plans_json, print_plans
from distilbench.planning.work import sweep_work
from distilbench.settings.sweep import PlanSettings, SweepSettings
from distilbench.storage.files import write_json


def plan(
    settings: PlanSettings,
    began: float,
    console: Console,
) -> dict[str, Any]:
    """Print what the sweep of `settings` will take on each cluster; all of it, JSON-able.

    `began` is when the command did, by `time.monotonic`.

    Raises:
        InputError: bad input, or no rates are given and none are to be measured.
    """
    probe = settings.probe or settings.measure is not None
    if not settings.rates and not probe:
        raise InputError(
            "no rates: expected --measure FILE (or --probe) to measure them here within about a minute, or --rates with such "
            "a file or the folder of a finished run"
        )
    rates = [read_rates(path) for path in settings.rates]
    clusters = clusters_for(settings.gpus, settings.nodes, settings.cpus_per_gpu, this_machine(settings))
    for cluster in clusters:
        cluster.trials_at_once(settings.share)  # refuses what does not fit before anything is measured
    members, _ = sweep_members(settings, console)
    read_s = time.monotonic() - began
    work = sweep_work(settings, members)
    if probe:
        from distilbench.planning.probe import measure_rates

        rates.insert(0, measure_rates(settings, members, read_s, console))
        if settings.measure is not None:
            write_json(settings.measure, rates[0].model_dump())
    plans = [plan_sweep(settings, work, rates, cluster) for cluster in clusters]
    print_plans(plans, work, rates, console)
    if resting := [member.space.method for member in members if member.space.budget.patience]:
        console.print(
            f"Note: this is at most: students of {', '.join(resting)} get no more trials once they move the front no longer.",
            markup=False,
        )
    if settings.time_budget is not None:
        late = [sweep_plan.cluster.name for sweep_plan in plans if sweep_plan.seconds > settings.time_budget]
        if late:
            console.print(
                f"Note: longer than --time-budget {settings.time_budget:.0f} s on {', '.join(late)}: "
                "the sweep ends with what it has by then.",
                markup=False,
            )
    return plans_json(plans, work, rates)


def this_machine(settings: SweepSettings) -> Cluster:
    """Its CPUs (of `--cpus`), and the GPUs that torch sees."""
    import torch

    return Cluster("this machine", (Nodes(1, settings.cpus or own_cpus(), torch.cuda.device_count()),))
