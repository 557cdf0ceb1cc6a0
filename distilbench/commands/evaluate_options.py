"""The options of `evaluate`, and the settings that they become."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from distilbench.commands.options import OPTIONS, RUN_OPTIONS, Shared, one_of, parts
from distilbench.errors import InputError

EVALUATE_OPTIONS: dict[str, Shared] = {
    **{name: OPTIONS[name] for name in ("data", "max_documents", "max_labelled", "backend", "workers")},
    "tasks": (
        Annotated[str, typer.Option(help="Kinds of sets: sts, classification, retrieval, pairs, with commas between.")],
        "sts,classification,retrieval,pairs",
    ),
    "teacher": (
        Annotated[
            str | None,
            typer.Option(help="A model that is scored too, and that retention and differences are relative to."),
        ],
        None,
    ),
    "documents": (
        Annotated[
            str | None,
            typer.Option(
                help="The model that embeds the documents; the others embed the queries (asymmetric retrieval)."
            ),
        ],
        None,
    ),
    "dims": (
        Annotated[str, typer.Option(help="Score also the first so many dimensions, with commas between: 256,128,64.")],
        "",
    ),
    "quantise": (Annotated[str, typer.Option(help="Score also in these: int8, binary.")], ""),
    "indexes": (
        Annotated[
            str,
            typer.Option(
                help="FAISS indexes to measure: flat, ivf, ivf-pq, hnsw, sq8, with commas between; ivf:1024:5 is nlist and "
                "nprobe."
            ),
        ],
        "flat,ivf,ivf-pq,hnsw,sq8",
    ),
    "threads": (Annotated[int, typer.Option(min=1, help="Of searches, and of the models while they are timed.")], 1),
    "batch": (
        Annotated[int | None, typer.Option(min=1, help="Queries searched at a time; default: all at once.")],
        None,
    ),
    "clusters": (
        Annotated[
            int | None,
            typer.Option(
                min=1, help="Retrieval within so many clusters too; default: where a student has a cluster head."
            ),
        ],
        None,
    ),
    "cost": (Annotated[bool, typer.Option(help="Measure each model's size, throughput and latency.")], True),
    "revision": (Annotated[str | None, typer.Option(help="The models' revision on the hub.")], None),
    "prompt": (Annotated[str, typer.Option(help="Text that the models want before every sentence.")], ""),
    "max_tokens": (
        Annotated[int | None, typer.Option(min=3, help="Cut sentences here; default: each model's limit.")],
        None,
    ),
    **{name: RUN_OPTIONS[name] for name in ("name", "runs", "reports")},
    **{name: OPTIONS[name] for name in ("store", "address", "cpus", "dashboard")},
}


def evaluate_settings(models: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `EvaluateSettings` from the options above.

    Raises:
        InputError: an option's value is none of those that it can have.
    """
    from distilbench.data.evaluation import KINDS
    from distilbench.data.folder import Limits
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.settings.pool import PoolSize
    from distilbench.storage.scratch import local_folder
    from distilbench.storage.store import default_store

    def spec(name: str) -> EncoderSpec:
        return EncoderSpec(name, given["revision"], given["prompt"], given["max_tokens"])

    kinds = tuple(dict.fromkeys(one_of("--tasks", kind, KINDS) for kind in parts(given["tasks"])))
    if not kinds:
        raise InputError(f"--tasks {given['tasks']!r}: expected some of {', '.join(KINDS)}")
    quantise = [one_of("--quantise", kind, ("int8", "binary", "none")) for kind in parts(given["quantise"])]
    same = ("threads", "batch", "clusters", "cost", "name", "runs", "reports", "address", "cpus", "dashboard")
    return {
        **{key: given[key] for key in same},
        "data": local_folder(given["data"], "--data") if given["data"] else None,
        "models": tuple(dict.fromkeys(spec(name) for name in models)),
        "teacher": spec(given["teacher"]) if given["teacher"] else None,
        "documents": spec(given["documents"]) if given["documents"] else None,
        "kinds": kinds,
        "limits": Limits(documents=given["max_documents"] or None, labelled=given["max_labelled"] or None),
        "dims": tuple(_dimension(part) for part in parts(given["dims"])),
        "quantisations": tuple(dict.fromkeys(kind for kind in quantise if kind != "none")),
        "indexes": tuple(_index(part) for part in parts(given["indexes"])),
        "backend": one_of("--backend", given["backend"], ("torch", "onnx")),
        "pool": PoolSize(given["workers"]),
        "store": given["store"] or default_store(),
    }


def _dimension(part: str) -> int:
    if not part.isdecimal() or int(part) < 1:
        raise InputError(f"--dims {part}: expected numbers of dimensions, such as 256,128,64")
    return int(part)


def _index(part: str) -> Any:
    from distilbench.evaluation.indexes import FAISS_KINDS, IndexSpec

    kind, *numbers = part.split(":")
    one_of("--indexes", kind, FAISS_KINDS)
    if not numbers:
        return IndexSpec(kind)  # type: ignore[arg-type]
    if len(numbers) != 2 or kind not in ("ivf", "ivf-pq") or not all(n.isdecimal() and int(n) for n in numbers):
        raise InputError(f"--indexes {part}: expected {kind} alone, or ivf or ivf-pq with nlist and nprobe: ivf:1024:5")
    return IndexSpec(kind, lists=(int(numbers[0]), int(numbers[1])))  # type: ignore[arg-type]
