"""The sets that an encoder is evaluated on, out of a data folder; training text is not required.

sts/                             STS
sc/, sts/SICK.*                  sentence classification (`classification_sets`)
quora/, NAME/corpus.*            retrieval (`retrieval_sets`); without judgements made of pairs (`searches`)
glue/, nli/, ...                 labelled pair tasks (`pair_tasks`)
quora/, cqadupstack/, unlabeled/ training text, which quantisers are calibrated on, as in a sweep
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from distilbench.choices import EVERY_TASK, TaskKind
from distilbench.data.about import DEMONSTRATION, PairTaskFormat, about
from distilbench.data.calibration import calibration_rows
from distilbench.data.classification_sets import read_classification
from distilbench.data.corpus import Corpus, CorpusBuilder, Rows
from distilbench.data.folder import Limits, deeper_told, read_folder, read_sts
from distilbench.data.pair_tasks import LabelledPairs, add_pair_tasks, formats_of, read_pair_task
from distilbench.data.readers import read_tsv
from distilbench.data.retrieval_sets import LargeRetrievalSet, of_corpus, read_retrieval_sets
from distilbench.data.roles import PLAIN, QUERY
from distilbench.data.searches import MADE_OF
from distilbench.data.splits import SPLITS, split_of
from distilbench.errors import InputError
from distilbench.selection import BY_RETRIEVAL
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore

_EXPECTED = {
    "sts": "sts/STSB.test.tsv",
    "classification": "sc/MR.tsv",
    "retrieval": "quora/pairs.tsv",
    "pairs": "glue/MRPC.train.tsv and glue/MRPC.dev.tsv",
}

_NONE = (np.empty(0, dtype=np.int64),)


@dataclass(frozen=True)
class EvaluationData:
    """The sets, with their sentences in `corpus`; `corpus.train` are the rows to calibrate on.

    The documents of `searches` are files of their own; `queries` are the rows of their queries.
    """

    corpus: Corpus
    searches: tuple[LargeRetrievalSet, ...]
    queries: tuple[Rows, ...]
    alike: EvaluationData | None = None
    """This data before `with_roles`, with one row for each text; None if it has no roles."""

    @property
    def is_empty(self) -> bool:
        """True if there is no set to score."""
        corpus = self.corpus
        return not (corpus.sts or corpus.classification or corpus.pair_tasks or self.searches)

    @property
    def by_role(self) -> bool:
        """Whether queries have rows of their own."""
        return self.alike is not None

    def with_roles(self) -> EvaluationData:
        """Give queries rows of their own, after the others: an encoder may read them differently."""
        corpus = self.corpus
        rows = np.unique(np.concatenate([*self.queries, *_NONE]))
        queries = tuple(len(corpus.sentences) + np.searchsorted(rows, of_set) for of_set in self.queries)
        sentences = (*corpus.sentences, *(corpus.sentences[int(row)] for row in rows))
        roles_N = np.repeat([PLAIN, QUERY], [len(corpus.sentences), len(rows)]).astype(np.int8)
        return replace(self, corpus=replace(corpus, sentences=sentences, roles_N=roles_N), queries=queries, alike=self)

    def rows_by_kind(self) -> dict[str, Rows]:
        """The rows that the sets of each kind use, and those to calibrate on ("calibration"), each once.

        Their order is that of the sets, so that it is the same whatever other kinds there are.
        """
        corpus = self.corpus
        columns = {
            "sts": [side for s in corpus.sts for side in (s.left_P, s.right_P)],
            "classification": [side for s in corpus.classification for side in s.texts],
            "pairs": [side for t in corpus.pair_tasks for s in t.splits.values() for side in (s.left_P, s.right_P)],
            "queries": list(self.queries),
            "calibration": [corpus.train],
        }
        return {
            kind: np.fromiter(dict.fromkeys(np.concatenate(c).tolist()), np.int64) for kind, c in columns.items() if c
        }

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that a score depends on, but for how an encoder reads it."""
        if self.alike is not None:
            return self.alike.fingerprint
        return fingerprint([self.corpus.fingerprint, [s.digest() for s in self.searches]])


