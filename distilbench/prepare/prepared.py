"""What a trial reads: the artifacts of one corpus, teacher and student start, as paths that any worker can open."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import PairTask, Rows, StsSet
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import MEAN
from distilbench.evaluation.selection import SelectionSets, of_sts
from distilbench.prepare.array_json import from_json
from distilbench.prepare.artifacts import FILE
from distilbench.prepare.nearest import load_nearest
from distilbench.prepare.negatives import Candidates, load_candidates
from distilbench.prepare.pca import Pca, load_pca
from distilbench.prepare.static_start import StaticStart, load_static_start
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.storage.arrays import ShardedArray

LOGITS = "logits.npy"
"""In the artifact of a cross-encoder's logits: pairs x outputs, float32."""


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
    dev: tuple[StsSet, ...]
    triplets_T3: Rows = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    augmented: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    pair_task: PairTask | None = None
    """The labelled pair task of a method that learns one."""
    logits_PC: NDArray[np.float32] | None = None
    """The cross-encoder teacher's logits for the task's training pairs."""
    pooling: str = MEAN
    """How the student's last states become one vector."""
    student_prompts: Prompts | None = None
    """What the student has put before its texts; None is nothing."""
    judged_P2: Rows = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    """Queries and relevant passages to train on."""
    candidates: Candidates | None = None
    """Candidates for the hard negatives of these queries."""
    nearest_NK: NDArray[np.int32] | None = None
    """The nearest others of each training sentence, by their place among these."""
    judged: SelectionSets | None = None
    """What students are selected by; None is the STS sets of `dev`."""
    tested: SelectionSets | None = None
    """What is reported of held-out sentences, where there are any."""
    static: StaticStart | None = None
    """What a static student starts from."""
    students: Mapping[str, Prepared] = field(default_factory=dict)
    """The same for each student that the search space names."""

    def of(self, params: Mapping[str, Any]) -> Prepared:
        """What a trial with these hyper-parameters reads: that of the student that they name, if they name one."""
        student = params.get("student")
        if student is None:
            return self
        if student not in self.students:
            raise ValueError(f"student {student!r} was not prepared, only {', '.join(self.students) or 'none'}")
        return self.students[student]

    @property
    def selection(self) -> SelectionSets:
        """What students are selected by."""
        return of_sts(self.dev) if self.judged is None else self.judged


def load_prepared(folder: Path) -> Prepared:
    """Read what `Artifacts.save` wrote; kept by the process, since a reused worker runs many trials on it."""
    return _load_prepared(folder, (folder / FILE).stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _load_prepared(folder: Path, written: int) -> Prepared:
    """What was written at that time (ns): a later command of the same process may have prepared something else."""
    saved = json.loads((folder / FILE).read_text())

    def array(name: str) -> NDArray[Any]:
        found: NDArray[Any] = np.load(folder / f"{name}.npy", allow_pickle=False)
        return found

    negatives, nearest, logits = (saved[name] and Path(saved[name]) for name in ("negatives", "nearest", "logits"))
    sets = {name: from_json(saved[name], array) for name in ("dev", "task", "judged", "tested")}
    prepared = Prepared(
        teacher=EncoderSpec(**saved["teacher"]),
        **_load_student(saved),
        vectors=ShardedArray(**{**saved["vectors"], "folder": Path(saved["vectors"]["folder"])}),
        pca=load_pca(Path(saved["pca"])),
        train=array("train"),
        pairs_P2=array("pairs"),
        dev=sets["dev"],
        triplets_T3=array("triplets"),
        augmented=array("augmented"),
        pair_task=sets["task"],
        judged_P2=array("judged"),
        candidates=load_candidates(negatives) if negatives else None,
        nearest_NK=load_nearest(nearest) if nearest else None,
        judged=sets["judged"],
        tested=sets["tested"],
        logits_PC=np.load(logits / LOGITS, allow_pickle=False) if logits else None,
    )
    students = {name: replace(prepared, **_load_student(own)) for name, own in saved["students"].items()}
    return replace(prepared, students=students)


def _load_student(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are one student's."""
    prompts = saved["student_prompts"]
    return {
        "student": saved["student"],
        "tokens": load_tokens(Path(saved["tokens"])) if saved["tokens"] else None,
        "pooling": saved["pooling"],
        "student_prompts": Prompts(**prompts) if prompts else None,
        "static": load_static_start(Path(saved["static"])) if saved["static"] else None,
    }
