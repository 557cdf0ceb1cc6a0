"""Encode the distinct sentences of a corpus with an encoder, on Ray Data, into the artifact store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import rich
from numpy.typing import NDArray

from distilbench.choices import Backend, Stored
from distilbench.cluster.nodes import Node, gpus_elsewhere, working_device
from distilbench.data.roles import PLAIN
from distilbench.data.sentences import CorpusText, SentenceFile, sentences_artifact
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError
from distilbench.prepare.pool import Shard, ShardTask, run_in_process, run_pool
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.arrays import (
    MANIFEST,
    ShardedArray,
    damaged_shards,
    load_array,
    save_array,
    shard_name,
    shard_ranges,
)
from distilbench.storage.files import fingerprint, write_json
from distilbench.storage.store import ArtifactStore

KIND = "embeddings"
SHARD_ROWS = {"cpu": 512, "cuda": 8192}
"""Sentences per shard: what a killed run loses per worker. Sorting by length inside 512 keeps padding under 10 %; a GPU
reads some thousands of sentences at once."""
ONE_PROCESS = 2048
"""Sentences up to which threads of one process read them on one machine without a GPU: a worker takes 15 s to start."""
BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""What `torch.cpu.get_capabilities` calls those that multiply bfloat16 numbers: of x86 and of Arm."""
READ = "read.json"
"""The files of the store, in order, whose sentences an artifact has the vectors of."""
ROLES = "roles.npy"
"""The role in which each was read, by an encoder that reads them differently."""
MOST_UNKNOWN = 0.75
"""The largest part of a corpus that is encoded apart, where the store has the vectors of the others."""

RATE_S, RATE_BATCH = 3.0, 64
"""Seconds, and sentences at a time, in which the rate of an encoder is measured."""

STEP_VERSION = 1


@dataclass(frozen=True)
class TeacherEncoding(ShardTask):
    """Turns rows of sentences into shards of vectors, with `bf16` in bfloat16 on a CPU too; `roles_N` as in `Corpus`."""

    spec: EncoderSpec
    sentences: SentenceFile
    folder: Path
    device: str
    stored: Stored
    roles_N: NDArray[np.int8] | None = None
    bf16: bool = False

    def suits_one_process(self, machine: Node) -> bool:
        """Whether there is one GPU, and it is used; or there are so few sentences that workers would only start."""
        return machine.gpus == 1 if self.device == "cuda" else len(self.sentences) <= ONE_PROCESS

    @property
    def threads_here(self) -> int | None:
        """On a CPU each computes alone."""
        return 2 if self.device == "cuda" else None

    def load(self) -> Callable[[int, int, int], None]:
        """The encoder onto its device."""
        check_device(self.device)
        if self.bf16 and self.device == "cpu":
            check_bf16()
        model = self.spec.load(self.device)

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


