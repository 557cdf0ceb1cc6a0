"""Labelled examples (an anchor, its positive, hard negatives) and the supervised contrastive phase over them.

Axes: B batch, T examples, K hard negatives, M candidates of an anchor, D width.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.losses import info_nce
from distilbench.methods.parts.unlabelled import Unlabelled
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import ParamsPart, check_enough
from distilbench.training.phases import Phase, epoch_steps

MINED_FROM = 64
"""Nearest training sentences of an anchor, by the teacher, among which its hard negatives are taken."""


class LabelledParams(ParamsPart):
    """Which labelled examples a method learns from, and which hard negatives an anchor has."""

    hard_negatives: int = Field(default=1, ge=0, le=16)
    """K of each anchor: first the triplet's contradiction, then mined ones (IBKD for retrieval: 8). They are the nearest by
    the teacher's cosine: of judged queries among the passages, of others among the training sentences."""
    max_negative_share: float = Field(default=0.95, ge=0)
    """A mined negative whose cosine to the anchor is above this share of the positive's, by the teacher, is taken to be a
    positive that nobody has labelled, and dropped (0.95: NV-Retriever, Moreira et al. 2024, section 3.2). 0 keeps all."""
    labelled: Literal["triplets", "pairs", "retrieval"] = "triplets"
    """Anchor, entailment and contradiction; similar pairs, whose hard negatives are all mined; or judged queries and their
    relevant passages, with hard negatives among the other passages (IBKD's dense retrieval)."""


class FineTuningParams(LabelledParams):
    """A supervised phase after distillation; the defaults are those of the IBKD paper for STS."""

    ft_epochs: float = Field(default=3, ge=0)
    """Passes over the labelled examples; 0 leaves the phase out."""
    ft_lr: float = Field(default=3e-5, gt=0, le=1)
    ft_batch_size: int = Field(default=256, ge=2)
    ft_tau: float = Field(default=0.05, gt=0)
    """Temperature of the supervised InfoNCE."""


class LabelledExamples:
    """Corpus rows of every example: anchor, positive, K hard negatives."""

    def __init__(self, params: LabelledParams, prepared: Prepared) -> None:
        if params.labelled == "retrieval":
            self.anchor_T, self.positive_T = prepared.judged_P2.T
            self.negative_TK = judged_negatives(params, prepared)
            return
        triplets = params.labelled == "triplets"
        self.anchor_T, self.positive_T = (prepared.triplets_T3 if triplets else prepared.pairs_P2).T[:2]
        labelled_TK = prepared.triplets_T3[:, 2:] if triplets else np.empty((len(self.anchor_T), 0), dtype=np.int64)
        missing = max(0, params.hard_negatives - labelled_TK.shape[1])
        known_TE = np.column_stack([self.anchor_T, self.positive_T, labelled_TK])
        mined = mine(prepared, known_TE, missing, params.max_negative_share) if missing else labelled_TK[:, :0]
        self.negative_TK = np.hstack([labelled_TK, mined])[:, : params.hard_negatives]

    def __len__(self) -> int:
        return len(self.anchor_T)

    def rows(self, index_B: Any, at: Callable[[Any, Any], Any] = operator.getitem) -> Any:
        """Rows of a batch: B anchors, B positives, B x K negatives.

        `at` is `Method.at` where the numbers may be on the device; then so are the rows.
        """
        rows = [at(self.anchor_T, index_B), at(self.positive_T, index_B), at(self.negative_TK, index_B).ravel()]
        return torch.cat(rows) if isinstance(index_B, Tensor) else np.concatenate(rows)


def mine(prepared: Prepared, known_TE: NDArray[np.int64], count: int, max_share: float = 0.0) -> NDArray[np.int64]:
    """The `count` training sentences nearest to each anchor by the teacher's cosine, those that it comes with left out.

    `known_TE` are the rows of each example that are there already: the anchor, its positive, and its own negative if any.
    With a `max_share` above 0, candidates above that share of the positive's cosine are left out too. Where fewer than
    `count` of the nearest `MINED_FROM` remain, the least similar of those left out fill the places: every anchor has
    `count` negatives.
    """
    train = _unit_vectors(prepared, prepared.train)
    distinct, back = np.unique(known_TE[:, 0], return_inverse=True)
    nearest = faiss.knn(
        _unit_vectors(prepared, distinct), train, min(MINED_FROM, len(train)), faiss.METRIC_INNER_PRODUCT
    )
    cosine_TM, near_TM = nearest[0][back], prepared.train[nearest[1]][back]
    known_TM = (near_TM[:, :, None] == known_TE[:, None, :]).any(axis=2)
    return _chosen(near_TM, _above(prepared, known_TE, cosine_TM, max_share), known_TM, count)


def _above(
    prepared: Prepared, known_TE: NDArray[np.int64], cosine_TM: NDArray[np.float32], max_share: float
) -> NDArray[np.bool_]:
    """Which candidates have a cosine above this share of the positive's; none where the share is 0."""
    if not max_share:
        return np.zeros(cosine_TM.shape, dtype=bool)
    anchor_TD, positive_TD = (_unit_vectors(prepared, known_TE[:, side]) for side in (0, 1))
    return cosine_TM > max_share * np.vecdot(anchor_TD, positive_TD)[:, None]


