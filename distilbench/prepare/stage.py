"""The preparation of a corpus: everything that trials read, made on Ray Data or found in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import StudentSpec, resolved_student, student_pooling, student_source, with_own_tokens
from distilbench.errors import InputError
from distilbench.evaluation.selection import of_sts
from distilbench.prepare.augment import operations
from distilbench.prepare.copies import augmented_corpus
from distilbench.prepare.cross_encoder import FineTuning, cross_encoder_scores, logits_artifact, pair_texts
from distilbench.prepare.encode import CorpusEncoding
from distilbench.prepare.layer_ranking import LayerRanker, named_layers, read_ranking
from distilbench.prepare.nearest import candidates_artifact, nearest_artifact
from distilbench.prepare.pca import pca_artifact
from distilbench.prepare.prepared import Artifacts, StudentArtifacts
from distilbench.prepare.pruned_students import grown_static, pruned_encoder, pruned_static
from distilbench.prepare.selection_sets import dev_sets, judged_sets
from distilbench.prepare.skipped_layers import skipped_layers_artifact
from distilbench.prepare.static_start import static_start_artifact
from distilbench.prepare.tokens import tokens_artifact
from distilbench.settings.run import PreparationSettings
from distilbench.storage.arrays import ShardedArray
from distilbench.storage.store import ArtifactStore


def prepare_corpus(
    settings: PreparationSettings, corpus: Corpus, needs: Requirements, console: Console, *, quick: bool = False
) -> Artifacts:
    """Augment, encode with the teacher, fit PCA, tokenise for the students, compute logits; `quick` as in `LayerRanker`.

    Needs `ray.init` where something is missing. What is found in the store is not made again.
    """
    if settings.given is not None and needs.logits and not settings.cross_encoder:
        raise InputError(
            f"--teacher-vectors {settings.teacher_vectors}: no cross-encoder can be fine-tuned from vectors; expected "
            "--cross-encoder"
        )
    store, notes_before = settings.artifacts, len(corpus.found)
    if needs.augmentation:
        copies = operations(settings.augment)
        corpus = augmented_corpus(corpus, copies, settings.seed, store, settings.pool)
    vectors = _vectors(settings, corpus, console)
    for line in corpus.found[notes_before:]:
        console.print(f"  {line}", markup=False)
    judged, tested = judged_sets(corpus, vectors.take)
    prepared = Artifacts(
        corpus,
        settings.teacher_encoder,
        vectors,
        pca_artifact(vectors, corpus.train, store),
        StudentArtifacts(settings.student),
        negatives=candidates_artifact(corpus, vectors, store) if needs.negatives else None,
        nearest=nearest_artifact(vectors, corpus.train, needs.nearest, store) if needs.nearest else None,
        judged=judged,
        tested=tested,
    )
    prepared = _with_students(settings, prepared, needs.students, console, quick=quick)
    return _with_logits(settings, prepared, store, console) if needs.logits and prepared.task else prepared


def _vectors(settings: PreparationSettings, corpus: Corpus, console: Console) -> ShardedArray:
    teacher, store = settings.teacher_encoder, settings.artifacts
    if settings.given is not None:
        console.print(f"Teacher {teacher.title}: the vectors of {len(corpus.sentences)} sentences are given")
        return settings.given.of_sentences(corpus.text, store)
    encoding = CorpusEncoding(teacher, store, "Teacher encoding", backend=settings.backend, size=settings.pool)
    vectors, encoded = encoding.vectors(corpus.text)
    console.print(f"Teacher {teacher.title}: {encoded} of {len(corpus.sentences)} sentences encoded now")
    return vectors


def _with_students(
    settings: PreparationSettings, prepared: Artifacts, students: Sequence[str | None], console: Console, *, quick: bool
) -> Artifacts:
    named, shown = dict[str, StudentArtifacts](), set[Path]()
    for name in dict.fromkeys(students):
        inputs = prepare_student(settings, name or settings.student, prepared, quick=quick)
        path = inputs.ranking
        if path is not None and path not in shown and (ranking := read_ranking(path)):
            console.print(
                f"Student {ranking.student}: {ranking.summary}; taken: {named_layers(ranking.chosen)}", markup=False
            )
            shown.add(path)  # students with all tokens and with fewer have one ranking
        if name is None:
            prepared = replace(prepared, student=inputs)
        else:
            named[name] = inputs
    return replace(prepared, students=named)


def prepare_student(
    settings: PreparationSettings, student: str, prepared: Artifacts, *, quick: bool = False
) -> StudentArtifacts:
    """What a student of this name is trained from, made or found in the store; students of one encoder share its tokens."""
    corpus, store = prepared.corpus, settings.artifacts
    teacher, reads, spec = settings.teacher_encoder, settings.student_reading(student), StudentSpec.parse(student)
    pooling, source, folder, chosen = student_pooling(student, teacher), student_source(student, teacher), None, None
    static = static_start_artifact(source, store) if spec.is_static else None
    tokens = tokens_artifact(corpus.text, reads, store, settings.pool, static)
    if spec.ranked:
        start = with_own_tokens(student)
        judged = prepared.judged or of_sts(dev_sets(corpus))
        ranker = LayerRanker(start, teacher, pooling, prepared.vectors, tokens, corpus.train, judged, quick=quick)
        folder = ranker.artifact(store)
        ranking = read_ranking(folder)
        assert ranking is not None
        chosen = ranking.chosen
    student = resolved_student(student, teacher, chosen)
    if static is not None and spec.words:
        static = grown_static(source, static, tokens, corpus, spec.words, store)
        tokens = tokens_artifact(corpus.text, reads, store, settings.pool, static)
    if spec.fewer_tokens:
        prompts = sorted({text for text in (reads.prompt, reads.query_prompt, reads.document_prompt) if text})
        if static is not None:
            static = pruned_static(static, tokens, corpus, prompts, store)
        else:
            encoder = pruned_encoder(source, tokens, corpus, prompts, store)
            student = str(StudentSpec.parse(student).made_of(str(encoder)))
            reads = settings.student_reading(student)
        tokens = tokens_artifact(corpus.text, reads, store, settings.pool, static)
    skipped = skipped_layers_artifact(student, teacher, pooling, tokens, corpus.train, store)
    prompts_of = Prompts.of(reads) if teacher.by_role else None
    return StudentArtifacts(student, pooling, tokens, static, skipped, folder, prompts_of)


def _with_logits(
    settings: PreparationSettings, prepared: Artifacts, store: ArtifactStore, console: Console
) -> Artifacts:
    task, sentences = prepared.task, prepared.corpus.sentences
    assert task is not None
    if settings.cross_encoder:
        cross = Path(settings.cross_encoder)
    else:
        start = replace(settings.teacher_encoder, prompt="", query_prompt=None, document_prompt=None, max_tokens=None)
        texts = {split: pair_texts(task, split, sentences) for split in ("train", "dev")}
        cross = FineTuning(task, texts, start, settings.seed).artifact(store, settings.pool)
    logits = logits_artifact(task, sentences, cross, store, size=settings.pool)
    scores = cross_encoder_scores(task, sentences, cross, store)
    metrics = ", ".join(f"{s.split} {s.metric} {s.value:.2f}" for s in scores)
    console.print(f"Cross-encoder on {task.name}: {metrics}; its folder: {cross}", markup=False)
    return replace(prepared, logits=logits, scores=tuple(scores))
