"""A corpus: each sentence once, sets as rows, fingerprints that see every change; its sentences on disk are the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distilbench.data import sentences
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.sentences import FILE, SentenceFile, sentences_artifact
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore


def make() -> Corpus:
    builder = CorpusBuilder("c")
    builder.add_sts("STS12", "MSRpar", "test", ["a", "b"], ["b", "c"], [0, 5])
    builder.add_sts("STSB", "", "dev", ["a", "d"], ["a", "c"], [5, 1.5])
    builder.add_retrieval("quora", "dev", ["q"], ["d", "e", "f"], [{2: 1, 0: 1}])
    builder.add_pairs(["g", "h"], ["h", "a"])
    builder.train_on(["g", "h", "a", "i", "g", "i"])
    builder.found.append("something")
    return builder.build()


def test_sentences_are_distinct_and_rows_point_at_them() -> None:
    corpus = make()
    assert corpus.sentences == tuple("abcdqefghi")  # in order of arrival

    def text(rows: object) -> str:
        return "".join(np.array(corpus.sentences)[rows])

    first, second = corpus.sts
    assert (text(first.left_P), text(first.right_P), first.score_P.tolist()) == ("ab", "bc", [0, 5])
    assert (text(second.left_P), text(second.right_P)) == ("ad", "ac")
    assert (first.name, second.name) == ("STS12.MSRpar", "STSB")
    (task,) = corpus.retrieval
    assert (text(task.queries), text(task.documents), task.relevant[0].tolist()) == ("q", "def", [2, 0])
    assert [text(pair) for pair in corpus.pairs_P2] == ["gh", "ha"]
    assert text(corpus.train) == "aghi"  # each once, by row
    assert corpus.found == ("something",)


def test_an_empty_corpus_keeps_its_shapes() -> None:
    corpus = CorpusBuilder("empty").build()
    assert corpus.sentences == ()
    assert corpus.train.shape == (0,) and corpus.pairs_P2.shape == (0, 2)


def test_what_is_printed_does_not_change_the_fingerprints() -> None:
    assert replace(make(), name="other", found=(), missing=("x",)).fingerprint == make().fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(c, train=c.train[1:]),
        lambda c: replace(c, pairs_P2=c.pairs_P2[::-1].copy()),
        lambda c: replace(c, sts=c.sts[:1]),
        lambda c: replace(c, sts=c.sts[::-1]),
        lambda c: replace(c, sts=(replace(c.sts[0], score_P=c.sts[0].score_P + 1), c.sts[1])),
        lambda c: replace(c, sts=(replace(c.sts[0], split="dev"), c.sts[1])),
        lambda c: replace(c, sts=(replace(c.sts[0], left_P=c.sts[0].right_P, right_P=c.sts[0].left_P), c.sts[1])),
        lambda c: replace(c, retrieval=()),
        lambda c: replace(c, retrieval=(replace(c.retrieval[0], relevant=(np.array([2]),)),)),
        lambda c: replace(c, retrieval=(replace(c.retrieval[0], documents=c.retrieval[0].documents[::-1].copy()),)),
    ],
)
def test_every_change_of_a_set_changes_the_corpus_but_not_its_sentences(change: Callable[[Corpus], Corpus]) -> None:
    corpus = make()
    changed = change(corpus)
    assert changed.fingerprint != corpus.fingerprint
    assert changed.sentences_fingerprint == corpus.sentences_fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("b", "a")),
        (("ab", "c"), ("a", "bc")),  # the same characters, cut elsewhere
        (("a",), ("a", "")),
        (("é",), ("e\u0301",)),  # looks the same, is not
    ],
)
def test_every_change_of_the_sentences_changes_both_fingerprints(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    empty = CorpusBuilder("c").build()
    first, second = replace(empty, sentences=one), replace(empty, sentences=other)
    assert first.sentences_fingerprint != second.sentences_fingerprint
    assert first.fingerprint != second.fingerprint


TEXT = [f"sentence {i} with é, 你好 and \n a line" for i in range(25)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "CHUNK", 4)


def made(root: Path, text: list[str]) -> SentenceFile:
    return sentences_artifact(tuple(text), fingerprint(text), ArtifactStore(root))


def test_a_file_reads_like_a_tuple(tmp_path: Path) -> None:
    kept = made(tmp_path, TEXT)
    assert len(kept) == 25 and list(kept) == TEXT and tuple(kept[3:11]) == tuple(TEXT[3:11])
    assert kept[0] == TEXT[0] and kept[24] == TEXT[24] == kept[-1] and kept[22:99] == TEXT[22:]
    rows = np.random.default_rng(0).permutation(25)
    assert kept.take(rows) == [TEXT[i] for i in rows]
    for outside in (25, -26):
        with pytest.raises(IndexError):
            kept[outside]


def test_several_files_are_one_sequence_and_travel_as_paths(tmp_path: Path) -> None:
    one, two = made(tmp_path, TEXT[:9]), made(tmp_path, TEXT[9:])
    both = SentenceFile(*one.paths, *two.paths)
    assert list(both) == TEXT and both[7:12] == TEXT[7:12] and len(both) == 25
    packed = pickle.dumps(both)
    assert len(packed) < 500 + 2 * len(str(tmp_path)) and list(pickle.loads(packed)) == TEXT  # noqa: S301
    assert sentences_artifact(both, "any", ArtifactStore(tmp_path)) is both


def test_a_sentence_file_is_an_artifact_like_the_others(tmp_path: Path) -> None:
    kept = made(tmp_path, TEXT)
    (path,) = kept.paths
    assert path.name == FILE and made(tmp_path, TEXT).paths == kept.paths
    written = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-200])
    assert list(made(tmp_path, TEXT)) == TEXT and path.stat().st_mtime_ns != written
