"""The measure that students are selected by, of an encoder's vectors: what it reads as rows of the corpus, and one number.

Every set here is small, since each student is judged at each rung: `prepare.selection_sets` makes them. What is stored is
a code where the student has one; queries are as they come from the encoder, as in an index.

Axes in names: P pairs, Q queries, N documents or held-out sentences, K neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import RetrievalSet, Rows, StsSet
from distilbench.evaluation.bootstrap import Resampled, mean_of, resampled_correlation, resampled_mean, score_of
from distilbench.evaluation.faiss_codes import unit
from distilbench.evaluation.ranking import ranking_metrics, without_own
from distilbench.evaluation.retrieval import DEPTH
from distilbench.evaluation.sts import Embed, cosine, spearman
from distilbench.records import Score
from distilbench.selection import STS, Kind, Part, Selection

OWN_TEXT = "own text"
"""The name of the set of held-out sentences."""


class Measured(NamedTuple):
    """A figure x 100 with its share of the whole, and what a bootstrap resamples: the values of items whose mean it is, or
    cosines of pairs and the gold scores that they are ranked against."""

    name: str
    value: float
    value_P: NDArray[np.float64]
    gold_P: NDArray[np.float64] | None = None
    weight: float = 1.0
    sources: Mapping[str, Rows] | None = None
    """Positions of the items of each source, where some are told apart."""


def mean_of_items(name: str, value_P: NDArray[Any]) -> Measured:
    """The mean of the items' values, 0 to 1."""
    return Measured(name, 100 * float(value_P.mean()), value_P.astype(np.float64))


def rank_correlation(name: str, similarity_P: NDArray[np.float64], gold_P: NDArray[np.float64]) -> Measured:
    """Spearman's correlation of pairs."""
    return Measured(name, spearman(similarity_P, gold_P), similarity_P, gold_P)


def total(measured: Sequence[Measured]) -> float:
    """The weighted mean."""
    return float(sum(m.weight * m.value for m in measured) / sum(m.weight for m in measured))


@dataclass(frozen=True)
class HeldOutSet:
    """Held-out sentences `rows` with the teacher's first neighbours `near_NK` among them, as positions, and pairs of them,
    near and far, with the teacher's cosines. `sources` are positions of those of each source, such as a language."""

    name: ClassVar[str] = OWN_TEXT
    rows: Rows
    near_NK: NDArray[np.int64]
    left_P: Rows
    right_P: Rows
    cosine_P: NDArray[np.float64]
    sources: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[Rows, ...]:
        """The rows that it is measured on."""
        return (self.rows,)

    @property
    def queries(self) -> Rows:
        """The rows that are asked for: each asks for its neighbours."""
        return self.rows


JudgedSet = StsSet | RetrievalSet | HeldOutSet
"""A set that students are selected by: a part of a dev set, or held-out sentences."""


def figures(judged: JudgedSet, stored: Embed, as_query: Embed, metric: str, *, across: bool = False) -> list[Measured]:
    """What a set says of an encoder: two figures of held-out sentences, else one.

    `across`: what is stored is another encoder's, and only `as_query` is this one's, which embeds both sides of a pair.
    """
    match judged:
        case StsSet():
            embed = as_query if across else stored
            similarity_P = cosine(embed(judged.left_P), embed(judged.right_P))
            return [rank_correlation(f"sts/{judged.name} {judged.split}", similarity_P, judged.score_P)]
        case RetrievalSet():
            depth = DEPTH + (judged.own_Q is not None)
            order_QR = nearest(as_query(judged.queries), stored(judged.documents), depth)
            order_QR = without_own(order_QR, judged.own_Q, DEPTH)
            value_Q = dict(ranking_metrics(order_QR, judged.relevant, judged.grades))[metric]
            return [mean_of_items(f"retrieval/{judged.name}/{metric}", value_Q)]
        case HeldOutSet():
            return _fidelity(judged, stored, as_query, across)


def _fidelity(held: HeldOutSet, stored: Embed, as_query: Embed, across: bool) -> list[Measured]:
    """The mean share of the teacher's neighbours that are the student's too, and Spearman's correlation of the cosines of the
    pairs with the teacher's; a half each."""
    vectors_ND, asked_ND = stored(held.rows), as_query(held.rows)
    near_NK = neighbours(asked_ND, vectors_ND, held.near_NK.shape[1])
    kept_N = (near_NK[:, :, None] == held.near_NK[:, None, :]).any(axis=2).mean(axis=1)
    similarity_P = cosine((asked_ND if across else vectors_ND)[held.left_P], vectors_ND[held.right_P])
    return [
        mean_of_items(f"fidelity/{OWN_TEXT}/overlap@10", kept_N)._replace(sources=held.sources),
        rank_correlation(f"fidelity/{OWN_TEXT}/spearman", similarity_P, held.cosine_P),
    ]


