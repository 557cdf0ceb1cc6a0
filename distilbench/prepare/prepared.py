"""What a corpus was prepared to: the artifacts as the driver knows them, written as paths, and as every trial reads them."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, PairSplit, PairTask, RetrievalSet, Rows, StsSet
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.layers import TokenStates
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import MEAN, with_encoder
from distilbench.evaluation.selection import HeldOutSet, SelectionSets, of_sts
from distilbench.prepare.layer_ranking import keep_rankings
from distilbench.prepare.nearest import NEAREST, Candidates, load_candidates
from distilbench.prepare.pca import Pca, load_pca
from distilbench.prepare.selection_sets import dev_sets
from distilbench.prepare.skipped_layers import load_skipped_layers
from distilbench.prepare.static_start import StaticStart, load_static_start
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.records import Score
from distilbench.selection import Part, Selection
from distilbench.storage.arrays import ShardedArray, load_array, save_array
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

FILE = "prepared.json"
LOGITS = "logits.npy"
"""In the artifact of a cross-encoder's logits: pairs x outputs, float32."""


@dataclass(frozen=True)
class StudentArtifacts:
    """What one student is trained from, as in `Prepared`; without `tokens` none is trained."""

    student: str
    """With its layers written out."""
    pooling: str = MEAN
    tokens: Path | None = None
    static: Path | None = None
    skipped: Path | None = None
    ranking: Path | None = None
    """The ranking that chose its layers."""
    prompts: Prompts | None = None

    def described(self) -> dict[str, Any]:
        """What a trial has to know of it, JSON-able."""
        return {
            "student": with_encoder(self.student, lambda name: EncoderSpec(name).absolute().name),
            "pooling": self.pooling,
            "tokens": _path(self.tokens),
            "static": _path(self.static),
            "skipped": _path(self.skipped),
            "student_prompts": vars(self.prompts) if self.prompts else None,
        }


@dataclass(frozen=True)
class Artifacts:
    """A prepared corpus and where its artifacts are, as in `Prepared`; None is what no method asked for."""

    corpus: Corpus
    teacher: EncoderSpec
    vectors: ShardedArray
    pca: Path
    student: StudentArtifacts
    """The run's own student."""
    logits: Path | None = None
    scores: tuple[Score, ...] = ()
    """Those of the cross-encoder that the logits are of."""
    negatives: Path | None = None
    nearest: Path | None = None
    judged: SelectionSets | None = None
    tested: SelectionSets | None = None
    students: Mapping[str, StudentArtifacts] = field(default_factory=dict)

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
        sets = {"dev": tuple(dev_sets(corpus)), "task": self.task, "judged": self.judged, "tested": self.tested}
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
            "skipped layers": [student.skipped for student in students],
        }
        artifacts = {}
        for kind, paths in folders.items():
            distinct = list(dict.fromkeys(path for path in paths if path is not None))
            for i, path in enumerate(distinct, start=1):
                size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                artifacts[kind if len(distinct) == 1 else f"{kind} {i}"] = {"path": str(path), "bytes": size}
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
    skipped: TokenStates | None = None
    """All tokens' mean states after the layers before the student's first one."""
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
    def store(self) -> ArtifactStore:
        """The artifacts among which the teacher's vectors are, on this machine."""
        return ArtifactStore(self.vectors.folder.parent)

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
        return np.asarray(np.load(folder / f"{name}.npy", allow_pickle=False))

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
        nearest_NK=load_array(nearest / NEAREST) if nearest else None,
        judged=sets["judged"],
        tested=sets["tested"],
        logits_PC=np.load(logits / LOGITS, allow_pickle=False) if logits else None,
    )
    students = {name: replace(prepared, **_load_student(own)) for name, own in saved["students"].items()}
    return replace(prepared, students=students)


def _load_student(saved: Mapping[str, Any]) -> dict[str, Any]:
    prompts = saved["student_prompts"]
    return {
        "student": saved["student"],
        "tokens": load_tokens(Path(saved["tokens"])) if saved["tokens"] else None,
        "pooling": saved["pooling"],
        "student_prompts": Prompts(**prompts) if prompts else None,
        "static": load_static_start(Path(saved["static"])) if saved["static"] else None,
        "skipped": load_skipped_layers(Path(saved["skipped"])) if saved.get("skipped") else None,
    }


Keep = Callable[[str, NDArray[Any]], object]
Take = Callable[[str], NDArray[Any]]

_SETS = (StsSet, RetrievalSet, HeldOutSet, PairSplit, PairTask)
CLASSES = {c.__name__: c for c in (*_SETS, SelectionSets, Selection, Part)}
"""The data classes that are written, of arrays, tuples, mappings and plain values."""


def to_json(value: Any, keep: Keep, name: str) -> Any:
    """What `from_json` reads again; every array goes to `keep` under a name that begins with `name`."""
    if isinstance(value, np.ndarray):
        keep(name, value)
        return {"array": name}
    if isinstance(value, tuple) and value and all(isinstance(part, np.ndarray) for part in value):
        keep(name, np.concatenate(value))
        keep(f"{name}-counts", np.array([len(part) for part in value], dtype=np.int64))
        return {"arrays": name}
    if isinstance(value, tuple):
        return [to_json(part, keep, f"{name}-{i}") for i, part in enumerate(value)]
    if isinstance(value, Mapping):
        return {"mapping": {key: to_json(part, keep, f"{name}-{key}") for key, part in value.items()}}
    if type(value).__name__ in CLASSES:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__} | {f: to_json(part, keep, f"{name}-{f}") for f, part in fields.items()}
    return value


def from_json(described: Any, take: Take) -> Any:
    """The value that was described, with the arrays that `take` gives."""
    if isinstance(described, list):
        return tuple(from_json(part, take) for part in described)
    if not isinstance(described, dict):
        return described
    if "array" in described:
        return take(described["array"])
    if "arrays" in described:
        ends = np.cumsum(take(f"{described['arrays']}-counts"))[:-1]
        return tuple(np.split(take(described["arrays"]), ends))
    if "mapping" in described:
        return {key: from_json(part, take) for key, part in described["mapping"].items()}
    return CLASSES[described["class"]](**{f: from_json(part, take) for f, part in described.items() if f != "class"})
