"""The command line: `distilbench plan`, `prepare`, `sweep`, `status`, `compare`, `evaluate`, `efficiency`, `report`, `best`,
`export`, `reproduce`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from distilbench.errors import InputError
from distilbench.evaluate_options import EVALUATE_OPTIONS, evaluate_settings
from distilbench.options import OPTIONS, RUN_OPTIONS, Data, run_settings, with_options
from distilbench.planning.options import PLAN_OPTIONS
from distilbench.sweep_options import SPACE_OPTIONS, SWEEP_OPTIONS, space_settings, sweep_settings

app = typer.Typer(
    help="Find the best small sentence encoder for your data and budget.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    add_completion=False,
)

RowTeacher = Annotated[
    str | None, typer.Option(help="As for sweep; default: the one that the rows name, else all-MiniLM-L6-v2.")
]
RowStudent = Annotated[str | None, typer.Option(help="As for sweep; default: the one that the rows name, else auto.")]
Runs = Annotated[
    list[str],
    typer.Argument(help="Run folders, such as runs/mcr2-builtin-all-MiniLM-L6-v2, or URIs: s3://bucket/runs/NAME."),
]


@app.callback()
def main() -> None:
    """Find the best small sentence encoder for your data and budget."""


@app.command()
@with_options(SPACE_OPTIONS, SWEEP_OPTIONS, OPTIONS, RUN_OPTIONS)
def sweep(
    method: Annotated[
        str,
        typer.Option(help="The method, such as hpd, mcr2, ibkd or dse (README: Methods); several with commas; or all."),
    ],
    **options: Any,
) -> None:
    """Sweep a method's hyper-parameters and publish the leaderboard. The same command again continues a sweep."""
    with input_errors():
        given = {**run_settings(options), **space_settings(options), **sweep_settings(method, options)}
        from distilbench.config import SweepSettings
        from distilbench.sweeps import sweep as run_sweep

        page = run_sweep(SweepSettings(**given), Console(soft_wrap=True))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


@app.command()
@with_options(PLAN_OPTIONS, SPACE_OPTIONS, SWEEP_OPTIONS, OPTIONS, RUN_OPTIONS)
def plan(
    method: Annotated[str, typer.Option(help="As for sweep, as are all options that sweep has.")],
    **options: Any,
) -> None:
    """Print what a sweep will take, in hours and dollars, and what bounds it: before it is started, on any cluster."""
    began = time.monotonic()
    with input_errors():
        given = {**run_settings(options), **space_settings(options), **sweep_settings(method, options)}
        from distilbench.config import SweepSettings
        from distilbench.planning.command import plan as make_plan
        from distilbench.store import write_json

        found = make_plan(
            SweepSettings(**given),
            began,
            rates=options["rates"] or (),
            measure=options["measure"],
            probe=options["probe"],
            gpus=options["gpus"],
            nodes=options["nodes"] or (),
            cpus_per_gpu=options["cpus_per_gpu"],
            console=Console(soft_wrap=True),
        )
        if options["json_file"]:
            write_json(options["json_file"], found)


