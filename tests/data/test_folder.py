"""A user's data folder: what is found is used and said, what is bad is named."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.errors import InputError

ALL = Limits(None, None, None)


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """A copy of the small data folder that a test may change."""
    return Path(shutil.copytree(data_folder, tmp_path / "mine"))


def add(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(row + "\n" for row in rows)
    return path


def texts(corpus: Corpus, rows: object) -> list[str]:
    return [corpus.sentences[i] for i in np.asarray(rows)]


def trained(corpus: Corpus) -> set[str]:
    return set(texts(corpus, corpus.train))


def test_everything_in_the_folder_is_used(folder: Path) -> None:
    corpus = folder_corpus(folder, ALL)
    assert corpus.name == "mine" and not corpus.demonstration
    assert [(s.group, s.subset, s.split, len(s.score_P)) for s in corpus.sts] == [
        ("STS12", "MSRpar", "test", 30),
        ("STS12", "OnWN", "test", 30),
        ("STSB", "", "dev", 40),
        ("STSB", "", "test", 40),
    ]
    assert corpus.pairs_P2.shape == (64, 2)
    assert len(corpus.train) == 2 * 64 + 80
    (task,) = corpus.retrieval
    assert (task.name, task.split, len(task.queries), len(task.documents)) == ("quora", "dev", 20, 60)
    assert len(set(corpus.sentences)) == len(corpus.sentences)


def test_texts_arrive_where_they_belong(folder: Path) -> None:
    corpus = folder_corpus(folder, ALL)
    lines = [line.split("\t") for line in (folder / "sts" / "STSB.dev.tsv").read_text().splitlines()[1:]]
    dev = next(s for s in corpus.sts if s.split == "dev")
    assert texts(corpus, dev.left_P) == [one for one, _, _ in lines]
    assert texts(corpus, dev.right_P) == [two for _, two, _ in lines]
    assert dev.score_P.tolist() == [float(score) for *_, score in lines]
    pairs = [line.split("\t")[:2] for line in (folder / "quora" / "pairs.tsv").read_text().splitlines()[1:]]
    assert [texts(corpus, pair) for pair in corpus.pairs_P2] == pairs
    (task,) = corpus.retrieval
    for query, relevant in zip(texts(corpus, task.queries), task.relevant, strict=True):
        assert [f"how do i {t}" for t in texts(corpus, task.documents[relevant])] == [query]


def test_what_is_found_and_not_found_is_said(folder: Path) -> None:
    corpus = folder_corpus(folder, ALL)
    found, missing = "\n".join(corpus.found), "\n".join(corpus.missing)
    for line in ("sts/STSB.dev.tsv: 40 pairs (dev)", "quora/pairs.tsv: 64 duplicate pairs", "80 sentences (train)"):
        assert line in found
    assert "quora retrieval, dev: 20 queries, 60 of 60 documents" in found
    for name in ("sts/STS13", "sts/SICK.test", "quora retrieval, test"):
        assert name in missing
    for name in ("sts/STS12", "sts/STSB.dev", "sts/STSB.test", "unlabeled", "quora/pairs"):
        assert name not in missing


def test_only_duplicates_of_the_train_split_are_trained_on(folder: Path) -> None:
    rows = ["not alike\tat all\t0\ttrain", "a dev one\tand its twin\t1\tdev", "a test one\tand its copy\t1\ttest"]
    add(folder / "quora" / "pairs.tsv", *rows)
    corpus = folder_corpus(folder, ALL)
    assert len(corpus.pairs_P2) == 64
    assert not set(corpus.sentences) & {"not alike", "at all", "a dev one", "a test one"}


def test_evaluation_text_is_kept_out_of_training(folder: Path) -> None:
    corpus = folder_corpus(folder, ALL)
    sts_dev, sts_test = (next(s for s in corpus.sts if s.split == split) for split in ("dev", "test"))
    query = corpus.sentences[corpus.retrieval[0].queries[0]]
    leaks = [corpus.sentences[sts_dev.left_P[0]], corpus.sentences[sts_test.right_P[0]], query]
    add(folder / "unlabeled" / "sentences.tsv", *leaks, "a new sentence")
    add(folder / "quora" / "pairs.tsv", *(f"{leak}\ta twin of {i}\t1\ttrain" for i, leak in enumerate(leaks)))
    again = folder_corpus(folder, ALL)
    assert trained(again) == trained(corpus) | {"a new sentence", *(f"a twin of {i}" for i in range(3))}
    assert len(again.pairs_P2) == 64
    assert any("9 left out" in line for line in again.found)  # three sentences, three pairs, a side of each


def test_limits_sample_the_same_rows_each_time_and_keep_the_answers(folder: Path) -> None:
    small = Limits(pairs=10, sentences=7, documents=25)
    one, two = folder_corpus(folder, small), folder_corpus(folder, small)
    assert one.fingerprint == two.fingerprint
    assert len(one.pairs_P2) == 10 and len(one.train) == 7
    (task,) = one.retrieval
    assert len(task.documents) == 25 and all(len(r) for r in task.relevant)
    # Fewer documents than answers: every answer stays.
    assert len(folder_corpus(folder, Limits(documents=3)).retrieval[0].documents) == 20


def test_training_sentences_are_drawn_evenly_from_their_sources(folder: Path) -> None:
    for name in ("unlabeled", "quora", "cqadupstack"):
        shutil.rmtree(folder / name, ignore_errors=True)
    rows = [
        f"{source} {i}\t{source}" for source, size in {"rare": 3, "few": 10, "most": 500}.items() for i in range(size)
    ]
    add(folder / "unlabeled" / "sentences.tsv", "text\tsource", *rows)
    add(folder / "unlabeled" / "plain.txt", *(f"plain {i}" for i in range(300)))
    pairs = (f"pair {i}\tpair twin {i}\t1\ttrain" for i in range(200))
    add(folder / "quora" / "pairs.tsv", "question1\tquestion2\tis_duplicate\tsplit", *pairs)
    limits = Limits(pairs=30, sentences=103)
    corpus = folder_corpus(folder, limits)
    drawn = Counter(text.split()[0] for text in trained(corpus))
    assert drawn == {"rare": 3, "few": 10, "most": 30, "plain": 30, "pair": 30}
    assert len(corpus.pairs_P2) == 30
    told = "sentences of each source: few 10, most 30, quora/pairs.tsv 30, rare 3, unlabeled/plain.txt 30"
    assert told in corpus.found
    by_source = {source: [corpus.sentences[row] for row in rows] for source, rows in corpus.text_sources.items()}
    assert by_source["rare"] == ["rare 0", "rare 1", "rare 2"]
    assert {text.split()[0] for text in by_source["unlabeled/plain.txt"]} == {"plain"}


@pytest.mark.parametrize("name", ["", "unrelated"])
def test_a_folder_without_any_usable_set(tmp_path: Path, name: str) -> None:
    if name:
        add(tmp_path / name / "notes.txt", "nothing")
    with pytest.raises(
        InputError, match=rf"--data {tmp_path}: no usable set in it; expected e\.g\. sts/STSB\.dev\.tsv"
    ):
        folder_corpus(tmp_path, ALL)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no such folder"):
        folder_corpus(tmp_path / "nowhere", ALL)


def test_without_training_text_nothing_can_be_trained(folder: Path) -> None:
    shutil.rmtree(folder / "unlabeled")
    (folder / "quora" / "pairs.tsv").unlink()
    (folder / "quora" / "corpus.tsv").unlink()
    with pytest.raises(InputError, match=r"nothing to train on; expected NAME/pairs\.tsv"):
        folder_corpus(folder, ALL)


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        ("sts/STSB.dev.tsv", "a dog\ta cat\tfour", r"STSB\.dev\.tsv, row 42: column 'score' is 'four'"),
        ("sts/STS12.OnWN.tsv", "a dog\ta cat\t", r"STS12\.OnWN\.tsv, row 32: column 'score' is ''"),
        ("sts/STSB.test.tsv", "a dog\t \t3", r"STSB\.test\.tsv, row 42: column 'sentence2' is empty"),
        ("sts/STSB.test.tsv", "a dog\t3", r"STSB\.test\.tsv, row 42: 2 fields"),
        ("quora/pairs.tsv", "\ta cat\t1\ttrain", r"pairs\.tsv, row 66: column 'question1' is empty"),
        ("quora/pairs.tsv", "a dog\ta cat\tyes\ttrain", r"pairs\.tsv, row 66: column 'is_duplicate' is 'yes'"),
    ],
)
def test_a_bad_row_names_file_row_and_value(folder: Path, file: str, row: str, message: str) -> None:
    add(folder / file, row)
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, ALL)


@pytest.mark.parametrize("scores", [[], ["3"], ["3", "3"]])  # no rank correlation exists on any of them
def test_an_sts_set_that_cannot_be_scored(folder: Path, scores: list[str]) -> None:
    rows = [f"a dog {i}\ta cat\t{score}" for i, score in enumerate(scores)]
    add(folder / "sts" / "STS13.tsv", "sentence1\tsentence2\tscore", *rows)
    with pytest.raises(InputError, match=rf"STS13\.tsv: {len(scores)} pairs with {len(set(scores))} distinct scores"):
        folder_corpus(folder, ALL)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("STS13.FNWN.dev", ("STS13", "FNWN", "dev")),
        ("STS13.FNWN", ("STS13", "FNWN", "test")),  # no split named: official STS sets are test sets
        ("STS13.a.b.dev", ("STS13", "a.b", "dev")),  # a dot in the subset's own name
        ("dev", ("dev", "", "test")),  # a group may be called anything
        ("STS13.FNWN.train", None),
    ],
)
def test_group_subset_and_split_of_an_sts_file(folder: Path, name: str, expected: tuple[str, str, str] | None) -> None:
    before = {(s.group, s.subset, s.split) for s in folder_corpus(folder, ALL).sts}
    shutil.copy(folder / "sts" / "STSB.dev.tsv", folder / "sts" / f"{name}.tsv")
    corpus = folder_corpus(folder, ALL)
    assert {(s.group, s.subset, s.split) for s in corpus.sts} - before == ({expected} if expected else set())
    # STS13 is expected as a test set.
    assert ("sts/STS13" in corpus.missing) == (expected is None or expected[0] != "STS13" or expected[2] != "test")
