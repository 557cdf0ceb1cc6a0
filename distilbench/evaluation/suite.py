"""The evaluation suite: every set of a corpus, for any source of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, RetrievalSet
from distilbench.evaluation.predictions import Predictions, sts_predictions
from distilbench.evaluation.retrieval import retrieval_scores
from distilbench.evaluation.sts import Embed, scores_of_similarities, sts_similarities
from distilbench.records import IndexCost, Score

Retrieval = Callable[[RetrievalSet], tuple[list[Score], list[IndexCost], NDArray[np.float64]]]
"""Of one retrieval set: its scores, the costs of its indexes, and the reciprocal rank of each query."""


class Evaluation(NamedTuple):
    """What an encoder's vectors are worth: scores of every set, costs of every index, and what the test scores are of."""

    scores: list[Score]
    indexes: list[IndexCost]
    predictions: Predictions


def evaluate(embed: Embed, corpus: Corpus) -> Evaluation:
    """All STS sets (dev and test apart) and all retrieval sets of `corpus`."""
    return evaluated(embed, corpus, lambda task: retrieval_scores(embed, task))


def evaluated(embed: Embed, corpus: Corpus, retrieval: Retrieval) -> Evaluation:
    """The STS sets by the cosines of `embed`, the retrieval sets by `retrieval`."""
    similarities = sts_similarities(embed, [(s.left_P, s.right_P) for s in corpus.sts])
    scores, indexes = scores_of_similarities(corpus.sts, similarities), []
    reciprocal = {}
    for task in corpus.retrieval:
        quality, costs, reciprocal_Q = retrieval(task)
        scores += quality
        indexes += costs
        if task.split == "test":
            reciprocal[task.name] = reciprocal_Q
    return Evaluation(scores, indexes, sts_predictions(corpus.sts, similarities, reciprocal))
