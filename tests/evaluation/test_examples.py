"""What a row loses, by example: drawn when it is scored, and kept beside its predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples import make_data, scored_rows
from scipy.stats import rankdata

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.folder import Limits, folder_corpus
from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.examples import DRAWN, LONGEST, Examples, draw_examples, examples_path, keep_predictions
from distilbench.evaluation.predictions import Predictions, predictions_path

QUERIES, DOCUMENTS, PAIRS = 200, 300, 60


def searched_corpus() -> Corpus:
    """Queries that have two answers each, the second of them long, and two STS sets."""
    rng = np.random.default_rng(0)
    builder = CorpusBuilder("test", text_from="Made up.")
    queries, documents = [f"query {q}" for q in range(QUERIES)], [f"text {d}" + " long" * d for d in range(DOCUMENTS)]
    builder.add_retrieval("own", "test", queries, documents, [{q: 1, DOCUMENTS - 1 - q: 1} for q in range(QUERIES)])
    builder.add_retrieval("own", "dev", queries[:5], documents, [{q: 1} for q in range(5)])
    for subset in ("a", "b"):
        left, right = ([f"{side} {subset} {p}" for p in range(PAIRS)] for side in ("one", "two"))
        builder.add_sts("STS12", subset, "test", left, right, rng.uniform(0, 5, PAIRS))
    return builder.build()


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return searched_corpus()


@pytest.fixture(scope="module")
def vectors(corpus: Corpus) -> np.ndarray:
    """Queries lie near their answers, so that many are found."""
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((len(corpus.sentences), 16)).astype(np.float32)
    task = corpus.retrieval[0]
    for q, relevant in zip(task.queries, task.relevant, strict=True):
        drawn[q] = drawn[task.documents[relevant]].sum(axis=0) + 0.8 * rng.standard_normal(16)
    return drawn


@pytest.fixture(scope="module")
def both(corpus: Corpus, vectors: np.ndarray) -> tuple[Predictions, Predictions]:
    """The predictions of a row, and of its teacher."""
    noise = np.random.default_rng(2).standard_normal(vectors.shape).astype(np.float32)
    row, teacher = (scored_rows(v, corpus)[0].predictions for v in (vectors + 0.6 * noise, vectors))
    return row, teacher


def test_first_documents_are_those_of_the_search(corpus: Corpus, vectors: np.ndarray, both: Any) -> None:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    task = corpus.retrieval[0]
    expected = np.argsort(-(unit[task.queries] @ unit[task.documents].T), axis=1)[:, :10]
    assert both[1].first.keys() == {"own"} and np.array_equal(both[1].first["own"], expected)


def test_lost_and_won_queries_are_drawn_evenly_with_what_came_instead(corpus: Corpus, both: Any) -> None:
    row, teacher = both
    task, found = corpus.retrieval[0], draw_examples(corpus, row, teacher).searches["own"]
    hit = [np.array([np.isin(p.first["own"][q], task.relevant[q]).any() for q in range(QUERIES)]) for p in both]
    lost, won = np.flatnonzero(hit[1] & ~hit[0]).tolist(), np.flatnonzero(hit[0] & ~hit[1]).tolist()
    assert (found.queries, found.lost, found.won) == (QUERIES, len(lost), len(won)) and len(lost) > DRAWN
    text = [corpus.sentences[d] for d in task.documents]
    for every, drawn, finder, other in (
        (lost, found.lost_examples, teacher, row),
        (won, found.won_examples, row, teacher),
    ):
        assert len(drawn) == min(DRAWN, len(every))
        at = [every.index(query.place) for query in drawn]
        assert set(np.diff(at)) <= {len(every) // len(drawn), -(-len(every) // len(drawn))} and at[0] == 0
        for query in drawn:
            q, first = query.place, finder.first["own"][query.place]
            answers = [rank for rank, d in enumerate(first, 1) if d in task.relevant[q]]
            assert query.query == f"query {q}" and query.rank == answers[0]
            assert query.answer[: LONGEST - 1] == text[first[query.rank - 1]][: LONGEST - 1]
            assert query.instead[: LONGEST - 1] == text[other.first["own"][q][0]][: LONGEST - 1]
            assert len(query.answer) <= LONGEST and len(query.instead) <= LONGEST
    cut = [query.instead for query in found.lost_examples if query.instead.endswith("…")]
    assert cut and all(len(text) == LONGEST for text in cut)


def test_the_pairs_of_an_sts_set_whose_rank_moves_most(corpus: Corpus, both: Any) -> None:
    found = draw_examples(corpus, *both).sts
    ranks = [rankdata(-p.test["sts/STS12/spearman"].value_P) for p in both]
    moves = np.abs(ranks[0] - ranks[1])
    assert found.keys() == {"STS12"} and len(found["STS12"]) == 10
    assert [abs(p.rank - p.teacher_rank) for p in found["STS12"]] == sorted(moves.tolist())[::-1][:10]
    for pair in found["STS12"]:
        _, subset, place = pair.one.split()
        at = int(place) + PAIRS * (subset == "b")
        assert pair.two == f"two {subset} {place}" and pair.gold == corpus.sts[subset == "b"].score_P[int(place)]
        assert (pair.rank, pair.teacher_rank) == (ranks[0][at], ranks[1][at])


def test_no_text_leaves_data_whose_terms_forbid_it(corpus: Corpus, both: Any) -> None:
    told, silent = draw_examples(corpus, *both), draw_examples(replace(corpus, show=False), *both)
    assert told.shown and told.text == "Made up." and not silent.shown
    assert silent.searches["own"].lost == told.searches["own"].lost > 0
    assert not any(word in silent.model_dump_json() for word in ("query ", "long", "one a", "Made up"))


def test_a_folder_says_whether_its_text_may_be_shown(tmp_path: Path) -> None:
    folder = make_data(tmp_path / "data")
    assert folder_corpus(folder, Limits()).show
    (folder / "about.json").write_text('{"show": false, "text": "from there"}')
    corpus = folder_corpus(folder, Limits())
    assert (corpus.show, corpus.text_from) == (False, "from there")


def test_examples_are_kept_beside_the_predictions_of_all_but_the_teacher(
    corpus: Corpus, both: Any, tmp_path: Path
) -> None:
    def record(name: str, role: str) -> Any:
        return SimpleNamespace(record_id=name, role=role, quantisation="float32")

    teacher, row = record("t", "teacher"), record("r", "student")
    keep_predictions(tmp_path, teacher, both[1], corpus, [])
    keep_predictions(tmp_path, row, both[0], corpus, [teacher])
    assert Examples.load(tmp_path, teacher.record_id) is None
    assert Examples.load(tmp_path, row.record_id) == draw_examples(corpus, *both)
    examples_path(tmp_path, row.record_id).write_text("[]")
    assert Examples.load(tmp_path, row.record_id) is None
    # Predictions of earlier versions have no first documents: then pairs alone can be compared.
    replace(both[1], first={}).save(predictions_path(tmp_path, teacher.record_id))
    keep_predictions(tmp_path, row, both[0], corpus, [teacher])
    found = Examples.load(tmp_path, row.record_id)
    assert found is not None and found.searches == {} and found.sts.keys() == {"STS12"}
    keep_predictions(tmp_path, record("alone", "encoder"), both[0], corpus, [row])
    nothing = Predictions(test={"probe/S/accuracy": Items(np.ones(3))})  # no search, no pairs
    keep_predictions(tmp_path, record("probed", "student"), nothing, corpus, [teacher])
    keep_predictions(tmp_path, teacher, nothing, corpus, [])
    keep_predictions(tmp_path, record("later", "student"), both[0], corpus, [teacher])
    assert all(Examples.load(tmp_path, name) is None for name in ("alone", "probed", "later"))
