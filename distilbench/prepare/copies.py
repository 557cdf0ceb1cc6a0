"""Augmented copies of the training sentences, made on Ray Data, each with its source and its operation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from distilbench.data.corpus import Copies, Corpus, Rows
from distilbench.data.distinct import KEY, write_distinct
from distilbench.data.sentences import TEXT, SentenceFile, in_batches, read_arrow, sentences_artifact, write_arrow
from distilbench.prepare.augment.operation import Operation, same
from distilbench.prepare.pool import ShardTask, run_pool
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.arrays import array_sha256, shard_ranges
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

SHARD_ROWS = 512
"""Sentences per shard: what a killed run loses per worker. Fixed, so that a translator's batches are the same for any
number of workers."""

STEP_VERSION = 1
KEPT, COUNTS = "kept.arrow", "counts.json"
SOURCE, OPERATION = "source", "operation"
COPY = pa.schema([(SOURCE, pa.int64()), (TEXT, pa.string())])
KEYED = pa.schema([(KEY, pa.string()), (SOURCE, pa.int64()), (OPERATION, pa.int8()), (TEXT, pa.string())])


@dataclass(frozen=True)
class Copying(ShardTask):
    """Makes one copy of each sentence of a shard; `train` are the rows of the sentences that are copied."""

    operation: Operation
    seed: int
    sentences: SentenceFile
    train: Rows
    folder: Path

    def load(self) -> Callable[[int, int, int], None]:
        """What the operation needs: WordNet, a model."""
        copies_of = self.operation.load()

        def make(shard: int, start: int, stop: int) -> None:
            rows = self.train[start:stop]
            texts = copies_of(self.sentences.take(rows), self.seed)
            batch = pa.record_batch([pa.array(rows), pa.array(texts, pa.string())], schema=COPY)
            write_arrow(self.folder / _name(shard), [batch], COPY)

        return make

    def files(self, shard: int) -> tuple[str, ...]:
        """One Arrow file."""
        return (_name(shard),)


def _name(shard: int) -> str:
    return f"shard-{shard:05d}.arrow"


def augmented_corpus(
    corpus: Corpus, operations: Sequence[Operation], seed: int, store: ArtifactStore, size: PoolSize = AS_FIT
) -> Corpus:
    """`corpus` and one changed copy of each training sentence for each of `operations`.

    The copies come after the sentences of `corpus`, which keep their rows; they are in `copies` and in no set. A copy is
    dropped where it is unchanged, a copy already made, or a sentence of `corpus`, such as an evaluation sentence; spaces and
    case do not tell it from one of those. A line of `found` has the numbers. Needs `ray.init` only when something is missing.
    """
    if not operations:
        return corpus
    base = sentences_artifact(corpus.sentences, corpus.sentences_fingerprint, store)
    folders = [_copies_artifact(corpus, base, operation, seed, store, size) for operation in operations]
    shards = len(shard_ranges(len(corpus.train), SHARD_ROWS))
    names = [operation.name for operation in operations]

    def make(folder: Path, missing: list[str]) -> None:
        counts = {name: {"made": 0, "unchanged": 0} for name in names}
        corpus_keys = ([same(s) for s in batch] for batch in in_batches(corpus.sentences))
        write_distinct(
            folder / KEPT, _keyed(folders, [counts[name] for name in names], shards, base), KEYED, corpus_keys
        )
        kept = np.bincount(read_arrow(folder / KEPT).column(OPERATION).to_numpy(), minlength=len(names))
        write_json(
            folder / COUNTS, {name: {**counts[name], "kept": int(n)} for name, n in zip(names, kept, strict=True)}
        )

    parts = {"copies": [folder.name for folder in folders], "step_version": STEP_VERSION}
    path = store.build("augmented", parts, [KEPT, COUNTS], make)
    table = read_arrow(path / KEPT)
    copies = Copies(
        rows=np.arange(len(base), len(base) + table.num_rows, dtype=np.int64),
        source=table.column(SOURCE).to_numpy(),
        operation=table.column(OPERATION).to_numpy(),
        names=tuple(names),
    )
    return replace(
        corpus,
        sentences=SentenceFile(*base.paths, path / KEPT),
        copies=copies,
        roles_N=None if corpus.roles_N is None else np.append(corpus.roles_N, corpus.roles_N[copies.source]),
        found=(*corpus.found, *_count_lines(json.loads((path / COUNTS).read_text()))),
    )


def _copies_artifact(
    corpus: Corpus, base: SentenceFile, operation: Operation, seed: int, store: ArtifactStore, size: PoolSize
) -> Path:
    parts = {
        "operation": {"name": operation.name, **operation.identity()},
        "seed": seed,
        "sentences": corpus.sentences_fingerprint,
        "rows": array_sha256(corpus.train),
        "shard_rows": SHARD_ROWS,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        operation.check()
        task, label = Copying(operation, seed, base, corpus.train, folder), f"Augmentation, {operation.name}"
        shards = task.missing(len(corpus.train), SHARD_ROWS)
        run_pool(task, shards, label, size=size, gpu=operation.uses_gpu, store=store)

    names = [_name(i) for i, _ in enumerate(shard_ranges(len(corpus.train), SHARD_ROWS))]
    return store.build("copies", parts, names, make)


def _keyed(
    folders: Sequence[Path], counts: Sequence[dict[str, int]], shards: int, base: SentenceFile
) -> Iterator[pa.RecordBatch]:
    for number, (count, folder) in enumerate(zip(counts, folders, strict=True)):
        for shard in range(shards):
            table = read_arrow(folder / _name(shard))
            rows, texts = table.column(SOURCE).to_numpy(), table.column(TEXT).to_pylist()
            keys, sources = [same(text) for text in texts], [same(text) for text in base.take(rows)]
            changed = [i for i, (key, source) in enumerate(zip(keys, sources, strict=True)) if key not in ("", source)]
            count["made"] += len(texts)
            count["unchanged"] += len(texts) - len(changed)
            of_operation = np.full(len(changed), number)
            columns = [[keys[i] for i in changed], rows[changed], of_operation, [texts[i] for i in changed]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, KEYED, strict=True)]
            yield pa.record_batch(arrays, schema=KEYED)


def _count_lines(counts: dict[str, dict[str, int]]) -> Iterator[str]:
    for name, count in counts.items():
        repeated = count["made"] - count["unchanged"] - count["kept"]
        yield (
            f"augmentation {name}: {count['kept']:,} sentences from {count['made']:,} "
            f"({count['unchanged']:,} unchanged, {repeated:,} already there)"
        )