def _chosen(
    rows_TM: NDArray[np.int64], above_TM: NDArray[np.bool_], last_TM: NDArray[np.bool_], count: int
) -> NDArray[np.int64]:
    """The `count` candidates to take of each example, of rows that are in the order of their similarity: the nearest first,
    then those that are too similar from their far end, then those that come last."""
    places = rows_TM.shape[1]
    order_TM = np.broadcast_to(np.arange(places), rows_TM.shape)
    order_TM = np.where(above_TM, 2 * places - order_TM, order_TM)
    order_TM = np.where(last_TM, 3 * places + order_TM, order_TM)
    return np.take_along_axis(rows_TM, np.argsort(order_TM, axis=1, kind="stable")[:, :count], axis=1)


def judged_negatives(params: LabelledParams, prepared: Prepared) -> NDArray[np.int64]:
    """The K hard negatives of every judged pair of a query and a passage, T x K: the first of the prepared candidates.

    Those above the margin of `max_negative_share` are left out; where nothing else is left, the least similar of them come.
    """
    count, found = params.hard_negatives, prepared.candidates
    if not count:
        return np.empty((len(prepared.judged_P2), 0), dtype=np.int64)
    if found is None:
        raise ValueError("hard negatives need their candidates in `prepared`")
    of_T = np.searchsorted(found.queries, prepared.judged_P2[:, 0])
    rows_TM, cosine_TM = found.rows_QM[of_T], found.cosine_QM[of_T]
    above_TM = _above(prepared, prepared.judged_P2, cosine_TM, params.max_negative_share)
    chosen_TK = _chosen(rows_TM, above_TM, rows_TM < 0, count)
    if chosen_TK.shape[1] < count or (chosen_TK < 0).any():
        raise InputError(
            f"hard_negatives is {count}, but a judged query has fewer passages that do not answer it; expected less, or more "
            "passages (--max-documents)"
        )
    return chosen_TK


def _unit_vectors(prepared: Prepared, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    vectors_TD = prepared.vectors.take(rows)
    faiss.normalize_L2(vectors_TD)
    return vectors_TD


def check_labelled(possible: Possible, corpus: Corpus, batch: str) -> None:
    """Enough labelled examples for one batch, of every kind that may be asked for."""
    negatives, kinds = max(possible("hard_negatives")), set(possible("labelled"))
    for kind, available, what in (
        ("triplets", len(corpus.triplets_T3), "triplets"),
        ("pairs", len(corpus.pairs_P2), "similar pairs"),
        ("retrieval", len(corpus.judged_P2), "judged queries with a relevant passage"),
    ):
        if kind in kinds:
            check_enough(batch, max(possible(batch)), available, what)
    if kinds != {"retrieval"}:
        check_enough("hard_negatives", negatives, max(0, len(corpus.train) - 2), "sentences to mine")
    if "retrieval" in kinds and negatives:
        _, answers = np.unique(corpus.judged_P2[:, 0], return_counts=True)
        most = int(answers.max(initial=0)) + 1  # and a passage with the query's own text
        check_enough("hard_negatives", negatives, max(0, len(corpus.passages) - most), "passages to mine")


def labelled_needs(possible: Possible) -> Requirements:
    """Triplets, and hard negatives of judged queries, where they may be asked for."""
    kinds, negatives = possible("labelled"), max(possible("hard_negatives"))
    return Requirements(triplets="triplets" in kinds, negatives="retrieval" in kinds and negatives > 0)


class FineTuned(Unlabelled):
    """Distillation, then a supervised phase on labelled examples where `ft_epochs` asks for it."""

    params: Any
    """With `FineTuningParams`."""

    def __init__(self, params: Any, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.labelled = LabelledExamples(params, prepared) if params.ft_epochs else None

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        needs = super().needs(possible)
        return needs | labelled_needs(possible) if max(possible("ft_epochs")) else needs

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        if max(possible("ft_epochs")):
            check_labelled(possible, corpus, "ft_batch_size")

    @classmethod
    def apart(cls, possible: Possible) -> str:
        """Only what leaves the teacher: labelled examples, which the teacher's side has not seen."""
        return "ft_epochs: it was fine-tuned on labels, away from the teacher" if max(possible("ft_epochs")) else ""

    def fine_tuning(
        self, begin: Callable[[], None] = lambda: None, start: Callable[[], None] = lambda: None
    ) -> list[Phase]:
        """The supervised phase, if there is one."""
        p, examples = self.params, self.labelled
        if examples is None:
            return []
        steps = epoch_steps(p.ft_epochs, len(examples), p.ft_batch_size)

        def loss(index_B: NDArray[np.int64]) -> Tensor:
            return self.supervised_loss(examples.rows(index_B), len(index_B))

        return [Phase("fine-tune", len(examples), steps, p.ft_batch_size, p.ft_lr, loss, begin, start)]

    def supervised_loss(self, rows: NDArray[np.int64], anchors: int) -> Tensor:
        """Supervised InfoNCE of a batch's rows (`LabelledExamples.rows`)."""
        return self.contrast(self.outputs(rows).float(), anchors)

    def contrast(self, vectors: Tensor, anchors: int) -> Tensor:
        """Supervised InfoNCE of their vectors, in which an anchor is told from the hard negatives of all (SimCSE)."""
        return info_nce(vectors[:anchors], vectors[anchors:], self.params.ft_tau)
