"""The students of a run, made ready: the tokens of each, and its layers by a ranking where it asks for one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from distilbench.data.corpus import Corpus
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.student import (
    is_static,
    layer_rule,
    of_encoder,
    resolved_student,
    student_pooling,
    student_source,
)
from distilbench.evaluation.selection import DevSet
from distilbench.prepare.layer_ranking import ranking_artifact
from distilbench.prepare.ranked_layers import read_ranking
from distilbench.prepare.static_start import static_start_artifact
from distilbench.prepare.student_inputs import StudentInputs
from distilbench.prepare.tokens import tokens_artifact
from distilbench.prepare.vocabulary import pruned_encoder, pruned_static
from distilbench.settings.run import PreparationSettings
from distilbench.storage.arrays import ShardedArray
from distilbench.storage.store import ArtifactStore


def prepare_student(
    settings: PreparationSettings,
    student: str,
    corpus: Corpus,
    vectors: ShardedArray,
    dev: Sequence[DevSet],
    store: ArtifactStore,
    console: Console,
) -> StudentInputs:
    """The inputs of a student of this name, made or found in the store; students of one encoder share its tokens.

    Raises:
        InputError: its encoder is not there, or has no such layers.
    """
    teacher, reads = settings.teacher_encoder, settings.student_reading(student)
    key, size = corpus.sentences_fingerprint, settings.pool
    static = None
    if is_static(student):
        static = static_start_artifact(student_source(student, teacher), store, size)
    tokens = tokens_artifact(corpus.sentences, key, reads, store, size, corpus.roles_N, static)
    pooling = settings.pooling or student_pooling(student, teacher)
    if settings.vocabulary == "corpus":
        before = sorted({text for text in (reads.prompt, reads.query_prompt, reads.document_prompt) if text})
        if static is not None:
            static = pruned_static(static, tokens, corpus, before, store)
        else:
            encoder = pruned_encoder(student_source(student, teacher), tokens, corpus, before, store)
            student = of_encoder(student, str(encoder))
            reads = settings.student_reading(student)
        tokens = tokens_artifact(corpus.sentences, key, reads, store, size, corpus.roles_N, static)
    prompts = Prompts.of(reads) if settings.by_role else None
    rule = layer_rule(student)
    if rule is None or not rule.ranked:
        return StudentInputs(resolved_student(student, teacher), pooling, tokens, static, prompts=prompts)
    folder = ranking_artifact(student, teacher, pooling, vectors, tokens, corpus.train, dev, store)
    ranking = read_ranking(folder)
    assert ranking is not None
    ranking.show(console)
    return StudentInputs(
        resolved_student(student, teacher, ranking.chosen), pooling, tokens, ranking=folder, prompts=prompts
    )
