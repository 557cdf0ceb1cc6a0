"""The students of a run, made ready: the tokens of each, and its layers by a ranking where it asks for one."""

from __future__ import annotations

from collections.abc import Sequence

from distilbench.data.corpus import Corpus, StsSet
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import (
    StudentSpec,
    resolved_student,
    student_pooling,
    student_source,
)
from distilbench.prepare.artifacts import StudentArtifacts
from distilbench.prepare.layer_ranking import LayerRanker
from distilbench.prepare.pruned_students import pruned_encoder, pruned_static
from distilbench.prepare.ranked_layers import read_ranking
from distilbench.prepare.static_start import static_start_artifact
from distilbench.prepare.tokens import tokens_artifact
from distilbench.settings.run import PreparationSettings
from distilbench.storage.arrays import ShardedArray
from distilbench.storage.store import ArtifactStore


def prepare_student(
    settings: PreparationSettings,
    student: str,
    corpus: Corpus,
    vectors: ShardedArray,
    dev: Sequence[StsSet],
    store: ArtifactStore,
) -> StudentArtifacts:
    """What a student of this name is trained from, made or found in the store; students of one encoder share its tokens."""
    teacher, reads, spec = settings.teacher_encoder, settings.student_reading(student), StudentSpec.parse(student)
    pooling = student_pooling(student, teacher)
    static, folder, chosen = None, None, None
    if spec.is_static:
        static = static_start_artifact(student_source(student, teacher), store)
    tokens = tokens_artifact(corpus.text, reads, store, settings.pool, static)
    if spec.ranked:
        start = str(spec.with_all_tokens)
        folder = LayerRanker(start, teacher, pooling, vectors, tokens, corpus.train, dev).artifact(store)
        ranking = read_ranking(folder)
        assert ranking is not None
        chosen = ranking.chosen
    student = resolved_student(student, teacher, chosen)
    if spec.fewer_tokens:
        prompts = sorted({text for text in (reads.prompt, reads.query_prompt, reads.document_prompt) if text})
        if static is not None:
            static = pruned_static(static, tokens, corpus, prompts, store)
        else:
            encoder = pruned_encoder(student_source(student, teacher), tokens, corpus, prompts, store)
            student = str(StudentSpec.parse(student).made_of(str(encoder)))
            reads = settings.student_reading(student)
        tokens = tokens_artifact(corpus.text, reads, store, settings.pool, static)
    return StudentArtifacts(student, pooling, tokens, static, folder, Prompts.of(reads) if settings.by_role else None)
