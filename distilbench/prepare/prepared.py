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

from distilbench.data.corpus import Corpus, PairSplit, PairTask, Rows
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import MEAN, absolute_student
from distilbench.evaluation.selection import DevSet, SelectionSets, of_sts
from distilbench.prepare.nearest import load_nearest
from distilbench.prepare.negatives import Candidates, load_candidates
from distilbench.prepare.pca import Pca, load_pca
from distilbench.prepare.selection_files import load_sets, save_sets
from distilbench.prepare.static_start import StaticStart, load_static_start
from distilbench.prepare.student_inputs import StudentInputs
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.records import selection_groups
from distilbench.storage.arrays import ShardedArray, save_array
from distilbench.storage.files import write_json

JUDGED = "judged.npy"
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
    dev: tuple[DevSet, ...]
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
    pair_task: PairTask | None = None,
    logits: Path | None = None,
    pooling: str = MEAN,
    student_prompts: Prompts | None = None,
    negatives: Path | None = None,
    judged: SelectionSets | None = None,
    tested: SelectionSets | None = None,
    static: Path | None = None,
    students: Mapping[str, StudentInputs] | None = None,
    nearest: Path | None = None,
) -> None:
    """Write the row numbers of the training and dev sets, and where the artifacts are, into `folder`.

    `logits` is the artifact folder with the cross-encoder's logits for the training pairs of `pair_task`, `negatives` that
    with the candidates for hard negatives of the judged queries; `judged` is what students are selected by, where it is not
    the STS dev sets, `tested` what is reported of held-out sentences. `static` is that of what a static student starts from.
    `students` are those that the search space names, beside `student`; `nearest` is that of the nearest others of each
    training sentence.
    """
    dev = selection_sets(corpus)
    save_array(folder / "train.npy", corpus.train)
    save_array(folder / "pairs.npy", corpus.pairs_P2)
    save_array(folder / "triplets.npy", corpus.triplets_T3)
    if len(corpus.judged_P2):
        save_array(folder / JUDGED, corpus.judged_P2)
    else:
        (folder / JUDGED).unlink(missing_ok=True)
    save_array(folder / "augmented.npy", corpus.copies.rows)
    save_array(folder / "augmented-source.npy", corpus.copies.source)
    save_array(folder / "augmented-operation.npy", corpus.copies.operation)
    for name, split in pair_task.splits.items() if pair_task else ():
        save_array(folder / f"task-{name}-rows.npy", np.stack([split.left_P, split.right_P]))
        save_array(folder / f"task-{name}-target.npy", split.target_P)
    for stale in (*folder.glob("judged-*.npy"), *folder.glob("tested-*.npy")):  # of a selection by something else
        stale.unlink()
    for i, s in enumerate(dev):
        save_array(folder / f"dev-{i}-rows.npy", np.stack([s.left_P, s.right_P]))
        save_array(folder / f"dev-{i}-score.npy", s.score_P)
    write_json(
        folder / "prepared.json",
        {
            "teacher": vars(teacher.absolute()),
            "student": absolute_student(student),
            "pooling": pooling,
            **({"student_prompts": vars(student_prompts)} if student_prompts else {}),
            "vectors": {**vars(vectors), "folder": str(vectors.folder)},
            "pca": str(pca),
            "tokens": None if tokens is None else str(tokens),
            "augmented-operation": corpus.copies.names,
            "dev": [s.name for s in dev],
            "task": None if pair_task is None else {**vars(pair_task), "splits": sorted(pair_task.splits)},
            "logits": None if logits is None else str(logits),
            **({"negatives": str(negatives)} if negatives else {}),
            **({"nearest": str(nearest)} if nearest else {}),
            **({"judged": save_sets(folder, judged, "judged")} if judged else {}),
            **({"tested": save_sets(folder, tested, "tested")} if tested else {}),
            **({} if static is None else {"static": str(static)}),
            **({"students": {name: inputs.described() for name, inputs in students.items()}} if students else {}),
        },
    )


def load_prepared(folder: Path) -> Prepared:
    """Read what `save_prepared` wrote; kept by the process, since a reused worker runs many trials on it."""
    return _load_prepared(folder, (folder / "prepared.json").stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _load_prepared(folder: Path, written: int) -> Prepared:
    """What was written at that time (ns): a later command of the same process may have prepared something else."""
    saved = json.loads((folder / "prepared.json").read_text())
    dev = []
    for i, name in enumerate(saved["dev"]):
        left, right = np.load(folder / f"dev-{i}-rows.npy", allow_pickle=False)
        dev.append(DevSet(name, left, right, np.load(folder / f"dev-{i}-score.npy", allow_pickle=False)))
    prepared = Prepared(
        teacher=EncoderSpec(**saved["teacher"]),
        **_load_student(saved),
        vectors=ShardedArray(**{**saved["vectors"], "folder": Path(saved["vectors"]["folder"])}),
        pca=load_pca(Path(saved["pca"])),
        train=np.load(folder / "train.npy", allow_pickle=False),
        pairs_P2=np.load(folder / "pairs.npy", allow_pickle=False),
        dev=tuple(dev),
        triplets_T3=np.load(folder / "triplets.npy", allow_pickle=False),
        augmented=np.load(folder / "augmented.npy", allow_pickle=False),
        pair_task=_load_task(folder, saved["task"]),
        judged_P2=np.load(folder / JUDGED, allow_pickle=False)
        if (folder / JUDGED).exists()
        else np.empty((0, 2), dtype=np.int64),
        candidates=load_candidates(Path(saved["negatives"])) if "negatives" in saved else None,
        nearest_NK=load_nearest(Path(saved["nearest"])) if "nearest" in saved else None,
        judged=load_sets(folder, saved["judged"]) if saved.get("judged") else None,
        tested=load_sets(folder, saved["tested"]) if saved.get("tested") else None,
        logits_PC=None if saved["logits"] is None else np.load(Path(saved["logits"]) / LOGITS, allow_pickle=False),
    )
    students = {name: replace(prepared, **_load_student(own)) for name, own in saved.get("students", {}).items()}
    return replace(prepared, students=students)


def _load_student(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are one student's."""
    return {
        "student": saved["student"],
        "tokens": None if saved["tokens"] is None else load_tokens(Path(saved["tokens"])),
        "pooling": saved.get("pooling", MEAN),  # runs from before it was written
        "student_prompts": Prompts(**saved["student_prompts"]) if "student_prompts" in saved else None,
        "static": load_static_start(Path(saved["static"])) if "static" in saved else None,
    }


def _load_task(folder: Path, saved: dict[str, Any] | None) -> PairTask | None:
    if saved is None:
        return None
    splits = {}
    for name in saved["splits"]:
        left, right = np.load(folder / f"task-{name}-rows.npy", allow_pickle=False)
        splits[name] = PairSplit(left, right, np.load(folder / f"task-{name}-target.npy", allow_pickle=False))
    return PairTask(**{**saved, "classes": tuple(saved["classes"]), "splits": splits})
