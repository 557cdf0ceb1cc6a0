"""Files and rows of a split, by the usual names of splits."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from distilbench.data.classification_sets import read_classification
from distilbench.data.corpus import CorpusBuilder
from distilbench.data.folder import Limits, folder_corpus, read_sts
from distilbench.data.retrieval_sets import layouts
from distilbench.data.splits import split_at_end, split_files
from distilbench.errors import InputError

PAIRS = "sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2\n"


def write(folder: Path, *names: str, text: str = PAIRS) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def sets(folder: Path) -> tuple[list[tuple[str, str, str]], str]:
    builder = CorpusBuilder("mine")
    read_sts(folder, builder)
    return [(s.group, s.subset, s.split) for s in builder.sts], "\n".join(builder.missing)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("STSB.validation", ("STSB", "dev")),
        ("STSB.Train", ("STSB", "train")),
        ("SICK_trial", ("SICK", "dev")),
        ("STS-B", ("STS-B", None)),
        ("STSB.train-00000-of-00002", ("STSB", "train")),
        ("STSB.Eval", ("STSB", "dev")),
        ("news-test", ("news", "test")),
        ("test", ("test", None)),
    ],
)
def test_the_split_at_the_end_of_a_name(name: str, told: tuple[str, str | None]) -> None:
    assert split_at_end(name) == told


def test_only_test_files_are_test_sets(tmp_path: Path) -> None:
    names = (
        "STSB.VALID.tsv.gz",
        "STSB.Train.tsv",
        "STSB.test.tsv",
        "SICK.tsv",
        "STS12.news.tsv",
        "STS12.web.train.tsv",
    )
    found, missing = sets(write(tmp_path / "sts", *names, "STSB.test.csv"))
    assert found == [("SICK", "", "test"), ("STS12", "news", "test"), ("STSB", "", "dev"), ("STSB", "", "test")]
    assert "sts/STSB.test.csv" in missing


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("STSB.test.tsv", "STSB.mine.tsv"), "STSB.mine.tsv: 'mine'.*validation"),
        (("STSB.dev.tsv", "STSB.val.tsv"), "STSB.val.tsv: STSB.dev.tsv"),
        (("STS13.dev.FNWN.tsv",), "'dev.FNWN' is no split of STS13"),  # the split is the last part, or none
        (("SICK.test.v2.tsv",), "SICK.test.v2.tsv: 'test.v2' is no split of SICK"),
        (("SICK.dev1.tsv", "STSB.tsv"), "SICK.dev1.tsv: 'dev1' is no split of SICK"),
    ],
)
def test_a_file_of_no_split_or_of_one_that_is_there_is_refused(
    tmp_path: Path, names: tuple[str, ...], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        sets(write(tmp_path / "sts", *names))


def test_files_of_a_pattern(tmp_path: Path) -> None:
    write(tmp_path / "q", "Testing.tsv.gz", "valid.tsv", "old.tsv", "test.txt")
    found = split_files(tmp_path, "q/{}.tsv")
    assert [(split, path.name) for split, path in found.items()] == [
        ("dev", "valid.tsv"),
        ("test", "Testing.tsv.gz"),
        ("old", "old.tsv"),
    ]
    write(tmp_path / "q", "dev.tsv")
    with pytest.raises(InputError, match=r"valid.tsv: dev.tsv"):
        split_files(tmp_path, "q/{}.tsv")


def test_classification_and_judgements_know_the_same_names(tmp_path: Path) -> None:
    rows = "text\tlabel\n" + "".join(f"{word} {i}\t{word}\n" for word in ("good", "bad") for i in range(10))
    write(tmp_path / "sc", "TREC.training.tsv", "TREC.Test.tsv.gz", text=rows)
    builder = CorpusBuilder("mine")
    read_classification(tmp_path, builder)
    assert any(line.startswith("TREC: 20 train, 20 test") for line in builder.found)

    for place in ("search/news", "search/mail", "mail"):
        write(tmp_path / place, "corpus.jsonl", text='{"_id": "d", "text": "the answer"}\n')
        write(tmp_path / place, "queries.jsonl", text='{"_id": "q", "text": "the question"}\n')
        write(tmp_path / place / "qrels", "validation.tsv", "half.tsv", text="query-id\tcorpus-id\tscore\nq\td\t1\n")
    assert sorted(layout.name for layout in layouts(tmp_path)) == ["mail", "news", "search/mail"]
    corpus = folder_corpus(tmp_path, Limits())
    assert {(s.name, s.split) for s in corpus.retrieval} == {(n, "dev") for n in ("mail", "news", "search/mail")}
    assert any("news" in line and "half.tsv" in line for line in corpus.missing)


def test_rows_of_a_split(tmp_path: Path) -> None:
    rows = [("train", "a", "b"), ("Train", "c", "d"), ("validation", "e", "f"), ("spare", "g", "h")]
    text = "".join(f"how {one}\thow {two}\t1\t{split}\n" for split, one, two in rows)
    write(tmp_path / "deeper" / "quora", "pairs.tsv", text=f"question1\tquestion2\tis_duplicate\tsplit\n{text}")
    corpus = folder_corpus(tmp_path, Limits())
    assert len(corpus.pairs_P2) == 2
    assert any("quora/pairs.tsv: 2 duplicate pairs (train); 1 rows" in line for line in corpus.found)


def test_a_data_folder_one_level_deeper_is_named(tmp_path: Path) -> None:
    write(tmp_path / "data" / "sts", "STSB.test.tsv")
    with pytest.raises(InputError, match=r"is it --data .*/data\?"):
        folder_corpus(tmp_path, Limits())
