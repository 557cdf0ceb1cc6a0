"""Everything that was prepared for a run: its corpus, and where the artifacts are that trials read. It writes itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, PairTask
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import MEAN, absolute_student
from distilbench.prepare.array_json import to_json
from distilbench.prepare.ranked_layers import keep_rankings
from distilbench.prepare.selection_sets import Judged, dev_sets
from distilbench.records import Score
from distilbench.storage.arrays import ShardedArray, save_array
from distilbench.storage.files import write_json

FILE = "prepared.json"


@dataclass(frozen=True)
class StudentArtifacts:
    """What one student is trained from; without `tokens` none is trained."""

    student: str
    """With its layers written out."""
    pooling: str = MEAN
    """How its last states become one vector."""
    tokens: Path | None = None
    static: Path | None = None
    """What a static student starts from."""
    ranking: Path | None = None
    """The ranking that chose its layers."""
    prompts: Prompts | None = None
    """What it has put before its texts; None is nothing."""

    def described(self) -> dict[str, Any]:
        """What a trial has to know of it, JSON-able."""
        return {
            "student": absolute_student(self.student),
            "pooling": self.pooling,
            "tokens": _path(self.tokens),
            "static": _path(self.static),
            "student_prompts": vars(self.prompts) if self.prompts else None,
        }


@dataclass(frozen=True)
class Artifacts:
    """A prepared corpus and where its artifacts are; None is what no method asked for."""

    corpus: Corpus
    teacher: EncoderSpec
    vectors: ShardedArray
    pca: Path
    student: StudentArtifacts
    """The run's own student."""
    logits: Path | None = None
    """A cross-encoder's logits for the training pairs of the task."""
    scores: tuple[Score, ...] = ()
    """That cross-encoder's own scores."""
    negatives: Path | None = None
    """Candidates for the hard negatives of judged queries."""
    nearest: Path | None = None
    """The nearest others of each training sentence."""
    judged: Judged | None = None
    """What students are selected by, where it is not the STS dev sets."""
    students: Mapping[str, StudentArtifacts] = field(default_factory=dict)
    """The students that search spaces name."""

    @property
    def task(self) -> PairTask | None:
        """The labelled pair task of a method that learns one."""
        return self.corpus.pair_tasks[0] if self.corpus.pair_tasks else None

    def save(self, folder: Path) -> None:
        """Write row numbers and paths, from which `load_prepared` finds all of it in any process."""
        corpus = self.corpus
        arrays: dict[str, NDArray[Any]] = {
            "train": corpus.train,
            "pairs": corpus.pairs_P2,
            "triplets": corpus.triplets_T3,
            "judged": corpus.judged_P2,
            "augmented": corpus.copies.rows,
        }

        judged, tested = (self.judged.dev, self.judged.test) if self.judged else (None, None)
        sets = {"dev": tuple(dev_sets(corpus)), "task": self.task, "judged": judged, "tested": tested}
        described = {
            **self.student.described(),
            "students": {name: student.described() for name, student in self.students.items()},
            "teacher": vars(self.teacher.absolute()),
            "vectors": {**vars(self.vectors), "folder": str(self.vectors.folder)},
            **{name: _path(getattr(self, name)) for name in ("pca", "logits", "negatives", "nearest")},
            **{name: to_json(value, arrays.__setitem__, name) for name, value in sets.items()},
        }
        for name, array in arrays.items():
            save_array(folder / f"{name}.npy", array)
        for stale in (path for path in folder.glob("*.npy") if path.stem not in arrays):  # of an earlier preparation
            stale.unlink()
        write_json(folder / FILE, described)
        keep_rankings(folder, (student.ranking for student in (self.student, *self.students.values())))

    def described(self) -> dict[str, Any]:
        """What was prepared, JSON-able: sizes of the corpus, and where each artifact is."""
        corpus, students = self.corpus, (self.student, *self.students.values())
        folders: dict[str, list[Path | None]] = {
            "sentences": [p.parent for p in getattr(corpus.sentences, "paths", ())],
            "embeddings": [self.vectors.folder],
            "PCA": [self.pca],
            "tokens": [student.tokens for student in students],
            "logits": [self.logits],
            "negatives": [self.negatives],
            "nearest": [self.nearest],
            "layers": [student.ranking for student in students],
            "static": [student.static for student in students],
        }
        artifacts = {}
        for kind, paths in folders.items():
            distinct = list(dict.fromkeys(path for path in paths if path is not None))
            for i, path in enumerate(distinct, start=1):
                artifacts[kind if len(distinct) == 1 else f"{kind} {i}"] = {"path": str(path), "bytes": _bytes(path)}
        return {
            "corpus": corpus.name,
            "corpus_fingerprint": corpus.fingerprint,
            "sentences": len(corpus.sentences),
            "training_sentences": len(corpus.train),
            "augmented_sentences": len(corpus.copies.rows),
            "embedding_width": self.vectors.width,
            "notes": list(corpus.found),
            "artifacts": artifacts,
        }


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
