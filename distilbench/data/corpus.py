"""A corpus: distinct sentences once, and every set as row numbers into them.

Encoding work is proportional to `len(corpus.sentences)`, whatever number of sets share a sentence.

Axes in names: N distinct sentences, P pairs, T triplets.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distilbench.data.sentences import CorpusText
from distilbench.records import SEARCHES
from distilbench.selection import STS, Selection

Rows = NDArray[np.int64]
Split = Literal["dev", "test"]
"""The splits that encoders are scored on."""


@dataclass(frozen=True)
class StsSet:
    """One STS file: `group` "STS12", `subset` "MSRpar" ("" where the group has none).

    `left_P` and `right_P` are rows of the corpus, `score_P` the gold similarity (any increasing scale).
    """

    group: str
    subset: str
    split: str
    left_P: Rows
    right_P: Rows
    score_P: NDArray[np.float64]

    @property
    def name(self) -> str:
        """Group and subset."""
        return f"{self.group}.{self.subset}" if self.subset else self.group

    @property
    def columns(self) -> tuple[Rows, ...]:
        """The rows that it is scored on."""
        return self.left_P, self.right_P


@dataclass(frozen=True)
class RetrievalSet:
    """Queries against documents, both as rows of the corpus.

    `relevant[i]` holds the positions in `documents` (not corpus rows) that answer query i; never empty. `grades[i]` says
    how well each does (above 0); None is 1 for all.
    """

    name: str
    split: Split
    queries: Rows
    documents: Rows
    relevant: tuple[Rows, ...]
    grades: tuple[NDArray[np.float64], ...] | None = None
    own_Q: Rows | None = None
    """The position of the document that is the query itself, which it does not find; -1: none. None: of no query."""

    @property
    def columns(self) -> tuple[Rows, ...]:
        """The rows that it is scored on."""
        return self.queries, self.documents

    def of_queries(self, chosen: Rows) -> RetrievalSet:
        """The same with the queries at these positions alone, and all documents."""
        return replace(
            self,
            queries=self.queries[chosen],
            relevant=tuple(self.relevant[q] for q in chosen),
            grades=None if self.grades is None else tuple(self.grades[q] for q in chosen),
            own_Q=None if self.own_Q is None else self.own_Q[chosen],
        )


@dataclass(frozen=True)
class PairSplit:
    """Labelled pairs of one split: rows of the corpus, and a gold score or the number of a class for each pair."""

    left_P: Rows
    right_P: Rows
    target_P: NDArray[np.float64]


@dataclass(frozen=True)
class PairTask:
    """A supervised task on sentence pairs (GLUE's kind): `name` "MRPC", at least a "train" and a "dev" split.

    `classes` are the labels' names in the order of their numbers, empty for regression; `low` and `high` are the ends of
    the gold scale of a regression (0 and 5 for STS-B), 0 and 1 otherwise.
    """

    name: str
    kind: Literal["regression", "binary", "three-class"]
    classes: tuple[str, ...]
    low: float
    high: float
    splits: Mapping[str, PairSplit]

    @property
    def columns(self) -> tuple[Rows, ...]:
        """The rows that it is learned and scored on."""
        return tuple(side for split in self.splits.values() for side in (split.left_P, split.right_P))


@dataclass(frozen=True)
class ClassificationSet:
    """Sentences, or pairs of them, with a class: `columns` has the corpus rows of each side.

    `class_N` are positions in `classes`, `split_N` is "train", "dev" or "test" of each; a set that is cross-validated is all
    "train".
    """

    name: str
    classes: tuple[str, ...]
    columns: tuple[Rows, ...]
    class_N: NDArray[np.int64]
    split_N: NDArray[np.str_]


EvaluationSet = StsSet | RetrievalSet | PairTask | ClassificationSet
"""A labelled set: its `columns` are rows of the corpus."""


@dataclass(frozen=True)
class HeldOut:
    """Sentences that nothing is trained on, rising rows, on which a student is compared with its teacher."""

    split: Split
    rows: Rows


@dataclass(frozen=True)
class Copies:
    """Augmented sentences, which are not among the training rows: their rows, the row of each one's source, and the
    number in `names` of the operation that made it."""

    rows: Rows
    source: Rows
    operation: NDArray[np.int8]
    names: tuple[str, ...]


_NO_ROWS = np.empty(0, dtype=np.int64)
NO_COPIES = Copies(_NO_ROWS, _NO_ROWS, _NO_ROWS.astype(np.int8), ())


@dataclass(frozen=True)
class Corpus:
    """Everything a sweep reads, with all text in `sentences` (N distinct strings, in memory or a `SentenceFile`).

    `train` are the rows that students may train on, `pairs_P2` the similar pairs (duplicates, paraphrases) among
    them, `triplets_T3` anchors with an entailed and a contradicting sentence. `pair_tasks` are those that a method learns,
    `probed` those that encoders are scored on by a regression on their vectors. `found` and `missing` are lines for the
    user; `demonstration` marks what is no benchmark. `show`: whether pages may show its text, which is `text_from` there.
    """

    name: str
    sentences: Sequence[str]
    train: Rows
    pairs_P2: Rows
    sts: tuple[StsSet, ...]
    retrieval: tuple[RetrievalSet, ...]
    found: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    demonstration: bool = False
    show: bool = True
    text_from: str = ""
    triplets_T3: Rows = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    pair_tasks: tuple[PairTask, ...] = ()
    copies: Copies = field(default_factory=lambda: NO_COPIES)
    classification: tuple[ClassificationSet, ...] = ()
    probed: tuple[PairTask, ...] = ()
    judged_P2: Rows = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    """Queries and passages that answer them, to train on; every relevant passage of a query is there."""
    passages: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Rising rows of the passages among which hard negatives of these queries are found."""
    text_queries: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Rising rows of the training text that are queries by the name of their file."""
    text_passages: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Those that are passages by the name of their file."""
    text_sources: Mapping[str, Rows] = field(default_factory=dict)
    """Rows of the data folder's own training text by source, such as a language, where it has several."""
    roles_N: NDArray[np.int8] | None = None
    """The role of each row (`data.roles`); None if all rows are read alike."""
    held_out: tuple[HeldOut, ...] = ()
    selection: Selection = STS
    """The measure that students are selected by; not part of the fingerprint."""

    def of_tasks(self, tasks: Collection[str]) -> Corpus:
        """Keep the evaluation sets of the `tasks` alone, with all sentences and training data."""
        return replace(
            self,
            sts=self.sts if "sts" in tasks else (),
            retrieval=self.retrieval if "retrieval" in tasks else (),
            classification=self.classification if "classification" in tasks else (),
            probed=self.probed if "pairs" in tasks else (),
        )

    @property
    def scored_rows(self) -> Rows:
        """The distinct rows that any evaluation set uses, rising."""
        sets: tuple[EvaluationSet, ...] = (*self.sts, *self.retrieval, *self.probed, *self.classification)
        columns = [column for one in sets for column in one.columns]
        return np.unique(np.concatenate([_NO_ROWS, *(held.rows for held in self.held_out), *columns]))

    def without_training(self, rows: Rows) -> Corpus:
        """Train on none of these rows, and on no pair or triplet that has one."""

        def free(sets: Rows) -> Rows:
            return sets[~np.isin(sets, rows).any(axis=1)]

        return replace(
            self,
            train=np.setdiff1d(self.train, rows),
            pairs_P2=free(self.pairs_P2),
            triplets_T3=free(self.triplets_T3),
            judged_P2=free(self.judged_P2),
        )

    def quoted(self, row: int) -> str:
        """A sentence as messages quote it, which pages show too: cut, or its row alone if they may not."""
        return f"{self.sentences[row]!r:.120}" if self.show else f"row {row}"

    @functools.cached_property
    def sentences_fingerprint(self) -> str:
        """SHA-256 of the distinct sentences in order, and of their roles: what an encoding of them depends on."""
        digest = hashlib.sha256()
        for sentence in self.sentences:
            text = sentence.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
        if self.roles_N is not None:
            digest.update(b"roles" + self.roles_N.tobytes())
        return digest.hexdigest()

    @property
    def text(self) -> CorpusText:
        """The sentences, and what an encoding of them depends on."""
        return CorpusText(self.sentences, self.sentences_fingerprint, self.roles_N)

    @functools.cached_property
    def set_digests(self) -> dict[str, str]:
        """The SHA-256 of each set, whatever else the corpus has: by "STS12/test" of its pairs, subsets and gold scores, by
        "retrieval/cystic/test" of its queries, documents and judgements."""
        digests: dict[str, Any] = {}
        for sts in sorted(self.sts, key=lambda s: (s.group, s.split, s.subset)):
            digest = digests.setdefault(f"{sts.group}/{sts.split}", hashlib.sha256())
            for one, two, score in zip(sts.left_P.tolist(), sts.right_P.tolist(), sts.score_P.tolist(), strict=True):
                digest.update(json.dumps([sts.subset, self.sentences[one], self.sentences[two], score]).encode())
        for task in self.retrieval:
            digest = digests.setdefault(f"{SEARCHES}{task.name}/{task.split}", hashlib.sha256())
            for row in np.concatenate(task.columns).tolist():
                _add_to(digest, self.sentences[row])
            _add_to(digest, (task.relevant, task.grades))
        return {name: digest.hexdigest() for name, digest in digests.items()}

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the sentences and of every set: what a score depends on."""
        digest = hashlib.sha256(self.sentences_fingerprint.encode())
        for name in _SETS:
            digest.update(name.encode())
            _add_to(digest, getattr(self, name))
        return digest.hexdigest()


_SETS = (
    *("train", "pairs_P2", "triplets_T3", "judged_P2", "passages", "copies", "held_out"),
    *("sts", "retrieval", "classification", "pair_tasks", "probed"),
)


def _add_to(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(str(value.shape).encode() + value.tobytes())
    elif is_dataclass(value):
        for part in fields(value):
            _add_to(digest, getattr(value, part.name))
    elif isinstance(value, Mapping):
        _add_to(digest, sorted(value.items()))
    elif isinstance(value, tuple | list):
        digest.update(b"[")
        for part in value:
            _add_to(digest, part)
        digest.update(b"]")
    else:
        digest.update(json.dumps(value).encode())


@dataclass
class CorpusBuilder:
    """Collects sentences (each distinct one once, in order of arrival) and sets, then makes a `Corpus`."""

    name: str
    demonstration: bool = False
    show: bool = True
    text_from: str = ""
    sts: list[StsSet] = field(default_factory=list)
    retrieval: list[RetrievalSet] = field(default_factory=list)
    pair_tasks: list[PairTask] = field(default_factory=list)
    classification: list[ClassificationSet] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    text_queries: set[int] = field(default_factory=set)
    text_passages: set[int] = field(default_factory=set)
    text_sources: Mapping[str, Rows] = field(default_factory=dict)
    _row_of: dict[str, int] = field(default_factory=dict)
    _train: dict[int, None] = field(default_factory=dict)
    _pairs: list[tuple[int, int]] = field(default_factory=list)
    _triplets: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The distinct sentences so far."""
        return tuple(self._row_of)

    @property
    def scored(self) -> set[str]:
        """The sentences of the STS and classification sets so far."""
        text = self.sentences
        sets: tuple[EvaluationSet, ...] = (*self.sts, *self.classification)
        return {text[row] for one in sets for column in one.columns for row in column.tolist()}

    def rows(self, sentences: Sequence[str]) -> Rows:
        """Rows of `sentences`, adding those not seen before."""
        row_of = self._row_of
        return np.array([row_of.setdefault(s, len(row_of)) for s in sentences], dtype=np.int64)

    def train_on(self, sentences: Sequence[str]) -> None:
        """Allow students to train on `sentences`."""
        self._train.update(dict.fromkeys(self.rows(sentences).tolist()))

    def trained_rows(self, sentences: Iterable[str]) -> set[int]:
        """Rows of those `sentences` that students train on."""
        return {row for s in sentences if (row := self._row_of.get(s, -1)) in self._train}

    def add_pairs(self, left: Sequence[str], right: Sequence[str]) -> None:
        """Add similar pairs; by that their sides are no training sentences."""
        self._pairs += zip(self.rows(left).tolist(), self.rows(right).tolist(), strict=True)

    def train_triplets(self, anchor: Sequence[str], positive: Sequence[str], negative: Sequence[str]) -> None:
        """Add triplets (a sentence, one that it entails, one that contradicts it); all three become training sentences."""
        columns = [self.rows(side).tolist() for side in (anchor, positive, negative)]
        self._triplets += zip(*columns, strict=True)
        self.train_on([*anchor, *positive, *negative])

    def add_sts(
        self, group: str, subset: str, split: str, left: Sequence[str], right: Sequence[str], score: Sequence[float]
    ) -> None:
        """Add one STS file."""
        gold = np.array(score, dtype=np.float64)
        self.sts.append(StsSet(group, subset, split, self.rows(left), self.rows(right), gold))

    def add_retrieval(
        self,
        name: str,
        split: Split,
        queries: Sequence[str],
        documents: Sequence[str],
        answers: Sequence[Mapping[int, float]],
        own: Sequence[int] | None = None,
    ) -> None:
        """Add a retrieval set: `answers[i]` has the positions in `documents` that answer query i, and how well they do;
        `own` are those of the queries themselves, as in `RetrievalSet`."""
        positions = tuple(np.array(list(of_query), dtype=np.int64) for of_query in answers)
        graded = None
        if any(grade != 1 for of_query in answers for grade in of_query.values()):
            graded = tuple(np.array(list(of_query.values()), dtype=np.float64) for of_query in answers)
        own_Q = None if own is None else np.array(own, dtype=np.int64)
        rows = self.rows(queries), self.rows(documents)
        self.retrieval.append(RetrievalSet(name, split, *rows, positions, graded, own_Q))

    def build(self) -> Corpus:
        """The corpus of everything added so far."""
        return Corpus(
            name=self.name,
            sentences=tuple(self._row_of),
            train=np.array(sorted(self._train), dtype=np.int64),
            pairs_P2=np.array(self._pairs, dtype=np.int64).reshape(-1, 2),
            sts=tuple(self.sts),
            retrieval=tuple(self.retrieval),
            found=tuple(self.found),
            missing=() if self.demonstration else tuple(self.missing),
            demonstration=self.demonstration,
            show=self.show,
            text_from=self.text_from,
            triplets_T3=np.array(self._triplets, dtype=np.int64).reshape(-1, 3),
            text_queries=np.array(sorted(self.text_queries), dtype=np.int64),
            text_passages=np.array(sorted(self.text_passages), dtype=np.int64),
            text_sources=self.text_sources,
            pair_tasks=tuple(self.pair_tasks),
            classification=tuple(self.classification),
        )