@app.command()
@with_options(OPTIONS, RUN_OPTIONS)
def compare(
    file: Annotated[list[Path], typer.Argument(help="Files of configurations, such as search_spaces/papers/hpd.yaml.")],
    row: Annotated[list[str] | None, typer.Option(help="Only the row of this name; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each row.")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps of one training at most.")] = None,
    teacher: RowTeacher = None,
    student: RowStudent = None,
    **options: Any,
) -> None:
    """Train named configurations (rows of a paper, or your own) over several seeds, and publish the leaderboard."""
    with input_errors():
        from distilbench.configurations import chosen_encoder, read_configurations

        written = read_configurations(file, row or ())
        teacher = chosen_encoder(written, "teacher", teacher, "all-MiniLM-L6-v2")
        student = chosen_encoder(written, "student", student, "auto")
        given = run_settings({**options, "teacher": teacher, "student": student})
        from distilbench.config import CompareSettings
        from distilbench.pipeline import compare as run_compare

        settings = CompareSettings(files=tuple(file), rows=tuple(row or ()), seeds=seeds, steps=steps, **given)
        page = run_compare(settings, Console(soft_wrap=True))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


@app.command()
@with_options(SPACE_OPTIONS, OPTIONS)
def prepare(
    method: Annotated[
        str | None, typer.Option(help="Prepare what a sweep of this method reads; default: what most of them do.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write what was prepared to this file too.")] = None,
    **options: Any,
) -> None:
    """Augment, encode with the teacher and tokenise, into the store where a sweep finds it. Interrupted, it goes on."""
    with input_errors():
        given = {**run_settings(options), **space_settings(options)}
        from distilbench.config import PrepareSettings
        from distilbench.pipeline import prepare as run_prepare
        from distilbench.store import write_json

        found = run_prepare(PrepareSettings(method=method, **given), Console(soft_wrap=True))
        if json_file:
            write_json(json_file, found)


@app.command()
@with_options(EVALUATE_OPTIONS)
def evaluate(
    model: Annotated[
        list[str],
        typer.Argument(help="Encoders: sentence-transformers or Hugging Face folders, hub ids, packaged names."),
    ],
    **options: Any,
) -> None:
    """Score encoders, trained here or not, on every set, and publish the leaderboard. Repeated, it goes on."""
    with input_errors():
        given = evaluate_settings(model, options)
        from distilbench.evaluate_config import EvaluateSettings
        from distilbench.evaluations import evaluate as run_evaluation

        page = run_evaluation(EvaluateSettings(**given), Console(soft_wrap=True))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


@app.command()
def efficiency(
    student: Annotated[Path, typer.Option(help="A dse student's folder.")],
    cross_encoder: Annotated[Path, typer.Option(help="A cross-encoder's folder.")],
    data: Data = None,
    sentences: Annotated[int, typer.Option(min=2, help="All pairs of so many sentences.")] = 1000,
    catalogue: Annotated[int, typer.Option(min=1, help="One query against so many sentences.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the cross-encoder is measured.")] = 20.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch; default: as it chooses.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    """Time a dse student beside a cross-encoder: all pairs of some sentences, and one query against a catalogue."""
    with input_errors():
        from distilbench.data.builtin import builtin_corpus
        from distilbench.data.folder import Limits, folder_corpus
        from distilbench.evaluation.efficiency import efficiency_report
        from distilbench.storage.scratch import local_folder
        from distilbench.store import write_json

        corpus = folder_corpus(local_folder(data, "--data"), Limits()) if data else builtin_corpus()
        found = efficiency_report(
            student,
            cross_encoder,
            corpus.sentences,
            sentences=sentences,
            catalogue=catalogue,
            seconds=seconds,
            threads=threads,
        )
        if json_file:
            write_json(json_file, found.to_json())
    print(found.text())  # noqa: T201


@app.command()
def report(
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Run folders, files of records (NAME.jsonl.gz, NAME.jsonl), folders of reports, or URIs of these.",
        ),
    ],
    out: Annotated[str, typer.Option(help="The report's folder, or a URI.")],
    title: Annotated[
        str | None, typer.Option(help="The page's title; default: that of the file of records, else the runs' names.")
    ] = None,
    mteb: Annotated[
        bool, typer.Option("--mteb", help="Also result files that mteb reads, where its task scores the same pairs.")
    ] = False,
) -> None:
    """Write one leaderboard from the records of one or more runs, or build a report again from its file of records."""
    with input_errors():
        from distilbench.reporting.rebuild import report_from
        from distilbench.storage.runs import WITHOUT_STUDENTS, local_runs, written_to

        sources = local_runs(run, WITHOUT_STUDENTS)
        with written_to(out) as (folder, told):
            report_from(sources, folder, title=title, mteb=mteb)
    print(f"Leaderboard: {told}")  # noqa: T201


