"""A run: its encoders, name, folder with one writer, what its numbers depend on, its cluster, its leaderboard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

from distilbench.cluster.nodes import nodes_line
from distilbench.cluster.resources import ray_cluster
from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.prompts import Prompts, reading_notes
from distilbench.encoders.student import (
    StudentSpec,
    check_student,
    is_static,
    student_pooling,
    student_source,
    with_encoder,
)
from distilbench.errors import InputError
from distilbench.prepare.augment import operations
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.settings.place import GrowingClusterSettings
from distilbench.settings.run import PreparationSettings, RunSettings
from distilbench.storage.files import fingerprint

LONGEST_NAME = 200
"""Bytes of a run's name. A file's name may have 255, and those of locks and temporary files are longer than the run's."""


def check_encoders(settings: PreparationSettings) -> None:
    """Check the folders, the teacher and a cross-encoder before anything is read."""
    settings.check_folders()
    teacher, given = settings.teacher_encoder, f"--teacher-vectors {settings.teacher_vectors}"
    if teacher.vectors is None:
        teacher.check("teacher")
    elif settings.augment:
        raise InputError(f"{given}: --augment makes sentences that have no vector in it; expected none")
    if settings.cross_encoder and not Path(settings.cross_encoder).is_dir():
        raise InputError(
            f"--cross-encoder {settings.cross_encoder}: no such folder; expected a fine-tuned cross-encoder"
        )


def teacher_notes(settings: PreparationSettings, corpus: Corpus, console: Console) -> list[str]:
    """Print what the teacher's files ask for and does not happen, and return it for the page."""
    notes = reading_notes(settings.teacher_encoder, searches=bool(corpus.retrieval))
    for note in notes:
        console.print(note, markup=False)
    return notes


def check_student_encoder(settings: PreparationSettings, student: str) -> None:
    """Check a student that is trained, whether the command names it or a search space."""
    spec = StudentSpec.parse(student)
    named = spec.encoder
    if settings.teacher_encoder.vectors is not None and named is None:
        why = "would be made of its layers"
        if is_static(student):
            why = "starts from a teacher's tokens, and vectors have none"
        raise InputError(
            f"--teacher-vectors {settings.teacher_vectors}: --student {student} {why}; expected a folder or hub id"
        )
    check_student(student, settings.teacher_encoder)
    if named:
        EncoderSpec(named).check("student")
    if spec.fewer_tokens or spec.words:
        from distilbench.encoders.pruned_tokenizer import GROWABLE, PRUNABLE
        from distilbench.prepare.pruned_students import check_vocabulary

        source = student_source(student, settings.teacher_encoder)
        what = f"--student {student}: {'student' if named else 'teacher'}"
        check_vocabulary(source, what, GROWABLE if spec.words else PRUNABLE)
    _ = settings.student_reading(student)  # its prompts


def run_name(named: str | None, *parts: str) -> str:
    """The run's name, which its folder has: the one that the user gave, else its parts, such as METHOD-CORPUS-TEACHER."""
    name = named or "-".join(parts)
    if name in ("", ".", "..") or any(c in name for c in "/\\\0"):
        raise InputError(f"--name {name!r}: expected a plain folder name")
    encoded = name.encode(errors="surrogateescape")
    if len(encoded) <= LONGEST_NAME:
        return name
    return f"{encoded[: LONGEST_NAME - 13].decode(errors='ignore')}-{fingerprint(name)[:12]}"


def run_config(settings: RunSettings, corpus: Corpus) -> dict[str, Any]:
    """Everything that the numbers of a run depend on, JSON-able. The student's own encoder is there by its content."""
    student, teacher = settings.student, settings.teacher_encoder
    return {
        "select": str(corpus.selection),
        "select_by_task": bool(corpus.pair_tasks) and not corpus.selection.asked,
        "tasks": sorted(settings.scored_tasks(corpus.selection)),
        "corpus": corpus.name,
        "corpus_fingerprint": corpus.fingerprint,
        "demonstration": corpus.demonstration,
        "augment": [{"name": o.name, **o.identity()} for o in operations(settings.augment)],
        "teacher": teacher.title,
        "teacher_fingerprint": fingerprint(teacher.identity()),
        "cross_encoder": settings.cross_encoder,
        "backend": settings.backend,
        "student": portable_student(student),
        "pooling": student_pooling(student, teacher),
        **({"student_prompts": vars(Prompts.of(settings.student_reading(student)))} if teacher.by_role else {}),
        "seed": settings.seed,
    }


def portable_student(student: str) -> str:
    """The student with its own encoder by that one's content."""
    return with_encoder(student, lambda name: fingerprint(EncoderSpec(name).identity()))


@contextlib.contextmanager
def one_writer(run: Path) -> Iterator[None]:
    """Hold the lock of a run, which only one driver can have."""
    run.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run.with_name(f".{run.name}.lock"))
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{run}: another process is running this sweep; wait for it, or choose another --name"
        ) from None
    with held:
        yield


@contextlib.contextmanager
def on_cluster(settings: GrowingClusterSettings, console: Console) -> Iterator[None]:
    """Start Ray, or join a cluster, for as long as a command needs it; a line says which nodes there are."""
    with ray_cluster(settings.address, settings.cpus, settings.dashboard):
        if line := nodes_line(settings.nodes_to_come):
            console.print(line, markup=False)
        yield


def publish(
    reports: Path,
    corpus: Corpus,
    run: Path,
    records: Sequence[ScoreRecord | TrialRecord],
    more: Sequence[str] = (),
    folders: Sequence[Path] = (),
) -> Path:
    """Write the leaderboard of the records of a run (of the runs in `folders`, where there are several)."""
    from distilbench.reporting.page import write_report

    notes = [*(f"Found: {line}" for line in corpus.found), *(f"Not found: {line}" for line in corpus.missing), *more]
    places = list(folders) or [run]
    return write_report(list(records), reports / run.name, title=run.name, notes=notes, folders=places)
