"""The small sets that students are judged on at every rung, and that they are made once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distilbench.data.corpus import CorpusBuilder, HeldOut, RetrievalSet
from distilbench.data.selected import with_selection
from distilbench.evaluation.selection import fidelity_scores, figures, neighbours
from distilbench.prepare.selection_sets import held_out_set, judged_sets, search_set
from distilbench.selection import Selection

N = 300
VECTORS_ND = np.random.default_rng(0).normal(size=(N, 8)).astype(np.float32)
VECTORS_ND /= np.linalg.norm(VECTORS_ND, axis=1, keepdims=True)


def take(rows: np.ndarray) -> np.ndarray:
    return VECTORS_ND[rows]


def retrieval() -> RetrievalSet:
    relevant = tuple(np.array([q, 200 + q]) for q in range(20))
    return RetrievalSet("own", "dev", np.arange(20), np.arange(20, N), relevant)


def test_what_answers_a_query_is_kept_with_the_teachers_hardest_others() -> None:
    whole = retrieval()
    small = search_set(whole, take, queries=20, documents=100)
    assert len(small.documents) == 100 and len(small.queries) == 20
    for q in range(20):
        np.testing.assert_array_equal(small.documents[small.relevant[q]], whole.documents[whole.relevant[q]])
    similarity = take(whole.queries) @ take(whole.documents).T
    hardest = [int(whole.documents[d]) for d in similarity.argmax(axis=1)]
    assert set(hardest) <= set(small.documents.tolist())
    ranks = np.argsort(-similarity, axis=1).argsort(axis=1)
    kept = np.isin(whole.documents, small.documents)
    assert ranks[:, kept].min(axis=0).mean() < ranks[:, ~kept].min(axis=0).mean()


def test_of_many_queries_there_is_a_fixed_sample() -> None:
    whole = replace(retrieval(), grades=tuple(np.array([1.0 + q, 1.0]) for q in range(20)))
    small, again = (search_set(whole, take, queries=5, documents=1000) for _ in range(2))
    assert len(small.queries) == 5 and len(small.documents) == N - 20  # all where there are no more
    np.testing.assert_array_equal(small.queries, again.queries)
    assert small.grades is not None
    for i, q in enumerate(small.queries):
        np.testing.assert_array_equal(small.documents[small.relevant[i]], whole.documents[whole.relevant[q]])
        assert small.grades[i][0] == 1 + q


def corpus() -> tuple[CorpusBuilder, list[str]]:
    texts = [f"text {i}" for i in range(N)]
    builder = CorpusBuilder("mine")
    builder.rows(texts)
    builder.train_on(texts)
    builder.add_retrieval("own", "dev", texts[:20], texts[20:], [{q: 1} for q in range(20)])
    return builder, texts


def test_sets_of_each_kind_and_what_is_reported_instead() -> None:
    builder, _ = corpus()
    made, _ = with_selection(builder.build(), Selection.parse("retrieval=0.5,fidelity=0.5"))
    dev, test = judged_sets(made, take)
    assert dev is not None and test is not None
    assert [*dev.sets] == ["retrieval", "fidelity"] and dev.selection.asked
    assert test.score(take) == pytest.approx(100)
    assert not set(test.rows.tolist()) & set(dev.sets["fidelity"][0].rows.tolist())


def test_held_out_sentences_of_each_source_have_a_score() -> None:
    """Of 40 sentences "few" has too few for a score; the kept share of the others' neighbours is that of their rows."""
    rows = np.arange(40)
    of = {"en": np.arange(25), "fi": np.arange(25, 38), "few": rows[38:], "gone": rows[:0]}
    held = held_out_set(HeldOut("test", rows), take, of | {"fi": np.arange(10, 40)})
    assert {source: found.tolist() for source, found in held.sources.items()} == {
        "en": list(range(25)),
        "fi": list(range(10, 40)),
    }
    changed = np.random.default_rng(2).normal(size=(N, 16)).astype(np.float32)
    measured = figures(held, lambda rows: changed[rows], lambda rows: changed[rows], "fidelity")
    by_set = {s.set: s for s in fidelity_scores(measured, "test") if s.metric == "overlap@10"}
    near = neighbours(changed[rows], changed[rows], 10)
    kept = np.array([len(set(a) & set(b)) / 10 for a, b in zip(near.tolist(), held.near_NK.tolist(), strict=True)])
    assert by_set.keys() == {"own text", "own text, en", "own text, fi"}
    assert by_set["own text, fi"].value == pytest.approx(100 * kept[10:].mean()) and by_set["own text, fi"].n == 30
    assert by_set["own text"].value == pytest.approx(100 * kept.mean())


def test_the_sts_dev_sets_need_none() -> None:
    builder, _ = corpus()
    builder.add_sts("OWN", "", "dev", ["text 1", "text 2"], ["text 3", "text 4"], [1, 2])
    made, _ = with_selection(builder.build(), None)
    assert judged_sets(made, take) == (None, None)
