"""Judgements to train on: which pairs and passages are taken, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from samples import random_sentences, write_tsv

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.folder import Limits
from distilbench.data.roles import DOCUMENT, QUERY, with_roles
from distilbench.data.training_text import with_judgements
from distilbench.errors import InputError
from distilbench.storage.store import ArtifactStore

TEXTS = random_sentences(60, seed=8)
QUERIES, DOCUMENTS = TEXTS[:12], TEXTS[12:52]
JUDGED = [(i, 2 * i) for i in range(12)] + [(0, 30), (3, 31)]
"""Queries and the documents that answer them."""


def tsv_layout(folder: Path, judged: list[tuple[int, int]] = JUDGED) -> Path:
    write_tsv(folder / "mine" / "corpus.tsv", ["doc_id", "text"], [[f"d{i}", t] for i, t in enumerate(DOCUMENTS)])
    inner = folder / "mine" / "retrieval"
    write_tsv(inner / "queries.train.tsv", ["query_id", "text"], [[f"q{i}", t] for i, t in enumerate(QUERIES)])
    rows: list[list[object]] = [[f"q{q}", f"d{d}", 1] for q, d in judged]
    write_tsv(inner / "qrels.train.tsv", ["query_id", "doc_id", "score"], [*rows, ["q1", "d39", 0]])
    return folder


def beir_layout(folder: Path) -> Path:
    for name, texts, prefix in (("corpus", DOCUMENTS, "d"), ("queries", QUERIES, "q")):
        lines = [json.dumps({"_id": f"{prefix}{i}", "text": text}) for i, text in enumerate(texts)]
        (folder / "mine").mkdir(parents=True, exist_ok=True)
        (folder / "mine" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    rows: list[list[object]] = [[f"q{q}", f"d{d}", 1] for q, d in JUDGED]
    write_tsv(folder / "mine" / "qrels" / "train.tsv", ["query-id", "corpus-id", "score"], rows)
    return folder


def base() -> Corpus:
    """A corpus with a dev set that asks about a query and a document, and other text to train on."""
    builder = CorpusBuilder("base")
    builder.add_sts("STSB", "", "dev", [QUERIES[5], TEXTS[52]], [DOCUMENTS[8], TEXTS[53]], [1.0, 2.0])
    builder.train_on([TEXTS[54], DOCUMENTS[39]])
    return builder.build()


def texts_of(corpus: Corpus) -> list[tuple[str, str]]:
    return [(corpus.sentences[int(q)], corpus.sentences[int(d)]) for q, d in corpus.judged_P2]


@pytest.mark.parametrize("layout", [tsv_layout, beir_layout])
def test_pairs_are_trained_on_but_for_what_a_dev_set_asks_about(tmp_path: Path, layout: object) -> None:
    folder, plain = layout(tmp_path), base()  # type: ignore[operator]
    corpus = with_judgements(plain, folder, Limits(), passages=True)
    wanted = {(QUERIES[q], DOCUMENTS[d]) for q, d in JUDGED if q != 5 and d != 8}
    assert set(texts_of(corpus)) == wanted and len(corpus.judged_P2) == len(wanted)
    assert list(corpus.sentences[: len(plain.sentences)]) == list(plain.sentences)
    assert set(corpus.train.tolist()) == {*plain.train.tolist(), *corpus.judged_P2.ravel().tolist()}
    assert {corpus.sentences[int(row)] for row in corpus.passages} == set(DOCUMENTS) - {DOCUMENTS[8]}
    assert set(corpus.judged_P2[:, 1].tolist()) <= set(corpus.passages.tolist())
    assert any("mine retrieval, train: training on" in line for line in corpus.found)
    assert corpus.fingerprint != plain.fingerprint


def test_without_hard_negatives_no_other_passage_is_read_into_the_corpus(tmp_path: Path) -> None:
    corpus = with_judgements(base(), tsv_layout(tmp_path), Limits(), passages=False)
    assert len(corpus.passages) == 0 and len(corpus.judged_P2)
    judged = {d for _, d in texts_of(corpus)}
    assert judged == {text for text in corpus.sentences if text in DOCUMENTS} - {DOCUMENTS[8], DOCUMENTS[39]}


def test_limits_keep_all_answers_of_a_query(tmp_path: Path) -> None:
    folder = tsv_layout(tmp_path)
    corpus = with_judgements(base(), folder, Limits(pairs=4, documents=6), passages=True)
    pairs = texts_of(corpus)
    assert 3 <= len(pairs) <= 5  # one of a pair may be what the dev set asks about
    for query in {q for q, _ in pairs}:
        number = QUERIES.index(query)
        assert {d for q, d in pairs if q == query} == {DOCUMENTS[d] for q, d in JUDGED if q == number and d != 8}
    assert len(corpus.passages) <= len({d for _, d in pairs}) + 6
    again = with_judgements(base(), folder, Limits(pairs=4, documents=6), passages=True)
    assert again.fingerprint == corpus.fingerprint
    assert len(with_judgements(base(), folder, Limits(None, None, None), passages=True).judged_P2) == 12


def test_a_limit_is_shared_by_all_sets(tmp_path: Path) -> None:
    """A set with few judgements leaves the rest of its share to the larger ones, whatever their names."""
    tsv_layout(tmp_path)
    tsv_layout(tmp_path / "more", [(7, 33), (9, 34)])
    (tmp_path / "more" / "mine").rename(tmp_path / "small")
    corpus = with_judgements(base(), tmp_path, Limits(pairs=8), passages=False)
    counts = {
        line.split()[0]: int(line.split("training on ")[1].split()[0]) for line in corpus.found if "pairs of a" in line
    }
    assert counts["small"] == 2 and 5 <= counts["mine"] <= 7


def test_a_folder_without_judgements_changes_nothing(tmp_path: Path) -> None:
    plain = base()
    assert with_judgements(plain, tmp_path, Limits(), passages=True) is plain
    assert with_judgements(plain, None, Limits(), passages=True) is plain


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        ([(0, 1), (99, 1)], r"qrels\.train\.tsv, row 3: query id 'q99' is not in queries\.train\.tsv"),
        ([(0, 76), (1, 77)], r"qrels\.train\.tsv, row 2: document 'd76' is not in corpus\.tsv"),
        ([(0, 1), (0, 1)], r"qrels\.train\.tsv, row 3: query_id 'q0' with doc_id 'd1' is there already"),
    ],
)
def test_bad_judgements_are_named(tmp_path: Path, judged: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_judgements(base(), tsv_layout(tmp_path, judged), Limits(), passages=True)


def test_queries_and_passages_have_their_roles(tmp_path: Path) -> None:
    plain = with_judgements(base(), tsv_layout(tmp_path / "data"), Limits(), passages=True)
    corpus = with_roles(plain, ArtifactStore(tmp_path / "store"))
    assert corpus.roles_N is not None
    assert set(corpus.roles_N[corpus.judged_P2[:, 0]].tolist()) == {QUERY}
    assert set(corpus.roles_N[corpus.passages].tolist()) == {DOCUMENT}
    assert texts_of(corpus) == texts_of(plain) or set(texts_of(corpus)) == set(texts_of(plain))
    assert {corpus.sentences[int(i)] for i in corpus.train} == {plain.sentences[int(i)] for i in plain.train}
    assert set(corpus.judged_P2.ravel().tolist()) <= set(corpus.train.tolist())
    # A training sentence that is a passage too, though no relevant one, is trained on as text.
    row = int(np.flatnonzero([corpus.sentences[int(i)] == DOCUMENTS[39] for i in corpus.train])[0])
    assert corpus.roles_N[corpus.train[row]] == 0
