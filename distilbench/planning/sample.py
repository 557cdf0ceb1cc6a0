"""A small part of a corpus on which rates are measured: its own sentences and dev sets, with random embeddings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from distilbench.data.corpus import Corpus, PairSplit, Rows
from distilbench.encoders.student import is_static, resolved_student, student_source
from distilbench.evaluation.retrieval import unit
from distilbench.prepare.prepared import LOGITS, save_prepared
from distilbench.prepare.static_start import static_start_artifact
from distilbench.prepare.tokens import tokens_artifact
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.storage.store import ArtifactStore

TRAIN = 2048
"""Training sentences, pairs, triplets and labelled pairs at most, of each."""


def sample_of(corpus: Corpus) -> Corpus:
    """Some training examples of each kind and the dev sets, with the sentences that these use; rows are numbered anew."""
    train = corpus.train[np.linspace(0, len(corpus.train) - 1, min(TRAIN, len(corpus.train))).astype(np.int64)]
    pairs, triplets = corpus.pairs_P2[:TRAIN], corpus.triplets_T3[:TRAIN]
    dev = [s for s in corpus.sts if s.split == "dev"]
    tasks = [
        replace(task, splits={name: _first(split) for name, split in task.splits.items()}) for task in corpus.pair_tasks
    ]
    used = [train, pairs.ravel(), triplets.ravel(), *(side for s in dev for side in (s.left_P, s.right_P))]
    used += [side for task in tasks for split in task.splits.values() for side in (split.left_P, split.right_P)]
    sampled_rows = np.unique(np.concatenate(used))

    def at(rows: Rows) -> Rows:
        return np.searchsorted(sampled_rows, rows).astype(np.int64)

    return replace(
        corpus,
        sentences=[corpus.sentences[int(row)] for row in sampled_rows],
        train=np.unique(at(np.concatenate([train, pairs.ravel(), triplets.ravel()]))),
        pairs_P2=at(pairs),
        triplets_T3=at(triplets),
        sts=tuple(replace(s, left_P=at(s.left_P), right_P=at(s.right_P)) for s in dev),
        retrieval=(),
        pair_tasks=tuple(
            replace(
                task,
                splits={n: PairSplit(at(s.left_P), at(s.right_P), s.target_P) for n, s in task.splits.items()},
            )
            for task in tasks
        ),
        classification=(),
        roles_N=None if corpus.roles_N is None else corpus.roles_N[sampled_rows],
    )


def _first(split: PairSplit) -> PairSplit:
    return PairSplit(split.left_P[:TRAIN], split.right_P[:TRAIN], split.target_P[:TRAIN])


def prepare_sample(settings: SweepSettings, corpus: Corpus, folder: Path, *, tokens: bool, logits: bool) -> Path:
    """What trials read, made of a sampled corpus in `folder`, and its prepared folder: the student's real tokens, random
    vectors of the teacher's width in the place of its own (a step takes as long on them), and axes that are no PCA.

    Raises:
        InputError: teacher or student cannot be loaded.
    """
    rng, width = np.random.default_rng(0), settings.teacher_encoder.width()
    vectors_ND = unit(rng.standard_normal((len(corpus.sentences), width), dtype=np.float32))
    save_array(folder / "vectors" / shard_name(0), vectors_ND.astype(settings.vectors))
    vectors = ShardedArray(folder / "vectors", len(vectors_ND), width, len(vectors_ND))
    save_array(folder / "pca" / "mean.npy", vectors_ND.mean(axis=0))
    save_array(folder / "pca" / "axes.npy", np.eye(width, dtype=np.float32))
    ids, static = None, None
    if tokens:
        store, key, source = ArtifactStore(folder / "store"), corpus.sentences_fingerprint, settings.student_encoder
        if is_static(settings.student):
            teacher = student_source(settings.student, settings.teacher_encoder)
            static = static_start_artifact(teacher, store, settings.pool)
        ids = tokens_artifact(corpus.sentences, key, source, store, settings.pool, corpus.roles_N, static)
    task = corpus.pair_tasks[0] if corpus.pair_tasks else None
    if task is not None and logits:
        outputs = 3 if task.kind == "three-class" else 1
        pairs = len(task.splits["train"].target_P)
        save_array(folder / "logits" / LOGITS, rng.standard_normal((pairs, outputs), dtype=np.float32))
    logits_folder = folder / "logits" if task is not None and logits else None
    ready = folder / "prepared"
    student = resolved_student(settings.student, settings.teacher_encoder) if tokens else settings.student
    save_prepared(
        ready,
        corpus,
        settings.teacher_encoder,
        student,
        vectors,
        folder / "pca",
        ids,
        task,
        logits_folder,
        static=static,
    )
    return ready
