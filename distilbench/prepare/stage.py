"""The preparation of a corpus: everything that trials read, made on Ray Data or found in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from distilbench.data.corpus import Corpus, PairTask
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import MEAN
from distilbench.errors import InputError
from distilbench.prepare.augment import operations
from distilbench.prepare.copies import augmented_corpus, with_copy_cosines
from distilbench.prepare.cross_encoder import (
    CrossEncoderParams,
    cross_encoder_artifact,
    cross_encoder_scores,
    logits_artifact,
)
from distilbench.prepare.encode import encode_corpus
from distilbench.prepare.given import corpus_vectors
from distilbench.prepare.nearest import nearest_artifact
from distilbench.prepare.negatives import negatives_artifact
from distilbench.prepare.pca import pca_artifact
from distilbench.prepare.prepared import save_prepared, selection_sets
from distilbench.prepare.ranked_layers import keep_rankings, read_ranking
from distilbench.prepare.selection import Judged, judged_artifact
from distilbench.prepare.student_inputs import StudentInputs
from distilbench.prepare.students import prepare_student
from distilbench.records import Score
from distilbench.settings.run import PreparationSettings
from distilbench.storage.arrays import ShardedArray
from distilbench.storage.store import ArtifactStore


@dataclass(frozen=True)
class Wanted:
    """What the methods of a run ask of the preparation beside embeddings and PCA."""

    augmentation: bool
    tokens: bool
    logits: bool
    negatives: tuple[str, ...] = ()
    """By what hard negatives of judged queries are found."""
    nearest: int = 0
    """How many nearest others of each training sentence are known."""
    students: tuple[str | None, ...] = (None,)
    """The students that are trained, where `tokens` are wanted; None is that of the settings."""


@dataclass(frozen=True)
class Made:
    """A prepared corpus and where its artifacts are; `scores` are a cross-encoder teacher's own."""

    corpus: Corpus
    vectors: ShardedArray
    pca: Path
    tokens: Path | None = None
    task: PairTask | None = None
    logits: Path | None = None
    scores: tuple[Score, ...] = ()
    student: str | None = None
    """The student with its layers written out; None where no method trains one."""
    pooling: str = MEAN
    ranking: Path | None = None
    """The ranking that chose its layers."""
    negatives: Path | None = None
    nearest: Path | None = None
    """The nearest others of each training sentence."""
    judged: Judged | None = None
    """What students are selected by, where it is not the STS dev sets."""
    static: Path | None = None
    """What a static student starts from."""
    students: Mapping[str, StudentInputs] = field(default_factory=dict)
    """The students that search spaces name."""

    def save(self, folder: Path, settings: PreparationSettings) -> None:
        """Write what a trial needs to find all of it."""
        save_prepared(
            folder,
            self.corpus,
            settings.teacher_encoder,
            settings.student if self.student is None else self.student,
            self.vectors,
            self.pca,
            self.tokens,
            self.task,
            self.logits,
            self.pooling,
            Prompts.of(settings.student_encoder) if settings.by_role and self.tokens else None,
            self.negatives,
            self.judged.dev if self.judged else None,
            self.judged.test if self.judged else None,
            self.static,
            self.students,
            self.nearest,
        )
        keep_rankings(folder, self.ranking, (student.ranking for student in self.students.values()))

    def described(self) -> dict[str, Any]:
        """What was prepared, JSON-able: sizes of the corpus, and where each artifact is."""
        corpus = self.corpus
        students = self.students.values()
        tokens = _distinct(self.tokens, *(student.tokens for student in students))
        layers = _distinct(self.ranking, *(student.ranking for student in students))
        static = _distinct(self.static, *(student.static for student in students))
        artifacts = {
            "sentences": [p.parent for p in getattr(corpus.sentences, "paths", ())],
            "embeddings": [self.vectors.folder],
            "PCA": [self.pca],
            "tokens": tokens,
            "logits": [self.logits] if self.logits else [],
            "negatives": _distinct(self.negatives),
            "nearest": _distinct(self.nearest),
            "layers": layers,
            "static": static,
        }
        return {
            "corpus": corpus.name,
            "corpus_fingerprint": corpus.fingerprint,
            "sentences": len(corpus.sentences),
            "training_sentences": len(corpus.train),
            "augmented_sentences": len(corpus.copies.rows),
            "embedding_width": self.vectors.width,
            "notes": list(corpus.found),
            "artifacts": {
                kind if len(folders) == 1 else f"{kind} {i}": {"path": str(folder), "bytes": _bytes(folder)}
                for kind, folders in artifacts.items()
                for i, folder in enumerate(folders, start=1)
            },
        }


