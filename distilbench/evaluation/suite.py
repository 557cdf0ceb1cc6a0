"""The evaluation suite: every set of a corpus, for any source of vectors."""

from __future__ import annotations

from distilbench.data.corpus import Corpus
from distilbench.evaluation.retrieval import retrieval_scores
from distilbench.evaluation.sts import Embed, sts_scores
from distilbench.records import IndexCost, Score


def evaluate(embed: Embed, corpus: Corpus) -> tuple[list[Score], list[IndexCost]]:
    """All STS sets (dev and test apart) and all retrieval sets of `corpus`."""
    scores, costs = sts_scores(embed, corpus.sts), []
    for task in corpus.retrieval:
        quality, cost = retrieval_scores(embed, task)
        scores += quality
        costs += cost
    return scores, costs
