"""What `distilbench plan` prints, and writes as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from distilbench.planning.model import Plan
from distilbench.planning.rates import Rates
from distilbench.planning.work import MethodWork, SweepWork


def shown(seconds: float | None) -> str:
    """A time for the reader: "12 s", "3.4 min", "5.6 h"; "?" where it is not known."""
    if seconds is None:
        return "?"
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5970 else f"{seconds / 3600:,.1f} h"


def dollars(value: float | None) -> str:
    """A price; "" where it is not known."""
    return "" if value is None else f"${value:,.2f}"


def print_plans(plans: Sequence[Plan], work: SweepWork, rates: Sequence[Rates], console: Console) -> None:
    """A column for each cluster; those whose kind of machine was measured come first, and what the others are is said."""
    plans = sorted(plans, key=lambda plan: bool(plan.notes))
    for note in dict.fromkeys(note for plan in plans for note in plan.notes):
        console.print(f"Note: {note}.", markup=False)
    for machine_rates in rates:
        console.print(_described(machine_rates), markup=False)
    console.print(
        f"To do: {work.sentences:,} sentences to encode, {work.train:,} to train on; "
        + "; ".join(_method(method_work) for method_work in work.methods),
        markup=False,
    )
    table = Table()
    table.add_column("")
    for plan in plans:
        rates_of = {"cpu": "\nat a CPU's rates", "cuda": "\nat a GPU's rates"}[plan.device] if plan.notes else ""
        table.add_column(f"{plan.cluster.name}{rates_of}", justify="right")
    for number, stage in enumerate(plans[0].stages):
        table.add_row(stage.name, *(shown(plan.stages[number].seconds) for plan in plans))
    table.add_section()
    more = ["+" if plan.unknown else "" for plan in plans]
    table.add_row("total", *(shown(p.seconds) + m for p, m in zip(plans, more, strict=True)))
    table.add_row("if no trial were stopped", *(shown(p.most_seconds) + m for p, m in zip(plans, more, strict=True)))
    if any(plan.dollars is not None for plan in plans):
        table.add_row("dollars", *(dollars(p.dollars) + m for p, m in zip(plans, more, strict=True)))
    table.add_row("trials at once", *(str(plan.at_once) for plan in plans))
    console.print(table)
    for plan in plans:
        console.print(bottleneck(plan), markup=False)
    if plans[0].unknown:
        console.print(f"Note: no rate was measured for {', '.join(plans[0].unknown)}: not in the totals.", markup=False)
    if any(plan.dollars is not None for plan in plans):
        console.print("Note: dollars are for all nodes, from the start to the leaderboard.", markup=False)


def bottleneck(plan: Plan) -> str:
    """The longest stage in words."""
    stage = plan.bottleneck
    share = 100 * (stage.seconds or 0.0) / plan.seconds if plan.seconds else 0.0
    helps = "more machines shorten it" if stage.scales else "more machines do not shorten it"
    return f"{plan.cluster.name}: {share:.0f} % of the time is {stage.name} ({stage.bound}); {helps}"


def _described(rates: Rates) -> str:
    return (
        f"Rates of {rates.device_name}, {rates.side_by_side} workers side by side on {rates.cpus} CPUs, from {rates.source}, "
        f"{rates.measured_at}"
    )


def _method(work: MethodWork) -> str:
    share = 100 * work.expected_steps / work.all_steps if work.all_steps else 100.0
    return (
        f"{work.space.method}: {len(work.trials)} trials, {work.expected_steps:,.0f} steps ({share:.0f} % of all, "
        f"stopping: {work.space.budget.stopping}), {len(work.confirmations)} students to finish, "
        f"{work.rows + work.references} rows"
    )


def plans_json(plans: Sequence[Plan], work: SweepWork, rates: Sequence[Rates]) -> dict[str, Any]:
    """All of it, seconds unrounded."""
    return {
        "schema_version": 1,
        "rates": [machine_rates.model_dump() for machine_rates in rates],
        "sentences": work.sentences,
        "training_sentences": work.train,
        "methods": [
            {
                "method": method_work.space.method,
                "trials": len(method_work.trials),
                "expected_steps": method_work.expected_steps,
                "all_steps": method_work.all_steps,
                "confirmations": len(method_work.confirmations),
                "rows": method_work.rows + method_work.references,
            }
            for method_work in work.methods
        ],
        "clusters": [_plan_json(plan) for plan in plans],
    }


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "cluster": plan.cluster.name,
        "cpus": plan.cluster.cpus,
        "gpus": plan.cluster.gpus,
        "rates_of": plan.device,
        "trials_at_once": plan.at_once,
        "stages": [vars(stage) for stage in plan.stages],
        "seconds": plan.seconds,
        "most_seconds": plan.most_seconds,
        "dollars": plan.dollars,
        "not_measured": plan.unknown,
        "bottleneck": plan.bottleneck.name,
        "notes": list(plan.notes),
    }
