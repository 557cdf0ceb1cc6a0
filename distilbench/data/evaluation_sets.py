"""The sets that encoders are evaluated on, out of a data folder (`folder`, `classification_sets`, `pair_tasks`).

Training text, which quantisers are calibrated on as in a sweep, is not required.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from distilbench.choices import TaskKind
from distilbench.data.about import DEMONSTRATION, PairTaskFormat
from distilbench.data.classification_sets import read_classification
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.folder import Limits, add_sets, add_training, builder_of, folder_corpus, nothing_in
from distilbench.data.pair_tasks import add_pair_tasks, formats_of, read_pair_task
from distilbench.data.readers import read_tsv
from distilbench.data.sampling import calibration_rows
from distilbench.data.splits import SPLITS, split_of
from distilbench.data.training_text import asked_rows
from distilbench.selection import BY_RETRIEVAL, STS

_EXPECTED = {
    "sts": "sts/STSB.test.tsv",
    "classification": "sc/MR.tsv",
    "retrieval": "quora/pairs.tsv",
    "pairs": "glue/MRPC.train.tsv and glue/MRPC.dev.tsv",
}


def evaluation_corpus(root: Path, kinds: Sequence[TaskKind], limits: Limits) -> Corpus:
    """The sets of the `kinds` in the data folder `root`; `train` are the rows that quantisers are calibrated on.

    These are the rows that a sweep takes of the folder's training text; without any, the demonstration's.
    """
    builder = builder_of(root)
    sets = add_sets(root, limits, builder, kinds, BY_RETRIEVAL if "retrieval" in kinds else STS)
    found, missing = tuple(builder.found), tuple(builder.missing)
    add_training(root, limits, builder, sets)
    corpus = replace(builder.build().of_tasks(kinds), found=found, missing=missing)
    calibrated = calibration_rows(corpus.train)
    corpus = with_scored_tasks(corpus, root, kinds, limits.pairs)
    if not (corpus.sts or corpus.classification or corpus.probed or corpus.retrieval):
        expected = f"no set of {' or '.join(kinds)} in it; expected e.g. {_EXPECTED[kinds[0]]} (docs/data.md)"
        raise nothing_in(root, expected, corpus.missing)
    told, sentences = "the folder's training text", corpus.sentences
    if not len(calibrated):
        told, own = "the demonstration", folder_corpus(DEMONSTRATION, limits)
        texts = CorpusBuilder(corpus.name)
        texts.rows(sentences)
        calibrated = np.unique(texts.rows([own.sentences[row] for row in calibration_rows(own.train)]))
        sentences = texts.sentences
    return replace(
        corpus,
        sentences=sentences,
        train=calibrated,
        found=(*corpus.found, f"quantisers are calibrated on {len(calibrated):,} sentences of {told}"),
        missing=() if corpus.demonstration else tuple(dict.fromkeys(corpus.missing)),
        pairs_P2=corpus.pairs_P2[:0],
    )


def with_scored_tasks(corpus: Corpus, root: Path | None, tasks: Sequence[TaskKind], labelled: int | None) -> Corpus:
    """The corpus with the classification sets and pair tasks of `root` (None: no folder) that `tasks` ask for.

    Its own sentences keep their rows; those that a dev or test set of these asks about are trained on no more. A pair task
    has at most `labelled` training pairs (None: all).
    """
    if root is None or not {"classification", "pairs"} & set(tasks):
        return corpus
    builder = CorpusBuilder(corpus.name, corpus.demonstration)
    builder.rows(corpus.sentences)
    if "classification" in tasks:
        read_classification(root, builder)
    if "pairs" in tasks:
        add_pair_tasks([read_pair_task(root, name) for name in _tasks(root, builder)], labelled, set(), builder)
    added = builder.build()
    return replace(
        corpus.without_training(np.array(sorted(asked_rows(added)), dtype=np.int64)),
        sentences=added.sentences,
        classification=added.classification,
        probed=added.pair_tasks,
        found=(*corpus.found, *added.found),
        missing=(*corpus.missing, *added.missing),
    )


def _tasks(root: Path, builder: CorpusBuilder) -> list[str]:
    """The pair tasks that have a train and a dev set; the others are told."""
    names = []
    for name, form in formats_of(root).items():
        absent = [s for s in SPLITS[:2] if not _has_split(root, form, s)]
        if not absent:
            names.append(name)
        builder.missing += [f"pair task {name}: {form.expected(s)}" for s in absent]
    return names


def _has_split(root: Path, form: PairTaskFormat, split: str) -> bool:
    path = form.path(root, split)
    if path is None or not form.split_column:
        return path is not None
    return any(split_of(value) == split for _, [value] in read_tsv(path, (form.split_column,)))
