"""What an encoder is evaluated on: the sets of a data folder, or the built-in ones; no text to train on is asked for.

sts/, sts_senteval_tok/          STS, raw and as SentEval feeds it (tokenised, lower-cased)
sc/, sts/SICK.*                  sentence classification (`classification`)
quora/, NAME/corpus.*            retrieval (`search_sets`)
glue/, nli/, ...                 labelled pair tasks (`pair_tasks`)
unlabeled/                       sentences that quantisers are calibrated on
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from distilbench.data.builtin import builtin_corpus
from distilbench.data.builtin_pairs import DEMO_TASKS
from distilbench.data.classification import read_classification
from distilbench.data.columns import format_of, read_column
from distilbench.data.corpus import Corpus, CorpusBuilder, Rows, StsSet
from distilbench.data.folder import Limits, read_sts
from distilbench.data.needs import Needs
from distilbench.data.pair_tasks import FORMATS, SPLITS, add_pair_tasks, read_pair_task
from distilbench.data.search_sets import SearchSet, of_corpus, read_search_sets
from distilbench.data.senteval import is_senteval, read_senteval_sts, read_senteval_task, senteval_tasks
from distilbench.data.tables import either
from distilbench.errors import InputError
from distilbench.store import ArtifactStore, fingerprint

KINDS = ("sts", "classification", "retrieval", "pairs")
CALIBRATION = 5_000
"""Sentences that quantisers are calibrated on at most."""


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

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that a score depends on."""
        tokenised = [[s.name, s.split, *(c.tolist() for c in (s.left_P, s.right_P, s.score_P))] for s in self.tokenised]
        return fingerprint([self.corpus.fingerprint, tokenised, [s.digest() for s in self.searches]])


def evaluation_data(root: Path | None, kinds: Sequence[str], limits: Limits, store: ArtifactStore) -> EvaluationData:
    """The sets of the `kinds` asked for, in `root` or built in.

    Raises:
        InputError: the folder is not there or has no set of these kinds, or a file in it is malformed (file, row and value
            are named).
    """
    if root is None:
        return _builtin(kinds, store)
    if not root.is_dir():
        raise InputError(f"--data {root}: no such folder")
    builder = CorpusBuilder(name=root.resolve().name)
    tokenised: list[StsSet] = []
    searches: list[SearchSet] = []
    if is_senteval(root):
        if "sts" in kinds:
            read_senteval_sts(root, builder)
        labelled = [read_senteval_task(root, name) for name in senteval_tasks(root)] if "pairs" in kinds else []
    else:
        if "sts" in kinds:
            read_sts(root / "sts", builder)
            raw = len(builder.sts)
            if (root / "sts_senteval_tok").is_dir():
                read_sts(root / "sts_senteval_tok", builder)
            tokenised = builder.sts[raw:]
            del builder.sts[raw:]
        if "classification" in kinds:
            read_classification(root, builder)
        labelled = [read_pair_task(root, name) for name in _tasks(root, builder)] if "pairs" in kinds else []
    if "retrieval" in kinds:
        searches = read_search_sets(root, store, limits.documents, builder.found, builder.missing)
    asked = set(builder.sentences)
    add_pair_tasks(labelled, limits.labelled, asked, builder)
    queries = tuple(builder.rows(s.queries) for s in searches)
    calibration = builder.rows(_calibration(root, builder, asked.union(*(task.evaluation for task in labelled))))
    corpus = replace(builder.build(), train=np.unique(calibration))  # the pair tasks allow training on their sentences
    if not (corpus.sts or corpus.classification or corpus.pair_tasks or searches):
        raise InputError(
            f"--data {root}: no set of {', '.join(kinds)} in it; expected e.g. sts/STSB.test.tsv (see the README)"
        )
    return EvaluationData(corpus, tuple(tokenised), tuple(searches), queries)


def _tasks(root: Path, builder: CorpusBuilder) -> list[str]:
    """The pair tasks that have a train and a dev set; the others are told."""
    found = []
    for name, form in FORMATS.items():
        files = {s: any(either(root, file) for file in form.files[s]) for s in SPLITS[:2]}
        if all(files.values()):
            found.append(name)
        else:
            builder.missing += [f"pair task {name}: {form.files[s][0]}" for s, there in files.items() if not there]
    return found


def _calibration(root: Path, builder: CorpusBuilder, asked: set[str]) -> list[str]:
    """The sentences to calibrate on: the first unlabelled ones that no set asks about, else the built-in ones."""
    files = [path for path in sorted((root / "unlabeled").glob("*")) if format_of(path)]
    drawn: list[str] = []
    for text in (text for path in files for _, text in read_column(path, "text")):
        if isinstance(text, InputError):
            raise text
        if text not in asked:
            drawn.append(text)
        if len(drawn) == CALIBRATION:
            break
    told = "unlabeled/"
    if not drawn:
        built_in = builtin_corpus()
        drawn, told = [built_in.sentences[row] for row in built_in.train[:CALIBRATION]], "the built-in corpus"
    builder.found.append(f"quantisers are calibrated on {len(drawn):,} sentences of {told}")
    return drawn


def _builtin(kinds: Sequence[str], store: ArtifactStore) -> EvaluationData:
    corpus = builtin_corpus(needs=Needs(pair_tasks=DEMO_TASKS if "pairs" in kinds else ()))
    retrieval = corpus.retrieval if "retrieval" in kinds else ()
    searches = tuple(of_corpus(s, corpus.sentences, store) for s in retrieval)
    missing = ("sentence classification: the built-in corpus has no set of it",) if "classification" in kinds else ()
    own = replace(
        corpus,
        sts=corpus.sts if "sts" in kinds else (),
        retrieval=(),
        train=corpus.train[:CALIBRATION],
        missing=(*corpus.missing, *missing),
    )
    return EvaluationData(own, (), searches, tuple(s.queries for s in retrieval))
