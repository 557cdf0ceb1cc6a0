"""What static students start from: the teacher's vector of every single token, and a tokenizer without special tokens; or the
table of a static student that was trained before.

Axes: V tokens, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode_ids, has_token_table, reads_tokens, token_ids
from distilbench.errors import InputError
from distilbench.prepare.pool import ShardTask, run_in_process
from distilbench.storage.arrays import ShardedArray, load_array, save_array, shard_name
from distilbench.storage.files import atomic_path, remove_folder
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

STEP_VERSION = 1
VECTORS, TABLE, TOKENIZER = "vectors.npy", "table.npy", "tokenizer.json"
SHARD_TOKENS = 2048
TOKENS_AT_ONCE = 1536
"""Padded tokens of one forward pass: 512 sentences of a token between two special ones."""


@dataclass(frozen=True)
class StaticStart:
    """`vectors_VD` by token id, float32; the tokenizer's file, as `tokenizers` reads it."""

    vectors_VD: NDArray[np.float32]
    tokenizer: Path
    trained: bool = False
    """Whether they are a static student's, whose mean over a sentence's tokens is its vector; else the teacher's."""


def load_static_start(folder: Path) -> StaticStart:
    """The start kept in an artifact folder, memory-mapped."""
    trained = (folder / TABLE).exists()
    return StaticStart(load_array(folder / (TABLE if trained else VECTORS)), folder / TOKENIZER, trained)


@dataclass(frozen=True)
class TokenEncoding(ShardTask):
    """Turns words, given as token ids, into shards of the teacher's vectors; each is a sentence with its special tokens."""

    spec: EncoderSpec
    folder: Path
    words: Sequence[Sequence[int]]
    unit: ClassVar[str] = "tokens"

    def load(self) -> Callable[[int, int, int], None]:
        """The encoder; a prompt is part of a sentence and is left out."""
        model = self.spec.load()
        before, after = around_a_token(model)

        def make(shard: int, start: int, stop: int) -> None:
            ids = [[*before, *word, *after] for word in self.words[start:stop]]
            vectors_VD = encode_ids(model, ids, TOKENS_AT_ONCE)
            save_array(self.folder / shard_name(shard), vectors_VD)

        return make


def around_a_token(model: SentenceTransformer) -> tuple[list[int], list[int]]:
    """The special tokens before and after the text of a sentence."""
    none, one = token_ids(model, ["", "a"])
    before = next((i for i, (left, right) in enumerate(zip(none, one, strict=False)) if left != right), len(none))
    return none[:before], none[before:]


def static_start_artifact(teacher: EncoderSpec, store: ArtifactStore) -> Path:
    """The folder with the start, made in this process if it is not there; `teacher` may be a static student of before."""
    if has_token_table(teacher.skeleton()):
        return _table_artifact(teacher, store)
    parts = {"encoder": teacher.identity(), "step_version": STEP_VERSION}

    def make(folder: Path, missing: list[str]) -> None:
        count = _save_tokenizer(teacher, folder / TOKENIZER)
        save_array(
            folder / VECTORS, word_vectors(teacher, [[token] for token in range(count)], folder, "Single tokens")
        )

    return store.build("static", parts, [VECTORS, TOKENIZER], make)


def _table_artifact(student: EncoderSpec, store: ArtifactStore) -> Path:
    def make(folder: Path, missing: list[str]) -> None:
        first: Any = student.load()[0]
        save_array(folder / TABLE, first.embedding.weight.detach().float().numpy())
        with atomic_path(folder / TOKENIZER) as temporary:
            first.tokenizer.save(str(temporary))

    parts = {"table": student.identity(), "step_version": STEP_VERSION}
    return store.build("static", parts, [TABLE, TOKENIZER], make)


def word_vectors(teacher: EncoderSpec, words: Sequence[Sequence[int]], folder: Path, label: str) -> NDArray[np.float32]:
    """The teacher's vector of each word, given as token ids; an interrupted call goes on from what is in `folder`."""
    work = folder / "shards"
    work.mkdir(exist_ok=True)
    task = TokenEncoding(teacher.absolute(), work, words)
    run_in_process(task, task.missing(len(words), SHARD_TOKENS), label)
    vectors_WD = ShardedArray.open(work, len(words), SHARD_TOKENS).block(0, len(words))
    remove_folder(work)
    return vectors_WD


def _save_tokenizer(teacher: EncoderSpec, path: Path) -> int:
    """Write the tokenizer as a static student reads: without padding, cut at the teacher's limit; how many ids it has."""
    model = teacher.load()
    if not reads_tokens(model):
        raise InputError(f"--student static: teacher {teacher.name!r} is no transformer that reads single tokens")
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"--student static: the tokenizer of teacher {teacher.name!r} is not a fast one; expected tokenizer.json"
        )
    backend.no_padding()
    backend.enable_truncation(int(model.max_seq_length))
    with atomic_path(path) as temporary:
        backend.save(str(temporary))
    ids = model[0].model.get_input_embeddings().weight.shape[0]
    return max(int(ids), backend.get_vocab_size())