@dataclass(frozen=True)
class CorpusEncoding:
    """How sentences are encoded into the store: by which encoder, what runs it, and in which precision they are kept."""

    spec: EncoderSpec
    store: ArtifactStore
    label: str
    stored: Stored = "float16"
    backend: Backend = "torch"
    size: PoolSize = AS_FIT
    in_process: bool = False
    """Whether it is done in this process, without Ray."""

    def vectors(self, text: CorpusText) -> tuple[ShardedArray, int]:
        """The vectors of the sentences, and how many sentences had to be encoded for it (0: all were there).

        A sentence that this encoder has read for another corpus of the store, in the same role, is not encoded again, but
        where most are new. Needs `ray.init` only when something is missing.
        """
        parts, device = self._parts(text)
        rows = SHARD_ROWS[device]
        shards = [(i, start, stop) for i, (start, stop) in enumerate(shard_ranges(len(text.sentences), rows))]
        names, counts = [shard_name(i) for i, _, _ in shards], list[int]()

        def make(folder: Path, missing: list[str]) -> None:
            missing_shards = [shard for shard in shards if shard_name(shard[0]) in set(missing)]
            counts.append(self._make(folder, missing_shards, text, parts, device))

        path = self.store.build(KIND, parts, [*names, READ, *([ROLES] if self.spec.by_role else [])], make)
        widths = {load_array(path / name).shape[1] for name in names}
        if len(widths) > 1:
            found = " and of ".join(map(str, sorted(widths)))
            raise InputError(f"encoder {self.spec.name!r}: it gave vectors of {found} dimensions; expected one width")
        return ShardedArray(path, len(text.sentences), widths.pop(), rows), sum(counts)

    def unknown(self, text: CorpusText) -> int:
        """How many of the sentences would have to be encoded now."""
        parts, _ = self._parts(text)
        if self.store.find(KIND, parts):
            return 0
        readable = sentences_artifact(text.sentences, text.fingerprint, self.store)
        known = known_vectors(readable, self._roles(text), parts, self.store)
        return len(text.sentences) if known is None else int((known[1] < 0).sum())

    def rate(self, sentences: Sequence[str]) -> float:
        """Sentences a second that the CPU encodes, measured on these for `RATE_S` seconds at most."""
        model = self.spec.load("cpu")
        encode(model, sentences[:RATE_BATCH])
        done, began = 0, time.perf_counter()
        while done < len(sentences) and time.perf_counter() < began + RATE_S:
            part = sentences[done : done + RATE_BATCH]
            encode(model, part, bf16=self.backend == "bf16")
            done += len(part)
        return done / (time.perf_counter() - began)

    def _roles(self, text: CorpusText) -> NDArray[np.int8] | None:
        """The roles that count in an encoding of the text; None where all is read in one way."""
        if not self.spec.by_role:
            return None
        return np.full(len(text.sentences), PLAIN, np.int8) if text.roles_N is None else text.roles_N

    def _parts(self, text: CorpusText) -> tuple[dict[str, Any], str]:
        parts = {
            "encoder": self.spec.identity(),
            "sentences": text.fingerprint,
            "stored": self.stored,
            "step_version": STEP_VERSION,
        }
        device = self._device(parts)
        return {**parts, **self._on(device)}, device

    def _device(self, parts: Mapping[str, Any]) -> str:
        if self.spec.int8:
            return "cpu"
        if self.in_process or not gpus_elsewhere(self.size.grow_to):
            return default_device()
        if self.store.find(KIND, {**parts, **self._on("cuda")}):  # no GPU node need come for it
            return "cuda"
        return working_device(self.size.grow_to)

    def _on(self, device: str) -> dict[str, Any]:
        """What the vectors depend on where they are made on this device."""
        half = self.backend == "bf16" or device == "cuda"
        return {"precision": f"{'bfloat16' if half else 'float32'} forward", "shard_rows": SHARD_ROWS[device]}

    def _make(
        self, folder: Path, shards: Sequence[Shard], text: CorpusText, parts: Mapping[str, Any], device: str
    ) -> int:
        """Write these shards, from vectors that the store has where they are enough; how many sentences were encoded."""
        total, wanted = len(text.sentences), sum(stop - start for _, start, stop in shards)
        if 0 < wanted < total:
            rich.print(f"{self.label}: {total - wanted} of {total} sentences were encoded before the interruption")
        readable = sentences_artifact(text.sentences, text.fingerprint, self.store)
        write_json(folder / READ, [f"{path.parent.name}/{path.name}" for path in readable.paths])
        roles_N = self._roles(text)
        if roles_N is not None:
            save_array(folder / ROLES, roles_N)
        if not shards:  # `READ` alone was damaged
            return 0
        known = known_vectors(readable, roles_N, parts, self.store)
        rows_n = np.concatenate([np.arange(start, stop) for _, start, stop in shards])
        if known is not None:
            before, row_N = known
            rest_n = rows_n[row_N[rows_n] < 0]
            if len(rest_n) <= MOST_UNKNOWN * wanted:
                rest, roles_n = readable.take(rest_n), None if roles_N is None else roles_N[rest_n]
                key = fingerprint([rest, None if roles_n is None else roles_n.tolist()])
                new, encoded = self.vectors(CorpusText(rest, key, roles_n)) if rest else (before, 0)
                for i, start, stop in shards:
                    is_new_n = row_N[start:stop] < 0
                    vectors_ND = np.empty((stop - start, before.width), dtype=self.stored)
                    vectors_ND[~is_new_n] = before.take(row_N[start:stop][~is_new_n])
                    vectors_ND[is_new_n] = new.take(np.searchsorted(rest_n, np.arange(start, stop)[is_new_n]))
                    save_array(folder / shard_name(i), vectors_ND)
                reused = wanted - len(rest_n)
                rich.print(f"{self.label}: {reused} of {total} sentences were encoded for another corpus before")
                return encoded
        bf16, gpu = self.backend == "bf16", device == "cuda"
        task = TeacherEncoding(self.spec.absolute(), readable, folder, device, self.stored, roles_N, bf16)
        if self.in_process:
            run_in_process(task, shards, self.label, threads=task.threads_here)
        else:
            run_pool(task, shards, self.label, size=self.size, gpu=gpu, store=self.store)
        return wanted


