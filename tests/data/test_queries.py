"""Training text that is queries or passages, by the name of its file: where it is found, and how it is read."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import random_sentences, write_tsv

from distilbench.data.corpus import Corpus, HeldOut, Rows
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.roles import DOCUMENT, PLAIN, QUERY, with_roles
from distilbench.data.text import Texts, open_text
from distilbench.data.training_text import asked_rows, with_judgements, with_text
from distilbench.storage.store import ArtifactStore

TEXTS = random_sentences(90, seed=31)
QUESTIONS, PASSAGES, PLAINS = TEXTS[:30], TEXTS[30:60], TEXTS[60:]


def texts(corpus: Corpus, rows: Rows) -> list[str]:
    return [corpus.sentences[int(row)] for row in rows]


def asked(corpus: Corpus) -> list[str]:
    """A query of a dev set, and an STS sentence."""
    return [corpus.sentences[int(rows[0])] for rows in (corpus.retrieval[0].queries, corpus.sts[0].left_P)]


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """The small data folder with questions, of which two are asked by dev sets, and passages, of which one is a question."""
    folder = Path(shutil.copytree(data_folder, tmp_path / "mine"))
    known = asked(folder_corpus(data_folder, Limits()))
    write_tsv(folder / "unlabeled" / "Questions-2026.tsv", ["text", "source"], [[t, "web"] for t in QUESTIONS + known])
    (folder / "unlabeled" / "passages.txt").write_text("".join(f"{t}\n" for t in [*PASSAGES, QUESTIONS[0]]))
    return folder


def test_files_that_are_named_so_are_queries_and_passages(folder: Path) -> None:
    corpus = folder_corpus(folder, Limits())
    assert set(texts(corpus, corpus.text_queries)) == set(QUESTIONS)
    assert set(texts(corpus, corpus.text_passages)) == {*PASSAGES, QUESTIONS[0]}
    assert {"unlabeled/Questions-2026.tsv: 32 queries (train)", "unlabeled/passages.txt: 31 passages (train)"} <= set(
        corpus.found
    )
    assert not asked_rows(corpus) & set(corpus.text_queries.tolist())


def test_names_alone_change_no_fingerprint(folder: Path, data_folder: Path) -> None:
    assert not len(folder_corpus(data_folder, Limits()).text_queries)
    named = folder_corpus(folder, Limits())
    bare = replace(named, text_queries=named.train[:0], text_passages=named.train[:0])
    assert named.fingerprint == bare.fingerprint


def test_queries_keep_their_share_of_a_limit(folder: Path, tmp_path: Path) -> None:
    corpus = folder_corpus(folder, Limits(pairs=0, sentences=60))
    kept = Counter((text in QUESTIONS) + 2 * (text in PASSAGES) for text in texts(corpus, corpus.train))
    assert kept == {1: 15, 2: 15, 0: 30}  # pairs.tsv is a source too
    source = tmp_path / "logs"
    source.mkdir()
    (source / "queries.txt").write_text("".join(f"{t}\n" for t in QUESTIONS[:8]))
    (source / "others.txt").write_text("".join(f"{t}\n" for t in random_sentences(300, seed=4)))
    base = folder_corpus(folder, Limits(pairs=0, sentences=0), more_text=True)
    corpus = with_text(base, Texts((str(source),)), 20, ArtifactStore(tmp_path / "store"))
    assert (len(corpus.train), len(np.intersect1d(corpus.train, corpus.text_queries))) == (20, 8)


def test_a_query_log_is_a_text_source_of_such_a_name(folder: Path, tmp_path: Path) -> None:
    base = folder_corpus(folder, Limits())
    sources = tmp_path / "queries.txt", tmp_path / "documents.txt", tmp_path / "other.txt"
    plain = texts(base, base.train)[-1]
    new = [t for t in random_sentences(40, seed=77) if t not in base.sentences]
    for path, lines in zip(
        sources, ([*new[:5], plain, *asked(base)], [*new[5:9], new[0]], [*new[9:12], new[1]]), strict=True
    ):
        path.write_text("".join(f"{t}\n" for t in lines))
    for given in (sources, sources[::-1]):  # whatever their order
        corpus = with_text(base, Texts(tuple(map(str, given))), None, ArtifactStore(tmp_path / "store"))
        assert set(texts(corpus, corpus.text_queries)) == {*QUESTIONS, *new[:5], plain}
        assert set(texts(corpus, corpus.text_passages)) == {*PASSAGES, QUESTIONS[0], *new[5:9]}
        assert set(texts(corpus, corpus.train)) == {*texts(base, base.train), *new[:12]}
    assert f"--text {sources[0]}: 8 queries (train)" in corpus.found
    assert [stream.role for stream in open_text(str(tmp_path)).by_role()] == [DOCUMENT, PLAIN, QUERY]


def test_they_are_read_by_their_role(folder: Path, tmp_path: Path) -> None:
    plain = folder_corpus(folder, Limits())
    held = np.sort([plain.text_queries[3], np.setdiff1d(plain.train, plain.text_queries)[0]])
    plain = replace(plain.without_training(held), held_out=(HeldOut("dev", held),))
    corpus = with_roles(plain, ArtifactStore(tmp_path / "store"))
    assert corpus.roles_N is not None
    assert sorted(texts(corpus, corpus.train)) == sorted(texts(plain, plain.train))
    for row in corpus.train.tolist():
        text = corpus.sentences[row]
        assert corpus.roles_N[row] == (QUERY if text in QUESTIONS else DOCUMENT if text in PASSAGES else PLAIN)
    [dev] = corpus.held_out
    assert sorted(texts(corpus, dev.rows)) == sorted(texts(plain, held)) and (np.diff(dev.rows) > 0).all()
    assert sorted(corpus.roles_N[dev.rows].tolist()) == [PLAIN, QUERY]


def test_queries_of_judgements_are_queries(folder: Path, tmp_path: Path) -> None:
    inner = folder / "own"
    write_tsv(inner / "corpus.tsv", ["doc_id", "text"], [["d1", PASSAGES[0]]])
    write_tsv(inner / "retrieval" / "queries.train.tsv", ["query_id", "text"], [["q1", "is this new"]])
    write_tsv(inner / "retrieval" / "qrels.train.tsv", ["query_id", "doc_id", "score"], [["q1", "d1", 1]])
    corpus = with_judgements(folder_corpus(folder, Limits()), folder, Limits(), passages=False)
    corpus = with_roles(corpus, ArtifactStore(tmp_path / "store"))
    assert corpus.roles_N is not None
    assert set(texts(corpus, corpus.train[corpus.roles_N[corpus.train] == QUERY])) == {*QUESTIONS, "is this new"}
