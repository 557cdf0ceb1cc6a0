"""The command line: `distilbench sweep`, `compare`, `efficiency`, `report`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from distilbench.errors import InputError

app = typer.Typer(
    help="Find the best small sentence encoder for your data and budget.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    add_completion=False,
)

# The options that `sweep` and `compare` share.
Data = Annotated[Path | None, typer.Option(help="A data folder, or SentEval's; without it the built-in corpus.")]
Text = Annotated[
    list[str] | None,
    typer.Option(
        help="Sentences to train on: a file, folder or glob (TSV, CSV, JSON lines, Parquet, text), or hf:NAME; repeatable."
    ),
]
TextColumn = Annotated[str, typer.Option(help="The column of --text that holds the sentences.")]
MinChars = Annotated[int, typer.Option(min=0, help="Leave out unlabelled sentences of fewer characters.")]
MaxChars = Annotated[int | None, typer.Option(min=1, help="Leave out those of more characters; default: none.")]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave out and count bad rows of unlabelled text, instead of stopping.")
]
Augment = Annotated[
    str, typer.Option(help="For methods with `augmentation: true`: synonym, swap, delete, with commas between.")
]
Teacher = Annotated[str, typer.Option(help="An encoder's folder, hub id, or packaged name.")]
RowTeacher = Annotated[
    str | None, typer.Option(help="As for sweep; default: the one that the rows name, else all-MiniLM-L6-v2.")
]
Revision = Annotated[str | None, typer.Option(help="The teacher's revision on the hub.")]
Prompt = Annotated[str, typer.Option(help="Text that the teacher wants before every sentence.")]
MaxTokens = Annotated[int | None, typer.Option(min=3, help="Cut sentences here; default: the teacher's limit.")]
Student = Annotated[
    str,
    typer.Option(help="Where an encoder student starts: half, layers:0,2,4 (of the teacher), folder or hub id."),
]
RowStudent = Annotated[str | None, typer.Option(help="As for sweep; default: the one that the rows name, else half.")]
CrossEncoder = Annotated[
    str | None,
    typer.Option(help="For dse: a fine-tuned cross-encoder's folder; default: the teacher is fine-tuned on the task."),
]
CrossLr = Annotated[float, typer.Option(min=1e-8, max=1, help="Learning rate of that fine-tuning.")]
CrossEpochs = Annotated[float, typer.Option(min=0.01, help="Epochs of that fine-tuning.")]
Float32 = Annotated[bool, typer.Option("--float32", help="Store teacher embeddings in float32, not float16.")]
Quantise = Annotated[str, typer.Option(help="Score every row also in these: int8, binary, or none.")]
Seed = Annotated[int, typer.Option(min=0, help="Fixes everything random.")]
Name = Annotated[str | None, typer.Option(help="The run's name; the same name continues a run.")]
CorpusSize = Annotated[int, typer.Option(help="Training pairs of the built-in corpus.")]
MaxPairs = Annotated[int, typer.Option(min=0, help="Similar pairs to train on at most; 0: all.")]
MaxSentences = Annotated[int, typer.Option(min=0, help="Unlabelled sentences to train on at most; 0: all.")]
MaxDocuments = Annotated[int, typer.Option(min=0, help="Documents of a retrieval set at most; 0: all.")]
MaxTriplets = Annotated[int, typer.Option(min=0, help="Triplets to train on at most; 0: all.")]
MaxLabelled = Annotated[int, typer.Option(min=0, help="Labelled pairs of a task to train on at most; 0: all.")]
Runs = Annotated[Path, typer.Option(help="Where runs are kept.")]
Reports = Annotated[Path, typer.Option(help="Where leaderboards are written.")]
Store = Annotated[Path | None, typer.Option(help="Artifact store; default: the user's cache folder.")]
Address = Annotated[str | None, typer.Option(help="A running Ray cluster; default: Ray on this machine.")]
Cpus = Annotated[int | None, typer.Option(min=1, help="CPUs of Ray on this machine; default: all.")]
Dashboard = Annotated[bool, typer.Option(help="Start Ray's dashboard.")]
GpusPerTrial = Annotated[float | None, typer.Option(min=0, help="Share of a GPU for a trial; default 0.25.")]


@app.callback()
def main() -> None:
    """Find the best small sentence encoder for your data and budget."""


@app.command()
def sweep(
    method: Annotated[str, typer.Option(help="The method, such as hpd, mcr2, ibkd or dse (README: Methods).")],
    space: Annotated[Path | None, typer.Option(help="A search space; default: search_spaces/METHOD.yaml.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials in all; default: the search space's.")] = None,
    data: Data = None,
    text: Text = None,
    text_column: TextColumn = "text",
    min_chars: MinChars = 1,
    max_chars: MaxChars = None,
    skip_bad_rows: SkipBadRows = False,
    teacher: Teacher = "all-MiniLM-L6-v2",
    revision: Revision = None,
    prompt: Prompt = "",
    max_tokens: MaxTokens = None,
    student: Student = "half",
    cross_encoder: CrossEncoder = None,
    cross_encoder_lr: CrossLr = 2e-5,
    cross_encoder_epochs: CrossEpochs = 3,
    float32: Float32 = False,
    quantise: Quantise = "int8,binary",
    seed: Seed = 0,
    name: Name = None,
    corpus_size: CorpusSize = 4000,
    max_pairs: MaxPairs = 20_000,
    max_sentences: MaxSentences = 20_000,
    max_documents: MaxDocuments = 20_000,
    max_triplets: MaxTriplets = 20_000,
    max_labelled: MaxLabelled = 20_000,
    augment: Augment = "",
    runs: Runs = Path("runs"),
    reports: Reports = Path("reports"),
    store: Store = None,
    address: Address = None,
    cpus: Cpus = None,
    dashboard: Dashboard = True,
    gpus_per_trial: GpusPerTrial = None,
) -> None:
    """Sweep a method's hyper-parameters and publish the leaderboard. The same command again continues a sweep."""
    with input_errors():
        options = _run_options(dict(locals()))
        from distilbench.config import SweepSettings
        from distilbench.pipeline import sweep as run_sweep

        settings = SweepSettings(method=method, space=space, trials=trials, **options)
        page = run_sweep(settings, Console(soft_wrap=True))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


