"""Triplets of a data folder: those of training files, without text that is evaluated on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError

TRIPLETS = Requirements(triplets=True)
PLAIN = "anchor\tpositive\tnegative"
SOURCED = f"{PLAIN}\tsource\tkind"


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """A copy of the small data folder, without triplets."""
    return Path(shutil.copytree(data_folder, tmp_path / "mine", ignore=shutil.ignore_patterns("nli")))


def write(folder: Path, *rows: str) -> Path:
    path = folder / "nli" / "triplets.tsv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


def texts(corpus: Corpus) -> list[list[str]]:
    return [[corpus.sentences[i] for i in triplet] for triplet in corpus.triplets_T3]


def test_triplets_are_read_in_order_and_trained_on(folder: Path) -> None:
    write(folder, PLAIN, " a\tb\tc ", "d\te\tf")
    corpus = folder_corpus(folder, Limits(), TRIPLETS)
    assert texts(corpus) == [["a", "b", "c"], ["d", "e", "f"]]
    assert {corpus.sentences[i] for i in corpus.train} >= set("abcdef")
    assert any("nli/triplets.tsv: 2 triplets, 2 of training files; training on 2 of 2" in f for f in corpus.found)


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("snli.train_part", True),
        ("cad_snli.train", True),
        ("train", True),
        ("mnli.dev_matched", False),  # a dev set that NLI accuracy is measured on
        ("snli.test", False),
        ("train.dev", False),  # the ending counts
        ("", False),  # who knows
    ],
)
def test_only_triplets_of_training_files_are_used(folder: Path, source: str, used: bool) -> None:
    write(folder, SOURCED, f"a\tp\tn\t{source}\tk", "a2\tp2\tn2\tsnli.train\tk")
    corpus = folder_corpus(folder, Limits(), TRIPLETS)
    assert texts(corpus) == ([["a", "p", "n"]] if used else []) + [["a2", "p2", "n2"]]
    assert ("n" in corpus.sentences) == used


@pytest.mark.parametrize("place", [0, 1, 2], ids=["anchor", "positive", "negative"])
@pytest.mark.parametrize("asked", ["sts dev", "sts test", "query"])
def test_evaluation_text_is_kept_out(folder: Path, place: int, asked: str) -> None:
    corpus = folder_corpus(folder, Limits())
    rows = {s.split: s.right_P for s in corpus.sts} | {"query": corpus.retrieval[0].queries}
    triplet = ["a", "p", "n"]
    triplet[place] = corpus.sentences[rows[asked.removeprefix("sts ")][0]]
    write(folder, PLAIN, "\t".join(triplet), "a2\tp2\tn2")
    again = folder_corpus(folder, Limits(), TRIPLETS)
    assert texts(again) == [["a2", "p2", "n2"]]
    assert any("training on 1 of 1, 1 left out" in line for line in again.found)


@pytest.mark.parametrize("row", ["a\ta \tn", "a\tp\ta", "a\tp\tp"])  # each is its own contradiction
def test_a_sentence_does_not_contradict_itself(folder: Path, row: str) -> None:
    write(folder, PLAIN, row, "a2\tp2\tn2")
    assert texts(folder_corpus(folder, Limits(), TRIPLETS)) == [["a2", "p2", "n2"]]


def test_a_limit_samples_the_same_triplets_each_time(folder: Path) -> None:
    write(folder, PLAIN, *(f"a{i}\tp{i}\tn{i}" for i in range(50)))
    one, two = (folder_corpus(folder, Limits(pairs=7), TRIPLETS) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert len(set(map(tuple, texts(one)))) == 7
    assert all(a[1:] == p[1:] == n[1:] for a, p, n in texts(one))
    assert "a49" in folder_corpus(folder, Limits(pairs=None), TRIPLETS).sentences
    assert any("training on 7 of 50" in line for line in one.found)


def test_a_file_that_is_needed_and_not_there(folder: Path) -> None:
    message = rf"--data {folder}: the method learns from triplets; expected nli/triplets\.tsv or nli/triplets\.tsv\.gz"
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, Limits(), TRIPLETS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([PLAIN, "a\tp\tn", "a\t \tn"], r"triplets\.tsv, row 3: column 'positive' is empty"),
        ([PLAIN], r"triplets\.tsv: none of its 0 triplets can be trained on; expected three different"),
        ([PLAIN, "a\ta\tn"], r"triplets\.tsv: none of its 1 triplets can be trained on"),  # nothing left
        ([SOURCED, "a\tp\tn\tx.dev\tk"], r"none of its 1 triplets .* a source ending in train or train_part"),
    ],
)
def test_a_bad_file_is_named_with_row_and_value(folder: Path, rows: list[str], message: str) -> None:
    write(folder, *rows)
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, Limits(), TRIPLETS)
