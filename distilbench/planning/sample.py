"""A small part of a corpus on which rates are measured: its own sentences and dev sets, with random embeddings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from distilbench.data.corpus import Corpus, PairSplit, PairTask, RetrievalSet, Rows
from distilbench.encoders.student import MEAN, is_static, resolved_student, student_source
from distilbench.evaluation.retrieval import unit
from distilbench.prepare.nearest import nearest_artifact
from distilbench.prepare.negatives import negatives_artifact
from distilbench.prepare.prepared import LOGITS, save_prepared
from distilbench.prepare.selection import DOCUMENTS, QUERIES, few_pairs, labelled_set, make_judged
from distilbench.prepare.stage import Wanted
from distilbench.prepare.static_start import static_start_artifact
from distilbench.prepare.student_inputs import StudentInputs
from distilbench.prepare.students import loses_tokens, pruned_start, sentence_tokens
from distilbench.selection import STS
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.storage.store import ArtifactStore
from distilbench.trials.scoring import evaluation_rows

TRAIN = 2048
"""Training sentences, pairs, triplets and labelled pairs at most, of each."""
READ = 50_000
"""The same where they only say which tokens a student has that loses the others: a step takes longer with more of them."""


def sample_of(corpus: Corpus, most: int = TRAIN) -> Corpus:
    """Some training examples, at `most` of each kind, and the dev sets, with the sentences that these use; rows are numbered
    anew."""
    train = corpus.train[np.linspace(0, len(corpus.train) - 1, min(most, len(corpus.train))).astype(np.int64)]
    pairs, triplets = corpus.pairs_P2[:most], corpus.triplets_T3[:most]
    dev = [s for s in corpus.sts if s.split == "dev"]
    tasks = [
        replace(task, splits={name: _first(split, most) for name, split in task.splits.items()})
        for task in corpus.pair_tasks
    ]
    judged = corpus.judged_P2[:most]
    pool = corpus.passages[np.linspace(0, len(corpus.passages) - 1, min(TRAIN, len(corpus.passages))).astype(np.int64)]
    used = [
        train,
        pairs.ravel(),
        triplets.ravel(),
        judged.ravel(),
        pool,
        *(side for s in dev for side in (s.left_P, s.right_P)),
    ]
    selecting = _selecting(corpus)
    used.append(evaluation_rows(selecting))
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
        judged_P2=at(judged),
        passages=np.unique(at(np.concatenate([pool, judged[:, 1]]))) if len(pool) else pool,
        sts=tuple(replace(s, left_P=at(s.left_P), right_P=at(s.right_P)) for s in dev),
        roles_N=None if corpus.roles_N is None else corpus.roles_N[sampled_rows],
        retrieval=tuple(replace(s, queries=at(s.queries), documents=at(s.documents)) for s in selecting.retrieval),
        held_out=tuple(replace(held, rows=at(held.rows)) for held in selecting.held_out),
        probed=tuple(_at(task, at) for task in selecting.probed),
        pair_tasks=tuple(_at(task, at) for task in tasks),
        classification=tuple(replace(s, texts=tuple(map(at, s.texts))) for s in selecting.classification),
    )


def _selecting(corpus: Corpus) -> Corpus:
    """The corpus with as much of its dev sets as students are judged on, and no other sets; none where STS selects."""
    kinds = corpus.selection.kinds
    searched = (s for s in corpus.retrieval if s.split == "dev" and "retrieval" in kinds)
    labelled = map(labelled_set, corpus.classification if "classification" in kinds else ())
    probed = (t for t in corpus.probed if "pairs" in kinds and {"train", "dev"} <= t.splits.keys())
    return replace(
        corpus,
        sts=(),
        retrieval=tuple(_searched(s) for s in searched),
        classification=tuple(s for s in labelled if s is not None),
        probed=tuple(few_pairs(task) for task in probed),
        held_out=tuple(held for held in corpus.held_out if held.split == "dev"),
    )


def _searched(task: RetrievalSet) -> RetrievalSet:
    """As many queries and documents as students are judged on, whichever these are."""
    relevant = task.relevant[:QUERIES]
    needed = np.unique(np.concatenate(relevant))
    others = np.setdiff1d(np.arange(len(task.documents)), needed)[: max(0, DOCUMENTS - len(needed))]
    kept = np.union1d(needed, others)
    return replace(
        task,
        queries=task.queries[:QUERIES],
        documents=task.documents[kept],
        relevant=tuple(np.searchsorted(kept, found) for found in relevant),
        grades=None if task.grades is None else task.grades[:QUERIES],
    )


def _at(task: PairTask, at: Callable[[Rows], Rows]) -> PairTask:
    splits = {n: PairSplit(at(s.left_P), at(s.right_P), s.target_P) for n, s in task.splits.items()}
    return replace(task, splits=splits)


def _first(split: PairSplit, most: int) -> PairSplit:
    return PairSplit(split.left_P[:most], split.right_P[:most], split.target_P[:most])


def prepare_sample(settings: SweepSettings, whole: Corpus, corpus: Corpus, folder: Path, needs: Wanted) -> Path:
    """What trials read, made of a sampled corpus in `folder`, and its prepared folder: the student's real tokens, random
    vectors of the teacher's width in the place of its own (a step takes as long on them), and axes that are no PCA.

    A student that loses tokens keeps those of the `whole` corpus, or of so many of its examples as `READ` says.

    Raises:
        InputError: teacher or student cannot be loaded.
    """
    rng, width = np.random.default_rng(0), settings.teacher_encoder.width()
    vectors_ND = unit(rng.standard_normal((len(corpus.sentences), width), dtype=np.float32))
    save_array(folder / "vectors" / shard_name(0), vectors_ND.astype(settings.vectors))
    vectors = ShardedArray(folder / "vectors", len(vectors_ND), width, len(vectors_ND))
    save_array(folder / "pca" / "mean.npy", vectors_ND.mean(axis=0))
    save_array(folder / "pca" / "axes.npy", np.eye(width, dtype=np.float32))
    students = {
        name: _student(settings, name or settings.student, whole, corpus, folder)
        for name in needs.students
        if needs.tokens
    }
    own = students.get(None)
    task = corpus.pair_tasks[0] if corpus.pair_tasks else None
    if task is not None and needs.logits:
        outputs = 3 if task.kind == "three-class" else 1
        pairs = len(task.splits["train"].target_P)
        save_array(folder / "logits" / LOGITS, rng.standard_normal((pairs, outputs), dtype=np.float32))
    logits_folder = folder / "logits" if task is not None and needs.logits else None
    ready = folder / "prepared"
    judged = None if corpus.selection == STS else make_judged(corpus, vectors.take).dev
    here = ArtifactStore(folder / "store")
    negatives = negatives_artifact(corpus, vectors, needs.negatives, here)
    save_prepared(
        ready,
        corpus,
        settings.teacher_encoder,
        own.student if own else settings.student,
        vectors,
        folder / "pca",
        own.tokens if own else None,
        task,
        logits_folder,
        negatives=negatives,
        judged=judged,
        static=own.static if own else None,
        nearest=nearest_artifact(vectors, corpus.train, needs.nearest, here) if needs.nearest else None,
        students={name: inputs for name, inputs in students.items() if name is not None},
    )
    return ready


def _student(settings: SweepSettings, student: str, whole: Corpus, corpus: Corpus, folder: Path) -> StudentInputs:
    """A student's real tokens; layers that are to be ranked are as many of them, unranked."""
    store, teacher, static = ArtifactStore(folder / "store"), settings.teacher_encoder, None
    if is_static(student):
        static = static_start_artifact(student_source(student, teacher), store, settings.pool)
    source, fewer = settings.student_reading(student), loses_tokens(settings, student)
    student = resolved_student(student, teacher)
    if fewer:
        read = sample_of(whole, READ)
        all_tokens = sentence_tokens(settings, source, read, static, store)
        student, source, static = pruned_start(settings, student, read, all_tokens, static, store)
    return StudentInputs(student, MEAN, sentence_tokens(settings, source, corpus, static, store), static)
