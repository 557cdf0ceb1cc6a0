"""The student's token ids of every sentence, once: one flat memory-mapped array and the offsets into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.encoder import EncoderSpec, token_ids
from distilbench.store import ArtifactStore, save_array

CHUNK = 10_000
STEP_VERSION = 1


@dataclass(frozen=True)
class Tokens:
    """Ids of sentence i are `ids[offsets[i] : offsets[i + 1]]`."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of the sentences `rows`, special tokens included."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows])

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


def load_tokens(folder: Path) -> Tokens:
    """The tokens kept in an artifact folder, memory-mapped."""
    return Tokens(*(np.load(folder / n, mmap_mode="r", allow_pickle=False) for n in ("ids.npy", "offsets.npy")))


def tokens_artifact(
    sentences: Sequence[str], sentences_fingerprint: str, spec: EncoderSpec, store: ArtifactStore
) -> Path:
    """The folder with the tokens of `sentences` by the tokenizer of `spec`, cut at its limit, made if not there."""
    parts = {
        "encoder": spec.identity(),
        "sentences": sentences_fingerprint,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        model = spec.load()
        rows: list[list[int]] = []
        for start in range(0, len(sentences), CHUNK):
            rows += token_ids(model, sentences[start : start + CHUNK], spec.prompt)
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(r) for r in rows], out=offsets[1:])
        save_array(folder / "ids.npy", np.concatenate([np.array(r, dtype=np.int32) for r in rows]))
        save_array(folder / "offsets.npy", offsets)

    return store.build("tokens", parts, ["ids.npy", "offsets.npy"], make)
