"""What students are selected by, of an encoder's vectors: beside the figures that a row's record has."""

from __future__ import annotations

import json

import numpy as np
import pytest
from samples import in_memory

from distilbench.data.corpus import RetrievalSet, StsSet
from distilbench.evaluation.retrieval import evaluate_retrieval
from distilbench.evaluation.selection import HeldOutSet, SelectionSets, figures, neighbours, selection_scores, total
from distilbench.evaluation.sts import cosine, spearman
from distilbench.prepare.prepared import from_json, to_json
from distilbench.selection import Selection

RNG = np.random.default_rng(0)
VECTORS_ND = RNG.normal(size=(60, 12)).astype(np.float32) + 2  # crowded, as encoders' are
ROWS = np.arange(60)
STS = (
    StsSet("STSB", "", "dev", ROWS[:20], ROWS[20:40], np.arange(20.0)),
    StsSet("X", "", "dev", ROWS[:9], ROWS[9:18], np.arange(9.0)),
)
RELEVANT = tuple(np.array([q, q + 10]) for q in range(8))
GRADES = tuple(np.array([2.0, 1.0]) for _ in range(8))
SEARCHES = (
    RetrievalSet("own", "dev", ROWS[:8], ROWS[8:], RELEVANT, GRADES),
    RetrievalSet("other", "dev", ROWS[:8], ROWS[8:], RELEVANT),
)


def take(rows: np.ndarray) -> np.ndarray:
    return VECTORS_ND[rows]


def held_out(count: int = 40) -> HeldOutSet:
    left, right = np.arange(count), (np.arange(count) + 7) % count
    near = neighbours(take(ROWS[:count]), take(ROWS[:count]), 10)
    return HeldOutSet(ROWS[:count], near, left, right, cosine(take(left), take(right)))


EVERY = SelectionSets(
    Selection.parse("sts=1,mrr@10=1,fidelity=3"),
    {"sts": STS, "retrieval": SEARCHES, "fidelity": (held_out(),)},
)


def test_retrieval_is_what_the_exact_search_of_a_row_finds() -> None:
    sets = SelectionSets(Selection.parse("retrieval"), {"retrieval": SEARCHES})
    found = []
    for s in SEARCHES:
        result = evaluate_retrieval(in_memory(take(s.documents)), take(s.queries), s, indexes=())
        found.append(100 * result.per_query["ndcg@10"].mean())
    assert sets.score(take) == pytest.approx(np.mean(found)) and found[0] != pytest.approx(found[1])


def test_queries_are_as_they_come_and_documents_as_they_are_stored() -> None:
    sets = SelectionSets(Selection.parse("mrr@10"), {"retrieval": SEARCHES})
    signs = np.sign(VECTORS_ND - 2)
    [own, _] = sets.measure(lambda rows: signs[rows], take)
    s = SEARCHES[0]
    result = evaluate_retrieval(in_memory(signs[s.documents]), take(s.queries), s, indexes=())
    np.testing.assert_allclose(own.value_P, result.per_query["mrr@10"])


def test_the_teacher_is_faithful_to_itself_and_nothing_else_is() -> None:
    sets = SelectionSets(Selection.parse("fidelity"), {"fidelity": (held_out(),)})
    assert sets.score(take) == pytest.approx(100)
    assert sets.score(lambda rows: 3 * take(rows)) == pytest.approx(100)  # cosines alone count
    other = np.random.default_rng(1).normal(size=VECTORS_ND.shape).astype(np.float32)
    assert sets.score(lambda rows: other[rows]) < 40
    cut = [sets.score(lambda rows, d=d: take(rows)[:, :d]) for d in (4, 8, 11)]
    assert cut == sorted(cut)


def test_one_figure_is_of_neighbours_and_one_of_cosines() -> None:
    sets = held_out()
    moved = VECTORS_ND.copy()
    moved[:20] = -moved[:20]  # half of the sentences are turned over: their neighbours are each other's still
    overlap, correlation = figures(sets, lambda rows: moved[rows], lambda rows: moved[rows], "fidelity")
    expected = [len(set(neighbours(moved[:40], moved[:40], 10)[i]) & set(sets.near_NK[i])) / 10 for i in range(40)]
    np.testing.assert_allclose(overlap.value_P, expected)
    similarity = cosine(moved[sets.left_P], moved[sets.right_P])
    assert correlation.value == pytest.approx(spearman(similarity, sets.cosine_P))


def test_a_mix_is_the_weighted_mean_of_its_parts() -> None:
    weights = {"sts": 1, "mrr@10": 1, "fidelity": 3}
    alone = {}
    for name in weights:
        selection = Selection.parse(name)
        alone[name] = SelectionSets(selection, EVERY.sets).score(take)
    measured = EVERY.measure(take)
    assert total(measured) == EVERY.score(take) == pytest.approx(sum(w * alone[n] for n, w in weights.items()) / 5)
    by_part = EVERY.by_part(measured)
    assert {n: by_part[n] for n in alone} == pytest.approx(alone)
    assert by_part["fidelity_overlap@10"] == pytest.approx(100)


def test_a_record_has_the_parts_and_the_whole() -> None:
    scores = {(s.task, s.set, s.metric): s for s in selection_scores(EVERY, EVERY.measure(take))}
    whole = scores["selection", str(EVERY.selection), "mix"]
    assert whole.value == pytest.approx(EVERY.score(take)) and whole.low < whole.value < whole.high
    assert ("selection", "mrr@10", "mrr@10") in scores and ("fidelity", "own text", "overlap@10") in scores
    assert {s.split for s in scores.values()} == {"dev"}


def test_it_comes_back_from_arrays_and_json() -> None:
    arrays: dict[str, np.ndarray] = {}
    again = from_json(json.loads(json.dumps(to_json(EVERY, arrays.__setitem__, "all"))), arrays.__getitem__)
    assert again.selection == EVERY.selection and again.selection.asked
    assert again.score(take) == EVERY.score(take)
    np.testing.assert_array_equal(again.rows, EVERY.rows)
