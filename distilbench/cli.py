"""The command line: `distilbench sweep`, `distilbench report`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from distilbench.errors import InputError

app = typer.Typer(
    help="Find the best small sentence encoder for your data and budget.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    add_completion=False,
)


@app.callback()
def main() -> None:
    """Find the best small sentence encoder for your data and budget."""


@app.command()
def sweep(
    method: Annotated[str, typer.Option(help="The distillation method: mcr2 or hpd.")],
    data: Annotated[
        Path | None, typer.Option(help="A data folder; without it the built-in demonstration corpus.")
    ] = None,
    teacher: Annotated[str, typer.Option(help="An encoder's folder, hub id, or packaged name.")] = "all-MiniLM-L6-v2",
    revision: Annotated[str | None, typer.Option(help="The teacher's revision on the hub.")] = None,
    prompt: Annotated[str, typer.Option(help="Text that the teacher wants before every sentence.")] = "",
    max_tokens: Annotated[
        int | None, typer.Option(min=3, help="Cut sentences here; default: the teacher's limit.")
    ] = None,
    student: Annotated[
        str,
        typer.Option(help="Where an encoder student starts: half, layers:0,2,4 (of the teacher), folder or hub id."),
    ] = "half",
    float32: Annotated[
        bool, typer.Option("--float32", help="Store teacher embeddings in float32, not float16.")
    ] = False,
    space: Annotated[Path | None, typer.Option(help="A search space; default: search_spaces/METHOD.yaml.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials in all; default: the search space's.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything random.")] = 0,
    name: Annotated[str | None, typer.Option(help="The run's name; the same name continues a run.")] = None,
    corpus_size: Annotated[int, typer.Option(help="Training pairs of the built-in corpus.")] = 4000,
    max_pairs: Annotated[int, typer.Option(min=0, help="Similar pairs to train on at most; 0: all.")] = 20_000,
    max_sentences: Annotated[int, typer.Option(min=0, help="Unlabelled sentences at most; 0: all.")] = 20_000,
    max_documents: Annotated[int, typer.Option(min=0, help="Documents of a retrieval set at most; 0: all.")] = 20_000,
    runs: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("runs"),
    reports: Annotated[Path, typer.Option(help="Where leaderboards are written.")] = Path("reports"),
    store: Annotated[Path | None, typer.Option(help="Artifact store; default: the user's cache folder.")] = None,
    address: Annotated[str | None, typer.Option(help="A running Ray cluster; default: Ray on this machine.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="CPUs of Ray on this machine; default: all.")] = None,
    dashboard: Annotated[bool, typer.Option(help="Start Ray's dashboard.")] = True,
    gpus_per_trial: Annotated[
        float | None, typer.Option(min=0, help="Share of a GPU for a trial; default 0.25.")
    ] = None,
) -> None:
    """Sweep a method's hyper-parameters and publish the leaderboard. The same command again continues a sweep."""
    with input_errors():
        from distilbench.config import SweepSettings
        from distilbench.data.folder import Limits
        from distilbench.encoder import EncoderSpec
        from distilbench.pipeline import sweep as run_sweep
        from distilbench.store import default_store

        settings = SweepSettings(
            method=method,
            data=data,
            corpus_size=corpus_size,
            limits=Limits(max_pairs or None, max_sentences or None, max_documents or None),
            teacher=EncoderSpec(teacher, revision, prompt, max_tokens),
            vectors="float32" if float32 else "float16",
            student=student,
            space=space,
            trials=trials,
            seed=seed,
            name=name,
            runs=runs,
            reports=reports,
            store=store or default_store(),
            address=address,
            cpus=cpus,
            dashboard=dashboard,
            gpus_per_trial=gpus_per_trial,
        )
        page = run_sweep(settings, Console(soft_wrap=True))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


@app.command()
def report(
    run: Annotated[list[Path], typer.Argument(help="Run folders, such as runs/mcr2-builtin-all-MiniLM-L6-v2.")],
    out: Annotated[Path, typer.Option(help="The report's folder.")],
    title: Annotated[str | None, typer.Option(help="The page's title; default: the runs' names.")] = None,
) -> None:
    """Write one leaderboard from the records of one or more runs."""
    with input_errors():
        from distilbench.reporting.page import write_report
        from distilbench.reporting.runs import read_runs

        page = write_report(read_runs(run), out, title=title or ", ".join(r.resolve().name for r in run))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


@contextmanager
def input_errors() -> Iterator[None]:
    """Turns bad input into its one message and exit status 2."""
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
