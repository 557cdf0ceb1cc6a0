"""Encode the distinct sentences of a corpus with an encoder, on Ray Data, into the artifact store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rich
from numpy.typing import NDArray

from distilbench.choices import Backend, Stored
from distilbench.cluster.nodes import gpus_elsewhere, working_device
from distilbench.data.sentences import SentenceFile, sentences_artifact
from distilbench.encoders.bf16 import check_bf16
from distilbench.encoders.encoder import EncoderSpec, default_device, encode
from distilbench.errors import InputError
from distilbench.prepare.embedding_reuse import KIND, KnownVectors, known_vectors
from distilbench.prepare.in_process import run_in_process
from distilbench.prepare.onnx import load_onnx, onnx_artifact
from distilbench.prepare.pool import Shard, ShardTask, run_pool
from distilbench.settings.pool import AS_FIT, PoolSize
from distilbench.storage.arrays import ShardedArray, save_array, shard_name, shard_ranges
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore

SHARD_ROWS = {"cpu": 512, "cuda": 8192}
"""Sentences per shard: what a killed run loses per worker. Sorting by length inside 512 keeps padding under 10 %; a GPU
reads some thousands of sentences at once."""


MOST_UNKNOWN = 0.75
"""The largest part of a corpus that is encoded apart, where the store has the vectors of the others."""

STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it computes."""


@dataclass(frozen=True)
class TeacherEncoding(ShardTask):
    """Turns rows of sentences into shards of vectors; `graph` is the encoder for ONNX Runtime, None uses PyTorch.

    `bf16`: in bfloat16 on a CPU too. `roles_N` are the roles of the sentences; with None they are neither queries nor
    documents.
    """

    spec: EncoderSpec
    sentences: SentenceFile
    folder: Path
    device: str
    stored: Stored
    graph: Path | None = None
    roles_N: NDArray[np.int8] | None = None
    bf16: bool = False

    def load(self) -> Callable[[int, int, int], None]:
        """The encoder onto its device."""
        if self.device == "cuda" and default_device() != "cuda":
            raise InputError(
                "encoding was given to a worker without a GPU that torch sees; expected one build of torch on all"
            )
        if self.bf16 and self.device == "cpu":
            check_bf16()
        model = self.spec.load(self.device) if self.graph is None else load_onnx(self.spec, self.graph)

        def make(shard: int, start: int, stop: int) -> None:
            try:
                with np.errstate(over="raise"):
                    before = self.spec.prompts_before(self.roles_N, start, stop)
                    vectors_ND = encode(model, self.sentences[start:stop], prompt=before, bf16=self.bf16)
                    stored_ND = vectors_ND.astype(self.stored)
            except (FloatingPointError, ValueError) as error:
                raise InputError(f"encoder {self.spec.name!r}: {error}") from None
            save_array(self.folder / shard_name(shard), stored_ND)

        return make


def _on(device: str, bf16: bool) -> dict[str, Any]:
    """What the vectors depend on where they are made on this device."""
    precision = "bfloat16 forward" if bf16 or device == "cuda" else "float32 forward"
    return {"precision": precision, "shard_rows": SHARD_ROWS[device]}


def encode_corpus(
    sentences: Sequence[str],
    sentences_fingerprint: str,
    spec: EncoderSpec,
    store: ArtifactStore,
    *,
    label: str,
    stored: Stored = "float16",
    backend: Backend = "torch",
    size: PoolSize = AS_FIT,
    here: bool = False,
    roles_N: NDArray[np.int8] | None = None,
) -> tuple[ShardedArray, int]:
    """Vectors of `sentences` (rows in their order), and how many sentences had to be encoded for it (0: all found).

    A sentence that this encoder has read for another corpus of the store is not encoded again, but where most are new, or
    are read by role. Needs `ray.init` only when something is missing; `here`: never, it is encoded in this process.
    `stored` is the precision of the shards on disk. `roles_N` are the roles of the sentences, of which
    `sentences_fingerprint` is too.
    """
    common_parts = {
        "encoder": spec.identity(),
        "sentences": sentences_fingerprint,
        "stored": stored,
        **({"backend": backend} if backend == "onnx" else {}),
        "step_version": STEP_VERSION,
    }
    bf16 = backend == "bf16"
    if backend == "onnx":
        device = "cpu"
    elif here or not gpus_elsewhere(size.grow_to):
        device = default_device()
    elif store.find(KIND, {**common_parts, **_on("cuda", bf16)}):  # no GPU node need come for it
        device = "cuda"
    else:
        device = working_device(size.grow_to)
    parts, rows = {**common_parts, **_on(device, bf16)}, SHARD_ROWS[device]
    shards = [(i, start, stop) for i, (start, stop) in enumerate(shard_ranges(len(sentences), rows))]
    encoded = 0

    def make(folder: Path, missing: list[str]) -> None:
        nonlocal encoded
        absent = set(missing)
        missing_shards = [shard for shard in shards if shard_name(shard[0]) in absent]
        encoded = sum(stop - start for _, start, stop in missing_shards)
        if encoded < len(sentences):
            already_encoded = len(sentences) - encoded
            rich.print(f"{label}: {already_encoded} of {len(sentences)} sentences were encoded before the interruption")
        readable = sentences_artifact(sentences, sentences_fingerprint, store)
        if not spec.by_role and (found := _partly_known(readable, missing_shards, parts, store)):
            known, rest_n = found
            encoded = 0
            if len(rest_n):
                rest = readable.take(rest_n)
                vectors_of_rest, encoded = encode_corpus(
                    rest,
                    fingerprint(rest),
                    spec,
                    store,
                    label=label,
                    stored=stored,
                    backend=backend,
                    size=size,
                    here=here,
                )
                known = known.with_vectors(rest_n, vectors_of_rest)
            for i, start, stop in missing_shards:
                save_array(folder / shard_name(i), known.block(start, stop).astype(stored))
            kept = sum(stop - start for _, start, stop in missing_shards) - len(rest_n)
            rich.print(f"{label}: {kept} of {len(sentences)} sentences were encoded for another corpus before")
            return
        graph = onnx_artifact(spec, store) if backend == "onnx" else None
        task = TeacherEncoding(spec.absolute(), readable, folder, device, stored, graph, roles_N, bf16)
        if here:
            run_in_process(task, missing_shards, label, "sentences", gpu=device == "cuda")
        else:
            run_pool(task, missing_shards, label, "sentences", size=size, gpu=device == "cuda", store=store)

    names = [shard_name(i) for i, _, _ in shards]
    path = store.build(KIND, parts, names, make)
    widths = {np.load(path / name, mmap_mode="r", allow_pickle=False).shape[1] for name in names}
    if len(widths) > 1:
        widths_found = " and of ".join(map(str, sorted(widths)))
        raise InputError(f"encoder {spec.name!r}: it gave vectors of {widths_found} dimensions; expected one width")
    return ShardedArray(path, len(sentences), widths.pop(), rows), encoded


def _partly_known(
    sentences: SentenceFile, shards: Sequence[Shard], parts: dict[str, Any], store: ArtifactStore
) -> tuple[KnownVectors, NDArray[np.int64]] | None:
    """What the store has of the sentences of `shards` for other corpora, and the others; None where it has too few."""
    rows_n = np.concatenate([np.arange(start, stop) for _, start, stop in shards])
    known = known_vectors(sentences, parts, store)
    rest_n = known.unknown(rows_n)
    return (known, rest_n) if len(rest_n) <= MOST_UNKNOWN * len(rows_n) else None
