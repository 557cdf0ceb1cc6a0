"""The student's token ids of every sentence, once: one flat memory-mapped array and the offsets into it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.data.sentences import CorpusText, SentenceFile, sentences_artifact
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import token_ids
from distilbench.prepare.pool import ShardTask, run_in_process, run_pool
from distilbench.prepare.static_start import TOKENIZER
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.arrays import load_array, save_array, shard_name, shard_ranges
from distilbench.storage.files import atomic_path, remove_folder
from distilbench.storage.store import ArtifactStore

SHARD_ROWS = 16_384
"""Sentences that a worker tokenises at a time."""
ONE_PROCESS = 1_000_000
"""Sentences up to which this process makes the tokens: a tokenizer uses all cores, and workers take long to start."""

STEP_VERSION = 1
FILES = ("ids.npy", "offsets.npy")
IDS = np.dtype(np.int32)


@dataclass(frozen=True)
class Tokens:
    """Ids of sentence i are `ids[offsets[i] : offsets[i + 1]]`."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the sentences `rows`, special tokens included."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def flat(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of the sentences `rows`, one sentence after the other, and where each begins."""
        lengths = self.lengths_of(rows)
        starts = np.cumsum(lengths) - lengths
        places = np.repeat(np.asarray(self.offsets[rows]) - starts, lengths) + np.arange(int(lengths.sum()))
        return np.asarray(self.ids[places], dtype=np.int64), starts

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


def load_tokens(folder: Path) -> Tokens:
    """The tokens kept in an artifact folder, memory-mapped."""
    return Tokens(*(load_array(folder / name) for name in FILES))


@dataclass(frozen=True)
class Tokenising(ShardTask):
    """Turns rows of sentences into shards of ids, each with the lengths of its sentences: ids of the encoder, or of a static
    student's tokenizer where its file is given."""

    spec: EncoderSpec
    sentences: SentenceFile
    folder: Path
    roles_N: NDArray[np.int8] | None = None
    static: Path | None = None

    def load(self) -> Callable[[int, int, int], None]:
        """The encoder, whose tokenizer and limit are its module's; or the static student's tokenizer alone."""
        read = self._reader()

        def make(shard: int, start: int, stop: int) -> None:
            before = self.spec.prompts_before(self.roles_N, start, stop)
            pairs = zip(before, self.sentences[start:stop], strict=True)
            rows = read([(prompt or "") + sentence for prompt, sentence in pairs])
            lengths = np.array([len(row) for row in rows], dtype=np.int64)
            save_array(_lengths(self.folder, shard), lengths)
            ids = np.fromiter(itertools.chain.from_iterable(rows), dtype=IDS, count=int(lengths.sum()))
            save_array(self.folder / shard_name(shard), ids)  # last: it says that the shard is done

        return make

    def _reader(self) -> Callable[[Sequence[str]], list[list[int]]]:
        if self.static is None:
            model = self.spec.load()
            return lambda texts: token_ids(model, texts)
        from tokenizers import Tokenizer

        reader = Tokenizer.from_file(str(self.static))
        return lambda texts: [found.ids for found in reader.encode_batch_fast(texts, add_special_tokens=False)]

    def files(self, shard: int) -> tuple[str, ...]:
        """Lengths, then ids."""
        return _lengths(self.folder, shard).name, shard_name(shard)


def tokens_artifact(
    text: CorpusText, spec: EncoderSpec, store: ArtifactStore, size: PoolSize = AS_FIT, static: Path | None = None
) -> Path:
    """The folder with the tokens of `text` by the tokenizer of `spec`, cut at its limit, made if not there; by that of a
    static student where the artifact that it starts from is given.

    Without a prompt of `spec` nothing is put before a sentence: a student has no default prompt. Of more than `ONE_PROCESS`
    sentences the work is Ray Data's, and needs `ray.init`.
    """
    parts = {
        "encoder": spec.identity(),
        **({} if static is None else {"static": static.name}),
        "sentences": text.fingerprint,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        work = folder / "shards"
        work.mkdir(exist_ok=True)
        readable = sentences_artifact(text.sentences, text.fingerprint, store)
        tokenizer = None if static is None else static / TOKENIZER
        task = Tokenising(spec.absolute(), readable, work, text.roles_N, tokenizer)
        shards = task.missing(len(text.sentences), SHARD_ROWS)
        if len(text.sentences) > ONE_PROCESS:
            run_pool(task, shards, "Tokens", size=size, store=store)
        else:
            run_in_process(task, shards, "Tokens", threads=2)
        _join(work, len(shard_ranges(len(text.sentences), SHARD_ROWS)), folder)
        remove_folder(work)

    return store.build("tokens", parts, FILES, make)


def _lengths(folder: Path, shard: int) -> Path:
    return folder / f"lengths-{shard_name(shard)}"


def _join(work: Path, shards: int, folder: Path) -> None:
    lengths = np.concatenate([np.load(_lengths(work, shard), allow_pickle=False) for shard in range(shards)])
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    # Written, not mapped: a full disk is an error of `write`, but kills a process that writes through a map.
    with atomic_path(folder / FILES[0]) as temporary, temporary.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(IDS), "fortran_order": False, "shape": (int(offsets[-1]),)}
        np.lib.format.write_array_header_1_0(file, header)
        for shard in range(shards):
            file.write(np.load(work / shard_name(shard), allow_pickle=False).tobytes())
    save_array(folder / FILES[1], offsets)
