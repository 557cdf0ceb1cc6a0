"""Classification sets of a data folder: what is found, how it is split, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from distilbench.data.classification_sets import read_classification
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError


def write(path: Path, header: str, rows: list[tuple[str, ...]]) -> None:
    path.parent.mkdir(exist_ok=True)
    text = "\n".join([header, *("\t".join(row) for row in rows)]) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def labelled(count: int, classes: str = "01") -> list[tuple[str, ...]]:
    return [(f"sentence number {n}", classes[n % len(classes)]) for n in range(count)]


def read(root: Path) -> Corpus:
    builder = CorpusBuilder("d")
    read_classification(root, builder)
    return builder.build()


def test_sets_with_their_splits(tmp_path: Path) -> None:
    write(tmp_path / "sc" / "MR.tsv", "text\tlabel", labelled(40))
    for split, count in (("train", 30), ("dev", 6), ("test", 4)):
        write(tmp_path / "sc" / f"SST2.{split}.tsv.gz", "text\tlabel", labelled(count, "ab"))
    pairs = [("one", f"two {n}", "yn"[n % 2], str(n)) for n in range(40)]
    for split in ("train", "test"):
        write(tmp_path / "sc" / f"MRPC.{split}.tsv", "sentence1\tsentence2\tlabel\tid", pairs)
    corpus = read(tmp_path)
    assert [task.name for task in corpus.classification] == ["MR", "SST2", "MRPC"]
    mr, sst2, mrpc = corpus.classification
    assert set(mr.split_N) == {"train"} and mr.classes == ("0", "1") and mr.class_N[:3].tolist() == [0, 1, 0]
    assert corpus.sentences[mr.columns[0][7]] == "sentence number 7"
    assert [(sst2.split_N == s).sum() for s in ("train", "dev", "test")] == [30, 6, 4] and sst2.classes == ("a", "b")
    assert len(mrpc.columns) == 2 and corpus.sentences[mrpc.columns[1][3]] == "two 3"
    assert "SST2: 30 train, 6 dev, 4 test, 2 classes" in corpus.found
    assert "sc/TREC.train.tsv" in corpus.missing and "sc/CR.tsv" in corpus.missing


def test_a_set_of_ones_own_may_have_a_dev_split(tmp_path: Path) -> None:
    for name, splits in (("topic", ("train", "test")), ("mood", ("train", "dev", "test"))):
        for split in splits:
            write(tmp_path / "sc" / f"{name}.{split}.tsv", "text\tlabel", labelled(24))
    write(tmp_path / "sc" / "none.dev.tsv", "text\tlabel", labelled(24))
    assert [(task.name, sorted(set(task.split_N))) for task in read(tmp_path).classification] == [
        ("mood", ["dev", "test", "train"]),
        ("topic", ["test", "train"]),
    ]


def test_an_own_set_without_a_test_split_is_told(tmp_path: Path) -> None:
    write(tmp_path / "sc" / "topic.train.tsv", "text\tlabel", labelled(24))
    corpus = read(tmp_path)
    assert not corpus.classification and "sc/topic.test.tsv" in corpus.missing


def test_sick_e_has_its_labels_in_the_sts_files(tmp_path: Path) -> None:
    rows = [(f"a {n}", f"b {n}", "3.5", ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")[n % 3], str(n)) for n in range(9)]
    for split in ("train", "dev", "test"):
        write(tmp_path / "sts" / f"SICK.{split}.tsv", "sentence1\tsentence2\tscore\tentailment\tpair_id", rows)
    [task] = read(tmp_path).classification
    assert task.name == "SICK-E" and task.classes == ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")


def test_a_set_without_one_of_its_files_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "sc" / "TREC.train.tsv", "text\tlabel", labelled(60, "abcdef"))
    corpus = read(tmp_path)
    assert corpus.classification == () and "sc/TREC.test.tsv" in corpus.missing
    assert "sc/TREC.train.tsv" not in corpus.missing


def test_a_corpus_with_other_labels_is_another_one(tmp_path: Path) -> None:
    prints = []
    for classes in ("01", "10", "0110"):
        write(tmp_path / "sc" / "MR.tsv", "text\tlabel", labelled(40, classes))
        prints.append(read(tmp_path).fingerprint)
    assert len(set(prints)) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(f"s {n}", "0") for n in range(30)], r"MR.tsv: 30 rows with 1 distinct labels; expected at least 2"),
        ([*labelled(30), ("odd", "2")], r"MR.tsv: label '2' is of 1 rows; expected at least 10, one for each fold"),
        ([*labelled(30), ("empty", " ")], r"MR.tsv, row 32: column 'label' is empty; expected a label"),
        ([*labelled(30), (" ", "1")], r"MR.tsv, row 32: column 'text' is empty; expected a sentence"),
        ([*labelled(30), ("one", "1", "more")], r"MR.tsv, row 32: 3 fields, expected 2 as in the header"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, rows: list[tuple[str, ...]], message: str) -> None:
    write(tmp_path / "sc" / "MR.tsv", "text\tlabel", rows)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


def test_a_test_label_that_training_lacks(tmp_path: Path) -> None:
    write(tmp_path / "sc" / "TREC.train.tsv", "text\tlabel", labelled(40, "ab"))
    write(tmp_path / "sc" / "TREC.test.tsv", "text\tlabel", [("fine", "a"), ("odd", "z")])
    message = r"TREC.test.tsv, row 3: column 'label' is 'z'; expected a or b"
    with pytest.raises(InputError, match=message):
        read(tmp_path)
