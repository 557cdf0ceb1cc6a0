"""The command line: one function a command, which takes the settings that its options make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from distilbench.cli.options import S, with_options
from distilbench.errors import InputError
from distilbench.settings.commands import (
    BestSettings,
    CompareSettings,
    EvaluateSettings,
    ExportSettings,
    IndexSettings,
    MethodsSettings,
    PlanSettings,
    PrepareSettings,
    ReportSettings,
    ReproduceSettings,
    StatusSettings,
)
from distilbench.settings.sweep import SweepSettings

app = typer.Typer(
    help="Find the best small sentence encoder for your data and budget.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _command(settings: type[S]) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    return lambda function: app.command()(with_options(function, settings))


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"distilbench {version('distilbench')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Find the best small sentence encoder for your data and budget."""


@_command(SweepSettings)
def sweep(settings: SweepSettings) -> None:
    """Sweep a method's hyper-parameters and publish the leaderboard. The same command again continues a sweep."""
    from distilbench.commands.sweep import sweep as run

    _leaderboard(run(settings, Console(soft_wrap=True)))


@_command(PlanSettings)
def plan(settings: PlanSettings) -> None:
    """Print how long a larger sweep will take, from the times of a small one that is finished."""
    from distilbench.commands.plan import plan as run
    from distilbench.storage.folder_copy import ONLY_RECORDS, local_runs

    finished = local_runs([settings.finished], ONLY_RECORDS)[0]
    _write_json(settings.json_file, run(settings, finished, Console(soft_wrap=True)))


@_command(CompareSettings)
def compare(settings: CompareSettings) -> None:
    """Train named configurations (rows of a paper, or your own) over several seeds, and publish the leaderboard."""
    from distilbench.commands.compare import compare as run

    _leaderboard(run(settings, Console(soft_wrap=True)))


@_command(PrepareSettings)
def prepare(settings: PrepareSettings) -> None:
    """Augment, encode with the teacher and tokenise, into the store where a sweep finds it. Interrupted, it goes on."""
    from distilbench.commands.prepare import prepare as run

    _write_json(settings.json_file, run(settings, Console(soft_wrap=True)))


@_command(EvaluateSettings)
def evaluate(settings: EvaluateSettings) -> None:
    """Score encoders, trained here or not, on every set, and publish the leaderboard. Repeated, it goes on."""
    from distilbench.commands.evaluate import evaluate as run

    _leaderboard(run(settings, Console(soft_wrap=True)))


@_command(ReportSettings)
def report(settings: ReportSettings) -> None:
    """Write one leaderboard from the records of one or more runs, or build a report again from its file of records."""
    from distilbench.commands.report import report as run

    _leaderboard(run(settings))


@_command(BestSettings)
def best(settings: BestSettings) -> None:
    """Name the best student within a budget: chosen by its dev score, in any quantisation."""
    from distilbench.reporting.best import best_of_runs
    from distilbench.reporting.choice import ServingBudget
    from distilbench.storage.folder_copy import local_runs

    budget = ServingBudget(settings.size, settings.latency, settings.dim)
    best_row = best_of_runs(local_runs(settings.run), budget)
    _write_json(settings.json_file, best_row.to_json())
    print(best_row.text())  # noqa: T201


@_command(ExportSettings)
def export(settings: ExportSettings) -> None:
    """Write a student as a sentence-transformers folder with a model card: the best within a budget, or a named one."""
    from distilbench.commands.export import export as run
    from distilbench.reporting.choice import ServingBudget
    from distilbench.storage.folder_copy import local_runs

    budget = ServingBudget(settings.size, settings.latency, settings.dim)
    runs, named, seed = local_runs(settings.run), settings.student, settings.seed
    print(run(runs, settings.to, budget, student=named, seed=seed, onnx=settings.onnx).text)  # noqa: T201


@_command(IndexSettings)
def index(settings: IndexSettings) -> None:
    """Encode documents with a student, and write the FAISS index of their codes. Interrupted, it goes on."""
    from distilbench.commands.index import index as run

    run(settings, Console(soft_wrap=True))


@_command(ReproduceSettings)
def reproduce(settings: ReproduceSettings) -> None:
    """Train a recorded trial again, beside the run, and compare every dev metric. Exit status 1: it comes out otherwise."""
    from distilbench.commands.reproduce import reproduce as run

    reproduced = run(settings.run, settings.trial, settings.seed, threads=settings.threads)
    if not reproduced.show(settings.tolerance, Console(soft_wrap=True)):
        raise typer.Exit(1)


@_command(StatusSettings)
def status(settings: StatusSettings) -> None:
    """How far a sweep is, from another terminal: its stage, trials, best students, failures, time left."""
    import time

    from distilbench.commands.status import print_status, run_statuses
    from distilbench.storage.folder_copy import ONLY_RECORDS, local_runs
    from distilbench.storage.remote import is_uri

    console = Console(soft_wrap=True)
    while True:
        statuses = run_statuses(local_runs([settings.run], ONLY_RECORDS)[0])
        if settings.watch and console.is_terminal:
            console.clear()
        print_status(statuses, console)
        if not settings.watch or all(status.done for status in statuses):
            return
        time.sleep(10 if is_uri(settings.run) else 2)


@_command(MethodsSettings)
def methods(settings: MethodsSettings) -> None:
    """List the methods: what each trains, what data it needs, its paper; of one also its hyper-parameters."""
    from distilbench.commands.methods import print_methods

    print_methods(Console(), settings.method)


def _leaderboard(page: Path | str) -> None:
    print(f"Leaderboard: {page.resolve() if isinstance(page, Path) else page}")  # noqa: T201


def _write_json(file: Path | None, value: dict[str, Any]) -> None:
    from distilbench.storage.files import write_json

    if file:
        try:
            write_json(file, value)
        except OSError as error:
            raise InputError(f"--json {file}: cannot be written: {error.strerror}") from None
