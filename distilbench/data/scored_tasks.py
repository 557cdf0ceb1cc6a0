"""Classification sets and pair tasks that the rows of a run are scored on too (`--tasks`), after the run's own sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from distilbench.choices import TaskKind
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.evaluation_sets import read_labelled_sets
from distilbench.data.pair_tasks import add_pair_tasks
from distilbench.data.training_text import asked_rows


def with_scored_tasks(corpus: Corpus, root: Path | None, tasks: Sequence[TaskKind], labelled: int | None) -> Corpus:
    """The corpus with the classification sets and pair tasks of `root` (None: no folder) that `tasks` ask for.

    Its own sentences keep their rows; those that a dev or test set of these asks about are trained on no more. A pair task
    has at most `labelled` training pairs (None: all).
    """
    if root is None or not {"classification", "pairs"} & set(tasks):
        return corpus
    builder = CorpusBuilder(corpus.name, corpus.demonstration)
    builder.rows(corpus.sentences)
    add_pair_tasks(read_labelled_sets(root, tasks, builder), labelled, set(), builder)
    added = builder.build()
    return replace(
        corpus.without_training(np.array(sorted(asked_rows(added)), dtype=np.int64)),
        sentences=added.sentences,
        classification=added.classification,
        probed=added.pair_tasks,
        found=(*corpus.found, *added.found),
        missing=(*corpus.missing, *added.missing),
    )
