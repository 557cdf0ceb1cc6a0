"""One encoder's rows, trained here or not: on every set, at each width, as it is and quantised. Every command scores here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, PairTask, Rows, Split, StsSet
from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.classification import classification_scores
from distilbench.evaluation.faiss_codes import Code, unit
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.pairs import probe
from distilbench.evaluation.predictions import Predictions, sts_items, value_items
from distilbench.evaluation.retrieval import Documents, RetrievalResult, evaluate_retrieval, retrieval_task_scores
from distilbench.evaluation.selection import Measured, SelectionSets, fidelity_scores, selection_scores
from distilbench.evaluation.sts import Embed, cosine, from_rows, scores_of_similarities
from distilbench.records import IndexCost, Quantisation, Score

SPLITS: tuple[Split, ...] = ("test", "dev")
LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Vectors:
    """An encoder's vectors: `take` gives those of corpus rows.

    Where the documents that queries search are another encoder's, `take_documents` gives their vectors: then there is nothing
    to score but retrieval.
    """

    encoder: str
    width: int
    take: Embed
    take_documents: Embed | None = None
    coded_only: bool = False
    """Whether float32 has no row: another encoder's has the scores."""


@dataclass
class TaskScores:
    """Scores of a kind, what a reader has to know, by "TASK/SET/METRIC" the value of each test item, and the first
    documents of each query (`Predictions.first`)."""

    scores: list[Score] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: dict[str, NDArray[Any]] = field(default_factory=dict)
    first: dict[str, NDArray[Any]] = field(default_factory=dict)


Codes = Callable[[int], Sequence[Code]]
"""Called with a width: the codes of vectors of that width, each of another kind."""


@dataclass(frozen=True)
class EncoderRow:
    """What a row has beside its identity."""

    width: int
    quantisation: Quantisation
    bytes_per_vector: int
    disk_bytes: int
    fit_s: float | None
    scores: list[Score]
    indexes: list[IndexCost]
    predictions: Predictions
    notes: list[str]


def encoder_rows(
    vectors: Vectors,
    corpus: Corpus,
    widths: Sequence[int],
    codes_of: Codes,
    indexes: Sequence[IndexSpec],
    judged: Mapping[Split, SelectionSets] | None = None,
) -> Iterator[EncoderRow]:
    """Score each width (the first dimensions) in float32, then in each of its codes: a row each, one after the other.

    `judged` are what students are selected by ("dev"), where that is not the STS dev sets, and held-out sentences that are
    reported ("test"). Sentence classification and pair tasks are scored of the whole float32 vectors alone. A zero vector, or
    one that is not finite, is an InputError that quotes its sentence, or names the document.
    """
    judged = judged or {}
    columns = [side for s in corpus.sts for side in s.columns]
    columns += [t.queries for t in corpus.retrieval]
    columns += [s.asked_rows if vectors.take_documents else s.rows for s in judged.values()]
    rows = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *columns]))
    read_ND = vectors.take(rows)
    for width in widths:
        vectors_ND = np.ascontiguousarray(read_ND[:, :width])
        check_vectors(vectors_ND, vectors.encoder, corpus, rows)
        codes = codes_of(width)
        kinds = () if vectors.coded_only else indexes
        searches = _searches(vectors, corpus, from_rows(rows, vectors_ND), width, codes, kinds)
        for code in codes if vectors.coded_only else (None, *codes):
            yield _row(_Scored(vectors, corpus, judged, rows, vectors_ND, code), searches)


def stored_vectors(vectors: Embed, width: int, code: Code | None) -> Embed:
    """The first `width` numbers of vectors, decoded again where there is a code."""

    def embed(rows: Rows) -> NDArray[np.float32]:
        vectors_Nd = np.ascontiguousarray(vectors(rows)[:, :width])
        return vectors_Nd if code is None else code.compared(vectors_Nd)[0]

    return embed


@dataclass(frozen=True)
class _Scored:
    """What one row is scored on: the float32 vectors of `rows`, and the code that they are stored in (None: none)."""

    vectors: Vectors
    corpus: Corpus
    judged: Mapping[Split, SelectionSets]
    rows: Rows
    vectors_ND: NDArray[np.float32]
    code: Code | None

    def checked(self, rows: Rows) -> NDArray[np.float32]:
        """The whole vectors of `rows`, none of them zero."""
        vectors_ND = self.vectors.take(rows)
        check_vectors(vectors_ND, self.vectors.encoder, self.corpus, rows)
        return vectors_ND


def check_vectors(vectors_ND: NDArray[np.float32], encoder: str, corpus: Corpus, rows: Rows) -> None:
    """Check that the vectors of the `rows` of `corpus` have a direction."""
    norm_N = np.linalg.norm(vectors_ND, axis=1)
    bad = np.flatnonzero(~((norm_N > LEAST_NORM) & (norm_N < np.inf)))
    if len(bad):
        text = corpus.quoted(int(rows[bad[0]]))
        raise InputError(f"encoder {encoder!r}: the vector of {text} is zero or not finite, and has no cosine")


