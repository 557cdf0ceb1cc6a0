"""Training sentences from text sources: beside a data folder, or instead of the built-in ones; evaluation text kept out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distilbench.data import training_text
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.text import Texts
from distilbench.data.training_text import with_text
from distilbench.storage.store import ArtifactStore

ALL = Limits(None, None, None)
OWN = [f"my own sentence {i}" for i in range(50)]


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """A copy of the small data folder that a test may change."""
    return Path(shutil.copytree(data_folder, tmp_path / "mine"))


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A source of fifty sentences."""
    return lines(tmp_path / "own.txt", *OWN)


def lines(path: Path, *texts: str) -> str:
    path.write_text("".join(f"{t}\n" for t in texts))
    return str(path)


def with_folder(folder: Path, limits: Limits, texts: Texts) -> Corpus:
    store = ArtifactStore(folder.with_name("store"))
    return with_text(folder_corpus(folder, limits, more_text=bool(texts.sources)), texts, limits.sentences, store)


def trained(corpus: Corpus) -> list[str]:
    return [corpus.sentences[i] for i in corpus.train]


def test_text_is_trained_on_beside_a_data_folder(folder: Path, own: str) -> None:
    before, after = folder_corpus(folder, ALL), with_folder(folder, ALL, Texts((own,)))
    assert trained(after) == trained(before) + OWN
    assert np.array_equal(before.pairs_P2, after.pairs_P2)
    assert f"--text {own}: 50 sentences (train)" in after.found
    assert "unlabeled/sentences.tsv: 80 sentences (train)" in after.found


def test_text_may_be_all_there_is_to_train_on(folder: Path, own: str) -> None:
    shutil.rmtree(folder / "unlabeled")
    (folder / "quora" / "pairs.tsv").unlink()
    assert trained(with_folder(folder, ALL, Texts((own,)))) == OWN


def test_evaluation_text_is_kept_out(folder: Path, tmp_path: Path) -> None:
    without = folder_corpus(folder, ALL)
    dev = next(s for s in without.sts if s.split == "dev")
    leaks = [without.sentences[dev.left_P[0]], without.sentences[without.retrieval[0].queries[0]]]
    source = lines(tmp_path / "own.txt", leaks[0], "new", f"  {leaks[1]} ", "new")
    corpus = with_folder(folder, ALL, Texts((source,)))
    assert trained(corpus) == [*trained(without), "new"]
    assert any("2 left out" in line for line in corpus.found)


def test_the_limit_is_for_all_sources_together(folder: Path, own: str, tmp_path: Path) -> None:
    more = lines(tmp_path / "more.txt", *(f"another {i}" for i in range(70)))
    limits = replace(ALL, sentences=60)
    one, two = (with_folder(folder, limits, Texts(sources)) for sources in ((own, more), (more, own)))
    before = len(folder_corpus(folder, limits).train)
    drawn = trained(one)[before:]
    assert len(drawn) == 60 and {t.split()[0] for t in drawn} == {"my", "another"}
    assert set(drawn) == set(trained(two)[before:])  # whatever their order
    assert any("training on 60 distinct of 120 sentences of --text" in line for line in one.found)


def test_unlabelled_files_have_a_column_of_their_own_and_rows_without_a_text(folder: Path, tmp_path: Path) -> None:
    lines(folder / "unlabeled" / "more.txt", "", "a sentence in the middle")
    source = tmp_path / "own.tsv"
    source.write_text("satz\nein eigener Satz\nkurz\n")
    corpus = with_folder(folder, ALL, Texts((str(source),), "satz"))
    assert {"a sentence in the middle", "ein eigener Satz"} < set(trained(corpus))
    assert "unlabeled/more.txt: 1 sentences (train); 1 rows without a text left out" in corpus.found


def test_sentences_of_the_corpus_become_training_rows_and_no_second_sentences(folder: Path, tmp_path: Path) -> None:
    without = folder_corpus(folder, ALL)
    document = without.sentences[without.retrieval[0].documents[3]]
    assert document not in trained(without)
    source = lines(tmp_path / "own.txt", document, "new", trained(without)[5])
    corpus = with_folder(folder, ALL, Texts((source,)))
    assert sorted(trained(corpus)) == sorted([*trained(without), document, "new"])
    assert len(set(corpus.sentences)) == len(corpus.sentences) == len(without.sentences) + 1


def test_text_is_read_once_and_again_when_it_has_changed(
    folder: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    write = training_text.write_distinct
    monkeypatch.setattr(
        training_text, "write_distinct", lambda *args, **more: (reads.append(1), write(*args, **more))[1]
    )
    first = with_folder(folder, ALL, Texts((own,)))
    again = with_folder(folder, ALL, Texts((own,)))
    assert first.fingerprint == again.fingerprint and first.found == again.found and len(reads) == 1
    lines(Path(own), *OWN, "one more")
    assert len(with_folder(folder, ALL, Texts((own,))).train) == len(first.train) + 1 and len(reads) == 2
