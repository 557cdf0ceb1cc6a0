"""Retrieval metrics against brute force and hand-worked ranks; index settings and costs."""

from __future__ import annotations

import numpy as np
import pytest

from distilbench.evaluation.ranking import ranking_metrics
from distilbench.evaluation.retrieval import ivf_setting
from distilbench.evaluation.retrieval_task import InMemory, RetrievalTask, evaluate_retrieval, retrieval_task_scores


def test_ranks_worked_by_hand() -> None:
    found = np.array([[7, 3, 1], [4, 5, 6], [9, 8, 0]])
    relevant = tuple(np.array(r) for r in ([3], [9], [0, 9]))
    values = ranking_metrics(found, relevant)
    assert values["mrr@10"].tolist() == [1 / 2, 0, 1]
    assert values["recall@10"].mean() == pytest.approx((1 + 0 + 1) / 3)
    assert values["recall@1"].mean() == pytest.approx((0 + 0 + 1 / 2) / 3)


def test_a_hit_after_rank_10_counts_for_nothing() -> None:
    assert ranking_metrics(np.arange(20)[None], (np.array([10]),))["mrr@10"].tolist() == [0]
    assert ranking_metrics(np.arange(20)[None], (np.array([9]),))["mrr@10"].tolist() == [1 / 10]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (10, (1, 1)),  # fewer than 39 documents: one list, which is exact
        (2_500, (64, 5)),
        (20_000, (512, 5)),
        (1_000_000, (4096, 20)),  # HPD's 5 probes per 1,024 lists
    ],
)
def test_ivf_scales_with_the_corpus(documents: int, expected: tuple[int, int]) -> None:
    assert ivf_setting(documents) == expected


def test_scores_equal_brute_force_and_costs_are_told() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((700, 16)).astype(np.float32) * rng.uniform(0.1, 9, (700, 1)).astype(np.float32)
    queries, documents = np.arange(40), np.arange(100, 700)
    relevant = tuple(np.unique([i, (i * 7) % 600]) for i in range(40))
    vectors[queries] = vectors[documents[:40]] + 0.9 * vectors[queries]
    task = RetrievalTask("r", "dev", relevant)
    result = evaluate_retrieval(InMemory(vectors[documents]), vectors[queries], task, kinds=("flat", "ivf"))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ranking = np.argsort(-(unit[queries] @ unit[documents].T), axis=1)
    gains = []
    for order, wanted in zip(ranking, relevant, strict=True):
        hits = [r for r, doc in enumerate(order[:10], start=1) if doc in wanted]
        gains.append(1 / hits[0] if hits else 0)
    assert result.per_query["mrr@10"] == pytest.approx(gains)  # of the exact search, not of IVF
    values = {s.metric: s.value for s in retrieval_task_scores(task, result.per_query)}
    assert values["mrr@10"] == pytest.approx(100 * np.mean(gains))
    in_100 = [np.mean([doc in order[:100] for doc in wanted]) for order, wanted in zip(ranking, relevant, strict=True)]
    assert values["recall@100"] == pytest.approx(100 * np.mean(in_100))
    flat, ivf = result.costs
    assert (flat.kind, flat.nlist, flat.overlap10_with_flat) == ("flat", None, 100)
    assert (ivf.nlist, ivf.nprobe) == ivf_setting(600)
    assert flat.bytes >= 600 * 16 * 4 and ivf.bytes > flat.bytes
    assert 0 < ivf.overlap10_with_flat <= 100 and flat.ms_per_1000_queries > 0