@app.command()
def best(
    run: Runs,
    size: Annotated[int | None, typer.Option("--bytes", min=1, help="Bytes per vector at most.")] = None,
    latency: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds to embed one sentence at most, where runs measured it.")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="Dimensions at most.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the choice to this file too.")] = None,
) -> None:
    """Name the best student within a budget: chosen by its dev score, in any quantisation."""
    with input_errors():
        from distilbench.reporting.best import best_of_runs
        from distilbench.reporting.budget import ServingBudget
        from distilbench.storage.runs import local_runs
        from distilbench.store import write_json

        found = best_of_runs(local_runs(run), ServingBudget(size, latency, dim))
        if json_file:
            write_json(json_file, found.to_json())
    print(found.text())  # noqa: T201


@app.command()
def export(
    run: Runs,
    to: Annotated[Path, typer.Option(help="The new folder; an earlier export there is replaced.")],
    best_under: Annotated[
        str | None, typer.Option(help="Choose on dev within so many bytes per vector, such as 128B or 1kB.")
    ] = None,
    latency: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds to embed one sentence at most, where runs measured it.")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="Dimensions at most.")] = None,
    student: Annotated[
        str | None, typer.Option(help="Instead: this one, by its row's name, a record id, or an anchor of the page.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of its trainings the one with this seed; default: the best on dev.")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also as an ONNX graph, from token ids to the vector.")] = False,
) -> None:
    """Write a student as a sentence-transformers folder with a model card: the best within a budget, or a named one."""
    with input_errors():
        if student is not None and (best_under, latency, dim) != (None, None, None):
            raise InputError("--student: expected no --best-under, --latency or --dim with it")
        from distilbench.export import export as write_export
        from distilbench.export import parse_size
        from distilbench.reporting.budget import ServingBudget
        from distilbench.storage.runs import local_runs

        budget = ServingBudget(None if best_under is None else parse_size(best_under), latency, dim)
        found = write_export(local_runs(run), to, budget, student=student, seed=seed, onnx=onnx)
    print(found.text())  # noqa: T201


@app.command()
def reproduce(
    run: Annotated[str, typer.Argument(help="A run's folder, such as runs/mcr2-builtin-all-MiniLM-L6-v2, or its URI.")],
    trial: Annotated[int, typer.Argument(min=0, help="The number of a trial, or of a comparison's training.")],
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of the training that confirmed the trial with this seed; default: its own."),
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="How far a metric may be from the recorded one.")] = 0.01,
    threads: Annotated[int, typer.Option(min=1, help="Of torch: the CPUs that a trial of the run had.")] = 1,
) -> None:
    """Train a recorded trial again, beside the run, and compare every dev metric. Exit status 1: it comes out otherwise."""
    with input_errors():
        from distilbench.reproduce import reproduce as train_again
        from distilbench.storage.runs import reproducible_run

        found = train_again(reproducible_run(run), trial, seed, threads=threads)
    found.show(tolerance, Console(soft_wrap=True))
    if not found.same(tolerance):
        raise typer.Exit(1)


@app.command()
def status(
    run: Annotated[str, typer.Argument(help="A run's folder, or one that holds several, or its URI.")],
    watch: Annotated[bool, typer.Option("--watch", help="Again every 2 seconds, until it is done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, a list of runs.")] = False,
) -> None:
    """How far a sweep is, from another terminal: its stage, trials, best students, failures, time left."""
    with input_errors():
        from distilbench.search.status import print_status, run_statuses, watch_status
        from distilbench.storage.remote import is_uri
        from distilbench.storage.runs import ONLY_RECORDS, local_runs

        def folder() -> Path:
            return local_runs([run], ONLY_RECORDS)[0]

        if watch and as_json:
            raise InputError("--watch --json: expected one of the two")
        if watch:
            watch_status(folder, Console(soft_wrap=True), every_s=10 if is_uri(run) else 2)
        elif as_json:
            print(json.dumps([s.to_json() for s in run_statuses(folder())], indent=1))  # noqa: T201
        else:
            print_status(run_statuses(folder()), Console(soft_wrap=True))


@contextmanager
def input_errors() -> Iterator[None]:
    """Turns bad input into its one message and exit status 2."""
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