def evaluation_data(root: Path, kinds: Sequence[TaskKind], limits: Limits, store: ArtifactStore) -> EvaluationData:
    """The sets of the `kinds` asked for, in the data folder `root`."""
    if not kinds or not set(kinds) <= set(EVERY_TASK):
        raise ValueError(f"kinds {kinds!r}: expected some of {', '.join(EVERY_TASK)}")
    if not root.is_dir():
        raise InputError(f"--data {root}: no such folder")
    builder = CorpusBuilder(root.resolve().name, about(root).demonstration)
    searches: list[LargeRetrievalSet] = []
    if "sts" in kinds:
        read_sts(root / "sts", builder)
    coded = builder.scored
    labelled = read_labelled_sets(root, kinds, builder)
    if "retrieval" in kinds:
        searches = read_retrieval_sets(root, store, limits.documents, builder.found, builder.missing)
        searches = searches or _made_of_pairs(root, kinds, limits, store, builder)
    add_pair_tasks(labelled, limits.pairs, coded | builder.scored, builder)
    queries = tuple(builder.rows(s.queries) for s in searches)
    coded = coded.union(*(s.queries for s in searches))
    calibration = builder.rows(_calibration(root, kinds, limits, builder, coded))
    # The pair tasks allow training on their sentences; a file of two kinds of sets may be missing twice.
    corpus = builder.build()
    corpus = replace(corpus, train=np.unique(calibration), missing=tuple(dict.fromkeys(corpus.missing)))
    data = EvaluationData(corpus, tuple(searches), queries)
    if data.is_empty:
        raise InputError(
            f"--data {root}: no set of {' or '.join(kinds)} in it; expected e.g. {_EXPECTED[kinds[0]]} (docs/data.md)"
            + deeper_told(root)
        )
    return data


def _made_of_pairs(
    root: Path, kinds: Sequence[TaskKind], limits: Limits, store: ArtifactStore, builder: CorpusBuilder
) -> list[LargeRetrievalSet]:
    """The sets that a sweep that selects by retrieval makes of the folder's pairs, where there are no judgements."""
    own = read_folder(root, limits, kinds=kinds, select=BY_RETRIEVAL)
    builder.found += [told for told in own.found if MADE_OF in told]
    return [of_corpus(s, own.sentences, store) for s in own.retrieval]


def read_labelled_sets(root: Path, kinds: Sequence[str], builder: CorpusBuilder) -> list[LabelledPairs]:
    """Add the classification sets of a data folder to `builder` and read its pair tasks, where `kinds` ask for them."""
    if "classification" in kinds:
        read_classification(root, builder)
    return [read_pair_task(root, name) for name in _tasks(root, builder)] if "pairs" in kinds else []


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


def _calibration(
    root: Path, kinds: Sequence[TaskKind], limits: Limits, builder: CorpusBuilder, coded: set[str]
) -> list[str]:
    """The sentences to calibrate on: those that a sweep takes of the folder's training text.

    Left out are those that codes are scored on (STS, queries). Classification and pair tasks are scored in float32 alone:
    without their sentences `evaluate` would calibrate on others than a sweep. Where the folder has no training text, they
    are those of the demonstration.
    """
    own, told = read_folder(root, limits, kinds=kinds, select=None), "the folder's training text"
    drawn = [text for row in calibration_rows(own.train) if (text := own.sentences[row]) not in coded]
    if not drawn:
        own, told = read_folder(DEMONSTRATION, limits), "the demonstration"
        drawn = [own.sentences[row] for row in calibration_rows(own.train)]
    builder.found.append(f"quantisers are calibrated on {len(drawn):,} sentences of {told}")
    return drawn