def check_device(device: str) -> None:
    """Refuse to encode for a GPU where torch sees none."""
    if device == "cuda" and default_device() != "cuda":
        raise InputError(
            "encoding was given to a worker without a GPU that torch sees; expected one build of torch on all"
        )


def check_bf16() -> None:
    """Refuse a processor that has no instructions for bfloat16: without them it takes many times as long."""
    import torch

    capable = torch.cpu.get_capabilities()
    if not any(capable.get(name) for name in BF16_INSTRUCTIONS):
        raise InputError(
            "--backend bf16: this processor has no instructions for bfloat16 (AVX512-BF16, AMX, or Arm's); expected torch"
        )


def _keys(sentences: SentenceFile, roles_N: NDArray[np.int8] | None) -> pa.ChunkedArray:
    """What tells apart what an encoder has read: the text, after its role where that counts."""
    if roles_N is None:
        return sentences.column()
    return pc.binary_join_element_wise(pa.array(roles_N).cast(pa.string()), sentences.column(), "")


def known_vectors(
    sentences: SentenceFile, roles_N: NDArray[np.int8] | None, parts: Mapping[str, Any], store: ArtifactStore
) -> tuple[ShardedArray, NDArray[np.int64]] | None:
    """The artifact that has the most of N `sentences`, read in these roles, and the row of each in it (-1: it has not that
    one); None without one.

    It depends on the same `parts`, its sentences excepted.
    """
    text, most, best = _keys(sentences, roles_N), 0, None
    for manifest in sorted(store.root.glob(f"{KIND}-*/{MANIFEST}")):
        try:
            theirs = dict(json.loads(manifest.read_text())["parts"])
            if theirs == parts or theirs | {"sentences": parts["sentences"]} != parts:
                continue
            read = json.loads((manifest.parent / READ).read_text())
            roles_K = None if roles_N is None else load_array(manifest.parent / ROLES)
        except (OSError, EOFError, ValueError, LookupError, TypeError):
            continue  # another process takes it away, or it is damaged: `ArtifactStore.find` says so to whom it concerns
        files = [store.root / name for name in read]
        if all(path.exists() and not damaged_shards(path.parent) for path in files):
            known = SentenceFile(*files)
            found = pc.index_in(text, value_set=_keys(known, roles_K))
            if len(found) - found.null_count > most:
                most, best = len(found) - found.null_count, (theirs, len(known), found)
    if best is None or (path := store.find(KIND, best[0])) is None:
        return None
    row_N = np.asarray(best[2].fill_null(-1)).astype(np.int64)
    return ShardedArray.open(path, best[1], parts["shard_rows"]), row_N