def _row(scored: _Scored, searches: Sequence[RetrievalResult]) -> EncoderRow:
    corpus, code, width = scored.corpus, scored.code, scored.vectors_ND.shape[1]
    stored_ND, query_ND = (scored.vectors_ND,) * 2 if code is None else code.compared(scored.vectors_ND)
    queries, documents = from_rows(scored.rows, query_ND), scored.vectors.take_documents
    across = documents is not None
    stored = stored_vectors(documents, width, code) if documents else from_rows(scored.rows, stored_ND)
    on_disk = code.disk_bytes if code else 0
    sts, judged = ((), {}) if on_disk else (corpus.sts, scored.judged)  # what is ranked again is searched
    similarities = [cosine(stored(s.left_P), stored(s.right_P)) for s in sts]
    searched = _retrieval_part(scored, searches)
    parts = [_sts_part(sts, similarities), searched]
    measured = {split: sets.measure(stored, queries, across=across) for split, sets in judged.items()}
    if "dev" in measured:
        parts.append(TaskScores(selection_scores(scored.judged["dev"], measured["dev"])))
    if "test" in measured:
        parts.append(TaskScores(fidelity_scores(measured["test"], "test")))
    if code is None and width == scored.vectors.width and not across:
        classified, correct = classification_scores(scored.checked, corpus.classification, corpus.sentences)
        parts += [TaskScores(classified, items=correct), *(_pair_part(scored, task) for task in corpus.probed)]
    said = {split: sts_items(sts, similarities, split) | _items_of(measured.get(split, ())) for split in SPLITS}
    said["test"] |= {name: value_items(values) for part in parts for name, values in part.items.items()}
    return EncoderRow(
        width=width,
        quantisation="float32" if code is None else code.kind,
        bytes_per_vector=4 * width if code is None else code.bytes_per_vector,
        disk_bytes=on_disk,
        fit_s=code.fit_s if code else None,
        scores=[score for part in parts for score in part.scores],
        # Of the row's own index, or of the indexes of float32 vectors.
        indexes=[c for r in searches for c in r.costs if (c.kind == code.kind if code else c.kind not in r.by_code)],
        predictions=Predictions(**said, first=searched.first),
        notes=[note for part in parts for note in part.notes],
    )


def _sts_part(sets: Sequence[StsSet], similarities: Sequence[NDArray[np.float64]]) -> TaskScores:
    notes = [
        f"{s.name} ({s.split}): every pair has the same cosine; its correlations, which are undefined, stand as 0"
        for s, similarity_P in zip(sets, similarities, strict=True)
        if np.ptp(similarity_P) == 0
    ]
    return TaskScores(scores_of_similarities(sets, similarities), notes)


def _retrieval_part(scored: _Scored, searches: Sequence[RetrievalResult]) -> TaskScores:
    part = TaskScores()
    for task, result in zip(scored.corpus.retrieval, searches, strict=True):
        per_query = result.by_code[scored.code.kind] if scored.code else result.per_query
        first_QR = result.first[scored.code.kind if scored.code else "float32"]
        part.notes += result.notes
        part.scores += retrieval_task_scores(task, per_query)
        if task.split == "test":
            part.items |= {f"retrieval/{task.name}/{metric}": value_Q for metric, value_Q in per_query.items()}
            part.first[task.name] = first_QR
    return part


def _items_of(measured: Sequence[Measured]) -> dict[str, Items]:
    """What a selection measured, item by item."""
    return {m.name: Items(m.value_P, m.gold_P) if m.gold_P is not None else value_items(m.value_P) for m in measured}


def _pair_part(scored: _Scored, task: PairTask) -> TaskScores:
    probed = probe(scored.checked, task)
    part = TaskScores(probed.scores, [probed.note] if probed.note else [])
    if probed.split == "test" and task.kind != "regression":
        part.items[f"pair-probe/{task.name}/accuracy"] = probed.predicted_P == probed.target_P
    return part


def _searches(
    vectors: Vectors, corpus: Corpus, embed: Embed, width: int, codes: Sequence[Code], indexes: Sequence[IndexSpec]
) -> list[RetrievalResult]:
    """The results of every retrieval set by each index and code; its documents are read once for all of them.

    Lists and graphs take most of the time: they are of the test set with the most documents alone.
    """
    take, own = vectors.take_documents or vectors.take, vectors.take_documents
    tests = [task for task in corpus.retrieval if task.split == "test"]
    largest = min(tests, key=lambda task: (-len(task.documents), task.name), default=None)
    results = []
    for task in corpus.retrieval:
        kinds, own_QD = [spec for spec in indexes if spec.kind == "flat" or task is largest], None
        if own is not None and task is largest and width == vectors.width:
            kinds, own_QD = [*kinds, IndexSpec("hnsw")], unit(own(task.queries))
        documents = Documents(take, task.documents, width, f"{task.name} ({task.split})", own_QD)
        results.append(evaluate_retrieval(documents, embed(task.queries), task, kinds, codes))
    return results
