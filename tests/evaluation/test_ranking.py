"""Ranking metrics against trec_eval itself, against hand-worked values, and on bad judgements."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from distilbench.evaluation.ranking import ranking_metrics, without_own

QUERIES = 300
Run = tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...], tuple[NDArray[np.float64], ...]]


def random_run(queries: int, ranks: int, documents: int, most: int, seed: int = 0) -> Run:
    """Each query finds `ranks` distinct documents, the last ones of some queries missing (-1); 1 to `most` are relevant."""
    rng = np.random.default_rng(seed)
    found = np.argsort(rng.random((queries, documents)), axis=1)[:, :ranks]
    for q in range(0, queries, 3):
        found[q, rng.integers(0, ranks + 1) :] = -1
    relevant = tuple(rng.choice(documents, rng.integers(1, most + 1), replace=False) for _ in range(queries))
    return found, relevant, tuple(rng.integers(1, 4, len(r)).astype(float) for r in relevant)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize(
    ("ranks", "documents", "most"),
    [
        (100, 120, 3),  # a corpus like Quora's: one to three answers
        (100, 400, 150),  # more relevant documents than ranks
        (30, 30, 12),  # fewer documents than the deepest cut
    ],
)
def test_equal_to_trec_eval(graded: bool, ranks: int, documents: int, most: int) -> None:
    trec = pytest.importorskip("pytrec_eval")
    found, relevant, grades = random_run(QUERIES, ranks, documents, most)
    judgements = {
        f"q{q}": {f"d{d}": int(g) if graded else 1 for d, g in zip(relevant[q], grades[q], strict=True)}
        for q in range(QUERIES)
    }
    # Scores fall with the rank, so that nothing ties. trec_eval's reciprocal rank has no cut: it is given 10 ranks.
    run = {
        f"q{q}": {f"d{d}": float(ranks - r) for r, d in enumerate(row) if d >= 0} or {"none": 0.0}
        for q, row in enumerate(found)
    }
    first_10 = {q: {d: s for d, s in row.items() if s > ranks - 10} or {"none": 0.0} for q, row in run.items()}
    theirs = {
        "mrr@10": (first_10, "recip_rank", "recip_rank"),
        "ndcg@10": (run, "ndcg_cut.10", "ndcg_cut_10"),
        "map@100": (run, "map_cut.100", "map_cut_100"),
        "recall@1": (run, "recall.1", "recall_1"),
        "recall@10": (run, "recall.10", "recall_10"),
        "recall@100": (run, "recall.100", "recall_100"),
    }
    ours = ranking_metrics(found, relevant, grades if graded else None)
    assert set(ours) == set(theirs)
    for metric, (rows, asked, key) in theirs.items():
        result = trec.RelevanceEvaluator(judgements, {asked}).evaluate(rows)
        expected = [result[f"q{q}"][key] for q in range(QUERIES)]
        assert np.ptp(expected) > 0, f"{metric}: a comparison that tells nothing"
        np.testing.assert_allclose(ours[metric], expected, atol=1e-12, err_msg=metric)  # type: ignore[index]


def test_worked_by_hand() -> None:
    found = np.array([[5, 2, 9], [-1, 3, -1], [4, -1, -1]])
    relevant = (np.array([9, 5]), np.array([3]), np.array([0, 1, 2]))
    grades = (np.array([3.0, 1.0]), np.array([2.0]), np.array([1.0, 1.0, 1.0]))
    values = ranking_metrics(found, relevant, grades)
    assert values["mrr@10"].tolist() == [1, 1 / 2, 0]  # an empty place keeps its rank
    assert values["map@100"].tolist() == pytest.approx([(1 + 2 / 3) / 2, 1 / 2, 0])
    ideal = 3 + 1 / np.log2(3)
    assert values["ndcg@10"].tolist() == pytest.approx([(1 + 3 / 2) / ideal, 1 / np.log2(3), 0])
    assert values["recall@1"].tolist() == [1 / 2, 0, 0]
    assert values["recall@100"].tolist() == [1, 1, 0]


def test_a_query_that_is_a_document_is_not_among_what_it_finds() -> None:
    found_QR = np.array([[4, 0, 1, 2], [3, 4, 5, 6], [1, 2, -1, -1]])
    left_QR = without_own(found_QR, np.array([0, -1, 9]), 3)
    assert left_QR.tolist() == [[4, 1, 2], [3, 4, 5], [1, 2, -1]]
    assert without_own(found_QR[:1], np.array([2]), 4).tolist() == [[4, 0, 1, -1]]
    assert without_own(found_QR, None, 2).tolist() == found_QR[:, :2].tolist()


def test_nothing_found_at_all_is_0() -> None:
    values = ranking_metrics(np.full((1, 5), -1), (np.array([0]),))
    assert len(values) == 6 and all(value.tolist() == [0] for value in values.values())
