"""What an encoder is evaluated on: the sets of a data folder, or the built-in ones; no text to train on is asked for.

sts/, sts_senteval_tok/          STS, raw and as SentEval feeds it (tokenised, lower-cased)
sc/, sts/SICK.*                  sentence classification (`classification`)
quora/, NAME/corpus.*            retrieval (`search_sets`)
glue/, nli/, ...                 labelled pair tasks (`pair_tasks`)
unlabeled/                       sentences that quantisers are calibrated on

SentEval's own folder, known by its `downstream/`, has STS, sentence classification and pair tasks (`senteval`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from distilbench.choices import TaskKind
from distilbench.data.builtin import builtin_corpus
from distilbench.data.builtin_pairs import DEMO_TASKS
from distilbench.data.classification import read_classification
from distilbench.data.columns import format_of, read_column
from distilbench.data.corpus import Corpus, CorpusBuilder, Rows, StsSet
from distilbench.data.folder import Limits, read_sts
from distilbench.data.needs import Needs
from distilbench.data.pair_tasks import FORMATS, SPLITS, TaskFormat, add_pair_tasks, read_pair_task
from distilbench.data.search_sets import SearchSet, of_corpus, read_search_sets
from distilbench.data.senteval import is_senteval, read_senteval_sts, read_senteval_task, senteval_tasks
from distilbench.data.senteval_classification import FOLDERS, read_senteval_classification
from distilbench.data.tables import either
from distilbench.data.tsv import read_tsv
from distilbench.errors import InputError
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore

KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
CALIBRATION = 2_000
"""Sentences that quantisers are calibrated on at most: 1,000 instead of 20,000 moved STS-B by 0.02 at most."""
_EXPECTED = {
    "sts": "sts/STSB.test.tsv",
    "classification": "sc/MR.tsv",
    "retrieval": "quora/pairs.tsv",
    "pairs": "glue/MRPC.train.tsv and glue/MRPC.dev.tsv",
}


@dataclass(frozen=True)
class EvaluationData:
    """The sets, with their sentences in `corpus`; `corpus.train` are the rows to calibrate on.

    The documents of `searches` are files of their own; `queries` are the rows of their queries. `tokenised` are STS sets
    beside those of the corpus.
    """

    corpus: Corpus
    tokenised: tuple[StsSet, ...]
    searches: tuple[SearchSet, ...]
    queries: tuple[Rows, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is no set to score."""
        corpus = self.corpus
        return not (corpus.sts or corpus.classification or corpus.pair_tasks or self.tokenised or self.searches)

    def rows_by_kind(self) -> dict[str, Rows]:
        """The rows that the sets of each kind use, and those to calibrate on ("calibration"), each once.

        Their order is that of the sets, so that it is the same whatever other kinds there are.
        """
        sts_sets, corpus = (*self.corpus.sts, *self.tokenised), self.corpus
        columns = {
            "sts": [side for s in sts_sets for side in (s.left_P, s.right_P)],
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
        """SHA-256 of everything that a score depends on."""
        tokenised = [[s.name, s.split, *(c.tolist() for c in (s.left_P, s.right_P, s.score_P))] for s in self.tokenised]
        return fingerprint([self.corpus.fingerprint, tokenised, [s.digest() for s in self.searches]])


def evaluation_data(root: Path | None, kinds: Sequence[str], limits: Limits, store: ArtifactStore) -> EvaluationData:
    """The sets of the `kinds` asked for, in `root` or built in.

    Raises:
        InputError: the folder is not there, there is no set of these kinds in it or built in, or a file is malformed (file,
            row and value are named).
        ValueError: one of `kinds` is none of `KINDS`, or there is none.
    """
    if not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(f"kinds {kinds!r}: expected some of {', '.join(KINDS)}")
    if root is None:
        return _builtin(kinds, store)
    if not root.is_dir():
        raise InputError(f"--data {root}: no such folder")
    builder = CorpusBuilder(name=root.resolve().name)
    tokenised: list[StsSet] = []
    searches: list[SearchSet] = []
    if is_senteval(root):
        if "sts" in kinds:
            read_senteval_sts(root, builder, also=FOLDERS if "classification" in kinds else ())
        if "classification" in kinds:
            read_senteval_classification(root, builder)
        names = senteval_tasks(root, builder.missing) if "pairs" in kinds else []
        labelled = [read_senteval_task(root, name) for name in names]
    else:
        if "sts" in kinds:
            read_sts(root / "sts", builder)
            if (root / "sts_senteval_tok").is_dir():
                raw, builder.sts = builder.sts, []  # set aside: what is missing is told of each folder alone
                read_sts(root / "sts_senteval_tok", builder)
                tokenised, builder.sts = builder.sts, raw
        if "classification" in kinds:
            read_classification(root, builder)
        labelled = [read_pair_task(root, name) for name in _tasks(root, builder)] if "pairs" in kinds else []
    if "retrieval" in kinds:
        searches = read_search_sets(root, store, limits.documents, builder.found, builder.missing)
    test_texts = set(builder.sentences)
    add_pair_tasks(labelled, limits.labelled, test_texts, builder)
    queries = tuple(builder.rows(s.queries) for s in searches)
    test_texts = test_texts.union(*(task.evaluation for task in labelled), *(s.queries for s in searches))
    calibration = builder.rows(_calibration(root, builder, test_texts))
    # The pair tasks allow training on their sentences; a file of two kinds of sets may be missing twice.
    missing = tuple(dict.fromkeys(builder.missing))
    corpus = replace(builder.build(), train=np.unique(calibration), missing=missing)
    data = EvaluationData(corpus, tuple(tokenised), tuple(searches), queries)
    if data.is_empty:
        example = f"e.g. {_EXPECTED[kinds[0]]} (docs/data.md)"
        expected = "what SentEval's get_transfer_data.bash makes" if is_senteval(root) else example
        raise InputError(f"--data {root}: no set of {' or '.join(kinds)} in it; expected {expected}")
    return data


def _tasks(root: Path, builder: CorpusBuilder) -> list[str]:
    """The pair tasks that have a train and a dev set; the others are told."""
    names = []
    for name, form in FORMATS.items():
        absent = [s for s in SPLITS[:2] if not _has_split(root, form, s)]
        if not absent:
            names.append(name)
        rows = f" with rows of {form.split_column} {{}}" if form.split_column else ""
        builder.missing += [f"pair task {name}: {form.files[s][0]}{rows.format(s)}" for s in absent]
    return names


def _has_split(root: Path, form: TaskFormat, split: str) -> bool:
    path = next((path for file in form.files[split] if (path := either(root, file))), None)
    if path is None or not form.split_column:
        return path is not None
    return any(value == split for _, [value] in read_tsv(path, (form.split_column,)))


def _calibration(root: Path, builder: CorpusBuilder, test_texts: set[str]) -> list[str]:
    """The sentences to calibrate on: the first unlabelled ones that no set asks about, else the built-in ones."""
    files = [path for path in sorted((root / "unlabeled").glob("*")) if format_of(path)]
    drawn: dict[str, None] = {}
    for text in (text for path in files for _, text in read_column(path, "text")):
        if isinstance(text, InputError):
            raise text
        if text not in test_texts:
            drawn[text] = None
        if len(drawn) == CALIBRATION:
            break
    origin = "unlabeled/"
    if not drawn:
        built_in = builtin_corpus()
        drawn = dict.fromkeys(built_in.sentences[row] for row in built_in.train[:CALIBRATION])
        origin = "the built-in corpus"
    builder.found.append(f"quantisers are calibrated on {len(drawn):,} sentences of {origin}")
    return list(drawn)


def _builtin(kinds: Sequence[str], store: ArtifactStore) -> EvaluationData:
    corpus = builtin_corpus(needs=Needs(pair_tasks=DEMO_TASKS if "pairs" in kinds else ()))
    retrieval = corpus.retrieval if "retrieval" in kinds else ()
    searches = tuple(of_corpus(s, corpus.sentences, store) for s in retrieval)
    missing = ("sentence classification: the built-in corpus has no set of it",) if "classification" in kinds else ()
    selected = replace(
        corpus,
        sts=corpus.sts if "sts" in kinds else (),
        retrieval=(),
        train=corpus.train[:CALIBRATION],
        missing=(*corpus.missing, *missing),
    )
    data = EvaluationData(selected, (), searches, tuple(s.queries for s in retrieval))
    if data.is_empty:
        raise InputError(
            f"the built-in corpus has no set of {' or '.join(kinds)}; expected --data with {_EXPECTED[kinds[0]]}"
        )
    return data
