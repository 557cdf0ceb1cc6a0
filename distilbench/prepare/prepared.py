"""What a trial reads: the artifacts of one corpus, teacher and student start, as paths that any worker can open."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, Rows
from distilbench.encoder import EncoderSpec
from distilbench.prepare.pca import Pca, load_pca
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.records import selection_groups
from distilbench.store import ShardedArray, save_array, write_json
from distilbench.student import absolute_student


@dataclass(frozen=True)
class DevSet:
    """An STS dev set by rows of the corpus."""

    name: str
    left_P: Rows
    right_P: Rows
    score_P: NDArray[np.float64]


@dataclass(frozen=True)
class Prepared:
    """Inputs of every trial. `tokens` is None when no method of this sweep trains an encoder."""

    teacher: EncoderSpec
    student: str
    vectors: ShardedArray
    pca: Pca
    tokens: Tokens | None
    train: Rows
    pairs_P2: Rows
    dev: tuple[DevSet, ...]


def selection_sets(corpus: Corpus) -> list[DevSet]:
    """The dev sets that trials are selected by."""
    dev = [s for s in corpus.sts if s.split == "dev"]
    chosen = selection_groups(s.group for s in dev)
    return [DevSet(f"{s.name} dev", s.left_P, s.right_P, s.score_P) for s in dev if s.group in chosen]


def save_prepared(
    folder: Path,
    corpus: Corpus,
    teacher: EncoderSpec,
    student: str,
    vectors: ShardedArray,
    pca: Path,
    tokens: Path | None,
) -> None:
    """Write the row numbers of the training and dev sets, and where the artifacts are, into `folder`."""
    dev = selection_sets(corpus)
    save_array(folder / "train.npy", corpus.train)
    save_array(folder / "pairs.npy", corpus.pairs_P2)
    for i, s in enumerate(dev):
        save_array(folder / f"dev-{i}-rows.npy", np.stack([s.left_P, s.right_P]))
        save_array(folder / f"dev-{i}-score.npy", s.score_P)
    write_json(
        folder / "prepared.json",
        {
            "teacher": vars(teacher.absolute()),
            "student": absolute_student(student),
            "vectors": {**vars(vectors), "folder": str(vectors.folder)},
            "pca": str(pca),
            "tokens": None if tokens is None else str(tokens),
            "dev": [s.name for s in dev],
        },
    )


@functools.lru_cache(maxsize=1)
def load_prepared(folder: Path) -> Prepared:
    """Read what `save_prepared` wrote; kept by the process, since a reused worker runs many trials on it."""
    kept = json.loads((folder / "prepared.json").read_text())
    dev = []
    for i, name in enumerate(kept["dev"]):
        left, right = np.load(folder / f"dev-{i}-rows.npy", allow_pickle=False)
        dev.append(DevSet(name, left, right, np.load(folder / f"dev-{i}-score.npy", allow_pickle=False)))
    return Prepared(
        teacher=EncoderSpec(**kept["teacher"]),
        student=kept["student"],
        vectors=ShardedArray(**{**kept["vectors"], "folder": Path(kept["vectors"]["folder"])}),
        pca=load_pca(Path(kept["pca"])),
        tokens=None if kept["tokens"] is None else load_tokens(Path(kept["tokens"])),
        train=np.load(folder / "train.npy", allow_pickle=False),
        pairs_P2=np.load(folder / "pairs.npy", allow_pickle=False),
        dev=tuple(dev),
    )