@app.command()
def compare(
    file: Annotated[list[Path], typer.Argument(help="Files of configurations, such as search_spaces/papers/hpd.yaml.")],
    row: Annotated[list[str] | None, typer.Option(help="Only the row of this name; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each row.")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps of one training at most.")] = None,
    data: Data = None,
    text: Text = None,
    text_column: TextColumn = "text",
    min_chars: MinChars = 1,
    max_chars: MaxChars = None,
    skip_bad_rows: SkipBadRows = False,
    teacher: RowTeacher = None,
    revision: Revision = None,
    prompt: Prompt = "",
    max_tokens: MaxTokens = None,
    student: RowStudent = None,
    cross_encoder: CrossEncoder = None,
    cross_encoder_lr: CrossLr = 2e-5,
    cross_encoder_epochs: CrossEpochs = 3,
    float32: Float32 = False,
    quantise: Quantise = "int8,binary",
    seed: Seed = 0,
    name: Name = None,
    corpus_size: CorpusSize = 4000,
    max_pairs: MaxPairs = 20_000,
    max_sentences: MaxSentences = 20_000,
    max_documents: MaxDocuments = 20_000,
    max_triplets: MaxTriplets = 20_000,
    max_labelled: MaxLabelled = 20_000,
    augment: Augment = "",
    runs: Runs = Path("runs"),
    reports: Reports = Path("reports"),
    store: Store = None,
    address: Address = None,
    cpus: Cpus = None,
    dashboard: Dashboard = True,
    gpus_per_trial: GpusPerTrial = None,
) -> None:
    """Train named configurations (rows of a paper, or your own) over several seeds, and publish the leaderboard."""
    with input_errors():
        from distilbench.configurations import chosen_encoder, read_configurations

        written = read_configurations(file, row or ())
        teacher = chosen_encoder(written, "teacher", teacher, "all-MiniLM-L6-v2")
        student = chosen_encoder(written, "student", student, "half")
        options = _run_options(dict(locals()))
        from distilbench.config import CompareSettings
        from distilbench.pipeline import compare as run_compare

        settings = CompareSettings(files=tuple(file), rows=tuple(row or ()), seeds=seeds, steps=steps, **options)
        page = run_compare(settings, Console(soft_wrap=True))
    print(f"Leaderboard: {page.resolve()}")  # noqa: T201


def _run_options(given: dict[str, Any]) -> dict[str, Any]:
    """The settings that `sweep` and `compare` share, from their options.

    Raises:
        InputError: --quantise names something else than int8 and binary, or --max-chars is below --min-chars.
    """
    from distilbench.data.folder import Limits
    from distilbench.data.text import TextSettings
    from distilbench.encoder import EncoderSpec
    from distilbench.store import default_store

    quantise = [part.strip() for part in given["quantise"].split(",") if part.strip() not in ("", "none")]
    for part in quantise:
        if part not in ("int8", "binary"):
            raise InputError(f"--quantise {part}: expected int8, binary, both with a comma between, or none")
    limits = (given[f"max_{what}"] or None for what in ("pairs", "sentences", "documents", "triplets", "labelled"))
    on_error: Literal["stop", "skip"] = "skip" if given["skip_bad_rows"] else "stop"
    same = (
        "data student cross_encoder cross_encoder_lr cross_encoder_epochs seed name corpus_size runs reports address cpus "
        "dashboard gpus_per_trial"
    ).split()
    return {
        **{key: given[key] for key in same},
        "text": tuple(given["text"] or ()),
        "text_settings": TextSettings(given["text_column"], given["min_chars"], given["max_chars"], on_error),
        "limits": Limits(*limits),
        "teacher": EncoderSpec(given["teacher"], given["revision"], given["prompt"], given["max_tokens"]),
        "vectors": "float32" if given["float32"] else "float16",
        "quantisations": tuple(dict.fromkeys(quantise)),
        "augment": tuple(part.strip() for part in given["augment"].split(",") if part.strip()),
        "store": given["store"] or default_store(),
    }


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
        from distilbench.store import write_json

        corpus = folder_corpus(data, Limits()) if data else builtin_corpus()
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
