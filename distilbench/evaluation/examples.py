"""What a row loses, by example: queries that its teacher answers and it does not, and pairs whose rank it moves.

They are drawn when the row is scored, and kept beside its predictions as `RUN/predictions/ID.json`: a report needs no data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.stats import rankdata

from distilbench.data.corpus import Corpus, RetrievalSet
from distilbench.errors import InputError
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.records import ScoreRecord
from distilbench.storage.files import atomic_path

DRAWN = 20
"""Queries drawn of those that a set's row loses, and of those that it wins."""
MOVED = 10
"""Pairs of an STS set whose rank moves most."""
LONGEST = 300
"""Letters of a text that are shown."""


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Query(_Kept):
    """A query that one encoder answers and the other does not: a text that answers it, and what the other found first.

    `place` is the query's in its set, from 0, and `rank` the answer's with the encoder that finds it, from 1.
    """

    place: int
    query: str
    answer: str
    rank: int
    instead: str


class Searched(_Kept):
    """Of a retrieval set's `queries` those that have an answer in the first ten of the teacher alone (`lost`), or of the row
    alone (`won`); and examples of both, drawn evenly in the set's order."""

    queries: int
    lost: int
    won: int
    lost_examples: tuple[Query, ...] = ()
    won_examples: tuple[Query, ...] = ()


class Pair(_Kept):
    """A pair of an STS set, its gold score, and its rank by the cosine of the row and of the teacher: 1 is the closest."""

    one: str
    two: str
    gold: float
    rank: float
    teacher_rank: float


class Examples(_Kept):
    """What a row loses, by test set. `shown`: whether the data's terms let text be shown; `text` says where it is from."""

    shown: bool = True
    text: str = ""
    searches: dict[str, Searched] = {}
    sts: dict[str, tuple[Pair, ...]] = {}

    @staticmethod
    def load(run: Path, record_id: str) -> Examples | None:
        """Those of a record of `run`; None where none are kept."""
        try:
            return Examples.model_validate_json(examples_path(run, record_id).read_bytes())
        except (InputError, OSError, ValidationError):
            return None


def keep_predictions(
    run: Path, record: ScoreRecord, predictions: Predictions, corpus: Corpus, known: Iterable[ScoreRecord]
) -> None:
    """Write the predictions of a record of `run`, and examples of what it loses beside its teacher.

    The teacher is among the `known` records of the run; else, and of the teacher itself, there are no examples, nor where
    there is nothing to show.
    """
    predictions.save(predictions_path(run, record.record_id))
    teachers = (r.record_id for r in known if (r.role, r.quantisation) == ("teacher", "float32"))
    with contextlib.suppress(InputError, StopIteration):
        teacher = Predictions.load(predictions_path(run, next(teachers)))
        examples = draw_examples(corpus, predictions, teacher)
        if examples.searches or examples.sts:
            with atomic_path(examples_path(run, record.record_id)) as temporary:
                temporary.write_text(examples.model_dump_json(exclude_defaults=True), encoding="utf-8")


def draw_examples(corpus: Corpus, row: Predictions, teacher: Predictions) -> Examples:
    """What the row loses of the test sets of `corpus` that both have predictions of."""
    tests = {task.name: task for task in corpus.retrieval if task.split == "test"}
    both = row.first.keys() & teacher.first.keys() & tests.keys()
    searches = {name: _searched(corpus, tests[name], row, teacher) for name in sorted(both)}
    groups = sorted({s.group for s in corpus.sts if s.split == "test"}) if corpus.show else []
    judged = row.test.keys() & teacher.test.keys()
    sts = {group: _moved(corpus, group, row, teacher) for group in groups if f"sts/{group}/spearman" in judged}
    return Examples(shown=corpus.show, text=corpus.text_from if corpus.show else "", searches=searches, sts=sts)


def examples_path(run: Path, record_id: str) -> Path:
    """Where the examples of a record of `run` are kept."""
    return predictions_path(run, record_id).with_suffix(".json")


def _searched(corpus: Corpus, task: RetrievalSet, row: Predictions, teacher: Predictions) -> Searched:
    found_by_row, found_by_teacher = answered(row, task.name), answered(teacher, task.name)
    lost, won = np.flatnonzero(found_by_teacher & ~found_by_row), np.flatnonzero(found_by_row & ~found_by_teacher)
    counted = Searched(queries=len(task.queries), lost=len(lost), won=len(won))
    if not corpus.show:
        return counted

    def examples(places: NDArray[np.int64], finder: Predictions, other: Predictions) -> tuple[Query, ...]:
        drawn = places[np.linspace(0, len(places), min(DRAWN, len(places)), endpoint=False).astype(int)]
        first, others = finder.first[task.name], other.first[task.name]
        return tuple(_query(corpus, task, q, first[q], others[q]) for q in drawn.tolist())

    drawn = {"lost_examples": examples(lost, teacher, row), "won_examples": examples(won, row, teacher)}
    return counted.model_copy(update=drawn)


def answered(predictions: Predictions, name: str) -> NDArray[np.bool_]:
    """Whether each query of a retrieval test set has an answer in the first ten."""
    return predictions.test[f"retrieval/{name}/mrr@10"].value_P > 0


def _query(
    corpus: Corpus, task: RetrievalSet, q: int, found_R: NDArray[np.integer], other_R: NDArray[np.integer]
) -> Query:
    rank = int(np.flatnonzero(np.isin(found_R, task.relevant[q]))[0])

    def document(position: int) -> str:
        return _cut(corpus.sentences[int(task.documents[position])]) if position >= 0 else ""

    query = _cut(corpus.sentences[int(task.queries[q])])
    return Query(place=q, query=query, answer=document(found_R[rank]), rank=1 + rank, instead=document(other_R[0]))


def _moved(corpus: Corpus, group: str, row: Predictions, teacher: Predictions) -> tuple[Pair, ...]:
    sets = [s for s in corpus.sts if (s.group, s.split) == (group, "test")]
    left_P, right_P = (np.concatenate(side) for side in zip(*(s.columns for s in sets), strict=True))
    gold_P = np.concatenate([s.score_P for s in sets])
    rank_P, teacher_rank_P = (rankdata(-p.test[f"sts/{group}/spearman"].value_P) for p in (row, teacher))
    order = np.argsort(-np.abs(rank_P - teacher_rank_P), kind="stable")[:MOVED]
    return tuple(
        Pair(
            one=_cut(corpus.sentences[int(left_P[p])]),
            two=_cut(corpus.sentences[int(right_P[p])]),
            gold=float(gold_P[p]),
            rank=float(rank_P[p]),
            teacher_rank=float(teacher_rank_P[p]),
        )
        for p in order.tolist()
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
