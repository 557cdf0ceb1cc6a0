"""Rows and names that a data folder once took without a word: repeated ids, and a split behind a subset."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from distilbench.data.folder import Limits, folder_corpus
from distilbench.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """A copy of the small data folder that a test may change."""
    return Path(shutil.copytree(data_folder, tmp_path / "mine"))


def append(path: Path, row: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(row + "\n")


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        # The same judgement twice would count its document twice.
        ("qrels.dev.tsv", "q1\td1\t1", r"qrels\.dev\.tsv, row 22: query_id 'q1' with doc_id 'd1' is there already"),
        # Two judgements that disagree: neither is to be believed.
        ("qrels.dev.tsv", "q1\td1\t0", r"qrels\.dev\.tsv, row 22: query_id 'q1' with doc_id 'd1' is there already"),
        # The later text would silently stand for the earlier one.
        (
            "../corpus.tsv",
            "d3\tother text\t0",
            r"corpus\.tsv, row 62: id 'd3' is there already",
        ),
        # Whether a question is a document must not depend on which of its rows is read.
        (
            "../corpus.tsv",
            "d3\tother text\t1",
            r"corpus\.tsv, row 62: id 'd3' is there already",
        ),
    ],
)
def test_a_repeated_id_is_refused(folder: Path, file: str, row: str, message: str) -> None:
    append(folder / "quora" / "retrieval" / file, row)
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, Limits())


@pytest.mark.parametrize("row", ["q1\td2\t1", "q2\td1\t1"])  # another document of a query; a document of two queries
def test_ids_may_repeat_in_another_pair(folder: Path, row: str) -> None:
    append(folder / "quora" / "retrieval" / "qrels.dev.tsv", row)
    (task,) = folder_corpus(folder, Limits()).retrieval
    assert sum(map(len, task.relevant)) == 21


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("STS13.FNWN.dev", ("STS13", "FNWN", "dev")),  # subset and split
        ("STS13.FNWN.test", ("STS13", "FNWN", "test")),
        ("STS13.FNWN", ("STS13", "FNWN", "test")),  # no split named: official STS sets are test sets
        ("STS13.a.b.dev", ("STS13", "a.b", "dev")),  # a dot in the subset's own name
        ("STS13.dev.FNWN", ("STS13", "dev.FNWN", "test")),  # only the last part is a split
        ("STS13.devset", ("STS13", "devset", "test")),  # a name that only begins like one
        ("dev", ("dev", "", "test")),  # a group may be called anything
    ],
)
def test_group_subset_and_split_of_an_sts_file(folder: Path, name: str, expected: tuple[str, str, str]) -> None:
    shutil.copy(folder / "sts" / "STSB.dev.tsv", folder / "sts" / f"{name}.tsv")
    corpus = folder_corpus(folder, Limits())
    assert expected in {(s.group, s.subset, s.split) for s in corpus.sts}
    assert f"sts/{name}.tsv: 40 pairs ({expected[2]})" in corpus.found
    # STS13 is expected as a test set.
    assert ("sts/STS13" in corpus.missing) == (expected[0] != "STS13" or expected[2] != "test")


def test_a_train_subset_is_not_evaluated(folder: Path) -> None:
    before = folder_corpus(folder, Limits())
    shutil.copy(folder / "sts" / "STSB.dev.tsv", folder / "sts" / "STS13.FNWN.train.tsv")
    assert folder_corpus(folder, Limits()).fingerprint == before.fingerprint


def test_a_dev_subset_is_enough_to_select_by(folder: Path) -> None:
    (folder / "sts" / "STSB.dev.tsv").rename(folder / "sts" / "STS12.MSRvid.dev.tsv")
    assert [s.name for s in folder_corpus(folder, Limits()).sts if s.split == "dev"] == ["STS12.MSRvid"]
