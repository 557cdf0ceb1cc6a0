"""Classification sets and pair tasks that the rows of a run are scored on too (`--tasks`), after the run's own sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from distilbench.choices import TaskKind
from distilbench.data.builtin import builtin_corpus
from distilbench.data.builtin_pairs import DEMO_TASKS
from distilbench.data.corpus import Corpus, CorpusBuilder, PairTask, Rows
from distilbench.data.evaluation import NO_BUILTIN_CLASSIFICATION, read_labelled_sets
from distilbench.data.pair_tasks import add_pair_tasks
from distilbench.data.requirements import Requirements
from distilbench.data.training_text import asked_rows


def with_scored_tasks(corpus: Corpus, root: Path | None, tasks: Sequence[TaskKind], labelled: int | None) -> Corpus:
    """The corpus with the classification sets and pair tasks of `root` (None: built in) that `tasks` ask for.

    Its own sentences keep their rows; those that a dev or test set of these asks about are trained on no more. A pair task
    has at most `labelled` training pairs (None: all).

    Raises:
        InputError: a file is malformed (file, row and value are named).
    """
    if not {"classification", "pairs"} & set(tasks):
        return corpus
    builder = CorpusBuilder(corpus.name)
    builder.rows(corpus.sentences)
    if root is None:
        if "classification" in tasks:
            builder.missing.append(NO_BUILTIN_CLASSIFICATION)
        if "pairs" in tasks:
            _add_builtin_tasks(builder)
    else:
        pair_tasks = read_labelled_sets(root, tasks, builder)
        add_pair_tasks(pair_tasks, labelled, set(), builder)
    added = builder.build()
    asked = np.array(sorted(asked_rows(added)), dtype=np.int64)
    pairs, triplets = corpus.pairs_P2, corpus.triplets_T3
    return replace(
        corpus,
        sentences=added.sentences,
        train=np.setdiff1d(corpus.train, asked),
        pairs_P2=pairs[~np.isin(pairs, asked).any(axis=1)],
        triplets_T3=triplets[~np.isin(triplets, asked).any(axis=1)],
        classification=added.classification,
        probed=added.pair_tasks,
        found=(*corpus.found, *added.found),
        missing=(*corpus.missing, *added.missing),
    )


def _add_builtin_tasks(builder: CorpusBuilder) -> None:
    """Add the pair tasks of the demonstration corpus."""
    made = builtin_corpus(needs=Requirements(pair_tasks=DEMO_TASKS))

    def text(rows: Rows) -> list[str]:
        return [made.sentences[row] for row in rows]

    for task in made.pair_tasks:
        splits = {
            name: builder.pair_split(text(split.left_P), text(split.right_P), split.target_P.tolist())
            for name, split in task.splits.items()
        }
        builder.add_pair_task(PairTask(task.name, task.kind, task.classes, task.low, task.high, splits))