def nearest(queries_QD: NDArray[np.float32], documents_ND: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
    """The positions of the `depth` documents of the highest cosine, best first; of equal ones the earlier first."""
    return _highest(_similarities(queries_QD, documents_ND), min(depth, len(documents_ND)))


def neighbours(asked_ND: NDArray[np.float32], stored_ND: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The positions of the `count` others of the highest cosine to each sentence."""
    similarity_NN = _similarities(asked_ND, stored_ND)
    np.fill_diagonal(similarity_NN, -np.inf)
    return _highest(similarity_NN, count)


def _similarities(queries_QD: NDArray[np.float32], documents_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosines, but for the documents' mean, which is taken from them: that moves every inner product of a query alike, and
    leaves float32 the digits that tell crowded vectors apart."""
    unit_ND = unit(documents_ND)
    return unit(queries_QD) @ (unit_ND - unit_ND.mean(axis=0)).T


def _highest(similarity_QN: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    if count < similarity_QN.shape[1]:
        chosen_QR = np.sort(np.argpartition(-similarity_QN, count - 1, axis=1)[:, :count], axis=1)
    else:
        chosen_QR = np.broadcast_to(np.arange(count), (len(similarity_QN), count))
    order_QR = np.argsort(-np.take_along_axis(similarity_QN, chosen_QR, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen_QR, order_QR, axis=1)


@dataclass(frozen=True)
class SelectionSets:
    """What a selection is measured on: the sets of each of its kinds."""

    selection: Selection
    sets: Mapping[Kind, tuple[JudgedSet, ...]]

    @property
    def every(self) -> list[JudgedSet]:
        """All sets."""
        return [judged for of_kind in self.sets.values() for judged in of_kind]

    @property
    def rows(self) -> Rows:
        """The distinct rows of all sets, rising."""
        return np.unique(np.concatenate([column for judged in self.every for column in judged.columns]))

    @property
    def asked_rows(self) -> Rows:
        """The distinct rows of queries, rising; of sets without queries none."""
        queries = [judged.queries for judged in self.every if not isinstance(judged, StsSet)]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *queries]))

    def measure(self, stored: Embed, as_query: Embed | None = None, *, across: bool = False) -> list[Measured]:
        """Every figure of the encoder whose vectors are stored as `stored` gives them; `as_query` are those of queries before
        they are stored (None: the same); `across` as in `figures`. The figures of a kind share its weight alike."""
        asked, measured = as_query or stored, list[Measured]()
        for part in self.selection.parts:
            sets = self.sets[part.kind]
            of_part = [m for judged in sets for m in figures(judged, stored, asked, part.metric, across=across)]
            measured += [m._replace(weight=part.weight * (1 / len(of_part))) for m in of_part]
        return measured

    def parts(self, measured: Sequence[Measured]) -> Iterator[tuple[Part, Sequence[Measured]]]:
        """Each part of the selection with its figures."""
        left = iter(measured)
        for part in self.selection.parts:
            count = sum(2 if isinstance(judged, HeldOutSet) else 1 for judged in self.sets[part.kind])
            yield part, list(itertools.islice(left, count))

    def by_part(self, measured: Sequence[Measured]) -> dict[str, float]:
        """The figure of each part of the selection, by its name; of `fidelity` alone also its two."""
        values = {}
        for part, of_part in self.parts(measured):
            values[part.name] = total(of_part)
            if part.kind == "fidelity":
                values |= {f"fidelity_{m.name.rpartition('/')[2]}": m.value for m in of_part}
        return values

    def score(self, stored: Embed, as_query: Embed | None = None) -> float:
        """The number that students are selected by, x 100: higher is better."""
        return total(self.measure(stored, as_query))


def of_sts(sets: Sequence[StsSet]) -> SelectionSets:
    """Selection by STS dev sets."""
    return SelectionSets(STS, {"sts": tuple(sets)})


def selection_scores(sets: SelectionSets, measured: Sequence[Measured]) -> list[Score]:
    """The scores of a row's record: each part of the selection, and of a mix the whole too; of held-out sentences theirs."""
    selection, scores = sets.selection, list[Score]()
    for part, of_part in sets.parts(measured):
        scores.append(_score("selection", part.name, "dev", part.metric, of_part))
        if part.kind == "fidelity":
            scores += fidelity_scores(of_part, "dev")
    if len(selection.parts) > 1:
        scores.append(_score("selection", str(selection.measure), "dev", "mix", measured))
    return scores


def fidelity_scores(measured: Sequence[Measured], split: str) -> list[Score]:
    """The scores of held-out sentences: the whole, its two figures, and those that are means of items for each source."""
    scores = [_score("fidelity", OWN_TEXT, split, "fidelity", measured)]
    for m in measured:
        metric = m.name.rpartition("/")[2]
        scores.append(_score("fidelity", OWN_TEXT, split, metric, [m]))
        for source, found in (m.sources or {}).items():
            of_source = mean_of_items(metric, m.value_P[found])
            scores.append(_score("fidelity", f"{OWN_TEXT}, {source}", split, metric, [of_source]))
    return scores


def _score(task: str, name: str, split: str, metric: str, measured: Sequence[Measured]) -> Score:
    items = sum(len(m.value_P) for m in measured)
    whole = mean_of([resampled(m) for m in measured], [m.weight for m in measured])._replace(value=total(measured))
    return score_of(whole, items, task=task, set=name, split=split, metric=metric)


def resampled(measured: Measured) -> Resampled:
    """A figure with its resamples."""
    if measured.gold_P is None:
        return resampled_mean(measured.value_P)
    return resampled_correlation(measured.value_P, measured.gold_P, ranks=True)
