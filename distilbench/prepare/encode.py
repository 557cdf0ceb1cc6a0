"""Encode the distinct sentences of a corpus with an encoder, on Ray Data, into the artifact store."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import rich
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from distilbench.encoder import EncoderSpec, default_device, encode
from distilbench.errors import InputError
from distilbench.store import ArtifactStore, ShardedArray, save_array, shard_name, shard_ranges

SHARD_ROWS = 512
"""Sentences per shard: what a killed run loses per worker. Sorting by length inside 512 keeps padding under 10 %."""

GPU_SHARE = 0.25
"""Of a GPU for each worker: several of them tokenise and write while one computes."""

Stored = Literal["float16", "float32"]
"""Precision on disk. float16 halves the files; it moved a Spearman x 100 by 0.01 at most (STS12 of all-MiniLM-L6-v2)."""

STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it computes."""


class ShardEncoder:
    """A Ray Data actor: loads the encoder once, then turns one block of sentences into one shard file."""

    def __init__(self, spec: EncoderSpec, folder: Path, device: str, threads: int, stored: Stored = "float16") -> None:
        import torch

        torch.set_num_threads(threads)
        self.spec, self.folder, self.stored = spec, folder, stored
        self.error = ""
        try:
            self.model = spec.load(device)
        except InputError as error:
            self.error = str(error)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, list[Any]]:
        """Input columns `shard` (int), `sentences` (list of str); output `shard`, `count` and `error`.

        `error` says what is wrong with the encoder, "" for nothing: an exception would reach the driver as mere text.
        """
        counts = []
        for shard, sentences in zip(batch["shard"], batch["sentences"], strict=True):
            if not self.error:
                self._encode(int(shard), list(sentences))
            counts.append(len(sentences))
        return {"shard": list(batch["shard"]), "count": counts, "error": [self.error] * len(counts)}

    def _encode(self, shard: int, sentences: list[str]) -> None:
        try:
            with np.errstate(over="raise"):
                vectors_ND = encode(self.model, sentences, prompt=self.spec.prompt).astype(self.stored)
        except FloatingPointError as error:
            self.error = f"encoder {self.spec.name!r}: {error}"
        else:
            save_array(self.folder / shard_name(shard), vectors_ND)


def encode_corpus(
    sentences: tuple[str, ...],
    sentences_fingerprint: str,
    spec: EncoderSpec,
    store: ArtifactStore,
    *,
    label: str,
    stored: Stored = "float16",
) -> tuple[ShardedArray, int]:
    """Vectors of `sentences` (rows in their order), and how many sentences had to be encoded for it (0: all found).

    Needs `ray.init` only when something is missing. `stored` is the precision of the shards on disk.

    Raises:
        InputError: the encoder cannot be loaded, or gives a vector that is not finite.
    """
    device = default_device()
    parts = {
        "encoder": spec.identity(),
        "sentences": sentences_fingerprint,
        "precision": "bfloat16 forward" if device == "cuda" else "float32 forward",
        "stored": stored,
        "shard_rows": SHARD_ROWS,
        "step_version": STEP_VERSION,
    }
    ranges = shard_ranges(len(sentences), SHARD_ROWS)
    names = [shard_name(i) for i in range(len(ranges))]
    encoded = 0

    def make(folder: Path, missing: list[str]) -> None:
        nonlocal encoded
        wanted = [(names.index(name), *ranges[names.index(name)]) for name in missing]
        items = [{"shard": i, "sentences": list(sentences[start:stop])} for i, start, stop in wanted]
        encoded = sum(stop - start for _, start, stop in wanted)
        if encoded < len(sentences):
            kept = len(sentences) - encoded
            rich.print(f"{label}: {kept} of {len(sentences)} sentences were encoded before the interruption")
        _run(items, encoded, spec, folder, device, stored, label)

    path = store.build("embeddings", parts, names, make)
    first = np.load(path / names[0], mmap_mode="r", allow_pickle=False)
    return ShardedArray(path, len(sentences), first.shape[1], SHARD_ROWS), encoded


def _run(
    items: list[dict[str, Any]], total: int, spec: EncoderSpec, folder: Path, device: str, stored: Stored, label: str
) -> None:
    arguments = {"spec": spec.absolute(), "folder": folder, "device": device, "threads": 1, "stored": stored}
    run_pool(ShardEncoder, arguments, items, total, device, label, "sentences")


def run_pool(
    worker: type, arguments: dict[str, Any], items: list[dict[str, Any]], total: int, device: str, label: str, unit: str
) -> None:
    """Give each of `items` to a Ray Data actor `worker(**arguments)`, one actor per CPU or share of a GPU.

    A worker returns the columns `count` (how many of the `total` it has done, for the progress bar in `unit`) and `error`
    ("" when all is well) beside its own.

    Raises:
        InputError: a worker has returned an `error`.
    """
    import ray
    import ray.data

    resources = ray.cluster_resources()
    gpus, cpus = resources.get("GPU", 0.0), int(resources.get("CPU", 1))
    share = GPU_SHARE if device == "cuda" and gpus else 0.0
    workers = max(1, min(cpus, int(gpus / share) if share else cpus, len(items)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False  # ours counts sentences, theirs counts blocks
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        worker,
        fn_constructor_kwargs=arguments,
        compute=ray.data.ActorPoolStrategy(size=workers),
        batch_size=1,
        num_cpus=1,
        num_gpus=share,
    )
    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task(label, total=total, rate="")
        for row in dataset.iter_rows():
            if row["error"]:
                raise InputError(row["error"])
            progress.advance(task, row["count"])
            speed = progress.tasks[task].speed
            progress.update(task, rate=f"{speed:,.0f} {unit}/s" if speed else "")