def _distinct(*folders: Path | None) -> list[Path]:
    return list(dict.fromkeys(folder for folder in folders if folder is not None))


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def prepare_corpus(settings: PreparationSettings, corpus: Corpus, needs: Wanted, console: Console) -> Made:
    """Augment, encode with the teacher, filter the copies, fit PCA, tokenise for the student, compute logits.

    Needs `ray.init` where something is missing. What is found in the store is not made again.
    """
    store, size = settings.artifacts, settings.pool
    if settings.given is not None and needs.logits and not settings.cross_encoder:
        raise InputError(
            f"--teacher-vectors {settings.teacher_vectors}: no cross-encoder can be fine-tuned from vectors; expected "
            "--cross-encoder"
        )
    notes_before = len(corpus.found)
    if needs.augmentation:
        corpus = augmented_corpus(corpus, operations(settings.augment, settings.marian), settings.seed, store, size)
    key = corpus.sentences_fingerprint
    title = settings.teacher_encoder.title
    if settings.given is None:
        vectors, encoded = encode_corpus(
            corpus.sentences,
            key,
            settings.teacher_encoder,
            store,
            label="Teacher encoding",
            backend=settings.backend,
            size=size,
            roles_N=corpus.roles_N,
        )
        console.print(f"Teacher {title}: {encoded} of {len(corpus.sentences)} sentences encoded now")
    else:
        vectors = corpus_vectors(corpus.sentences, key, settings.given, store)
        console.print(f"Teacher {title}: the vectors of {len(corpus.sentences)} sentences are given")
    corpus = with_copy_cosines(corpus, vectors)
    for line in corpus.found[notes_before:]:
        console.print(f"  {line}", markup=False)
    pca = pca_artifact(vectors, corpus.train, store)
    judged = judged_artifact(corpus, vectors, store)
    prepared = Made(corpus, vectors, pca, task=corpus.pair_tasks[0] if corpus.pair_tasks else None, judged=judged)
    if needs.negatives:
        prepared = replace(prepared, negatives=negatives_artifact(corpus, vectors, needs.negatives, store))
    if needs.nearest:
        prepared = replace(prepared, nearest=nearest_artifact(vectors, corpus.train, needs.nearest, store))
    if needs.tokens:
        prepared = _with_students(settings, prepared, needs.students, store, console)
    return _with_logits(settings, prepared, store, console) if needs.logits and prepared.task else prepared


def _with_students(
    settings: PreparationSettings,
    prepared: Made,
    students: Sequence[str | None],
    store: ArtifactStore,
    console: Console,
) -> Made:
    """With what each student is trained from."""
    dev, named, shown = selection_sets(prepared.corpus), dict[str, StudentInputs](), set[Path]()
    for name in dict.fromkeys(students):
        inputs = prepare_student(settings, name or settings.student, prepared.corpus, prepared.vectors, dev, store)
        path = inputs.ranking
        if path is not None and path not in shown and (ranking := read_ranking(path)):
            ranking.show(console)
            shown.add(path)  # students with all tokens and with fewer have one ranking
        if name is not None:
            named[name] = inputs
            continue
        prepared = replace(
            prepared,
            tokens=inputs.tokens,
            student=inputs.student,
            pooling=inputs.pooling,
            ranking=inputs.ranking,
            static=inputs.static,
        )
    return replace(prepared, students=named)


def _with_logits(settings: PreparationSettings, prepared: Made, store: ArtifactStore, console: Console) -> Made:
    task, sentences = prepared.task, prepared.corpus.sentences
    assert task is not None
    if settings.cross_encoder:
        cross = Path(settings.cross_encoder)
    else:
        start = replace(settings.teacher_encoder, prompt="", query_prompt=None, document_prompt=None, max_tokens=None)
        params = CrossEncoderParams()
        cross = cross_encoder_artifact(task, sentences, start, params, settings.seed, store, settings.pool)
    logits = logits_artifact(task, sentences, cross, store, size=settings.pool)
    scores = cross_encoder_scores(task, sentences, cross, store)
    metrics = ", ".join(f"{s.split} {s.metric} {s.value:.2f}" for s in scores)
    console.print(f"Cross-encoder on {task.name}: {metrics}; its folder: {cross}", markup=False)
    return replace(prepared, logits=logits, scores=tuple(scores))
