"""SentEval's classification sets: the same sets as in our own layout, read as SentEval reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from samples import write_tsv

from distilbench.data.classification import read_classification
from distilbench.data.corpus import ClassificationSet, Corpus, CorpusBuilder
from distilbench.data.evaluation import evaluation_data
from distilbench.data.folder import Limits
from distilbench.data.requirements import Requirements
from distilbench.data.senteval_classification import FORMATS, read_senteval_classification
from distilbench.errors import InputError
from distilbench.storage.store import ArtifactStore

TWO_FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}
TREC = {"train": "train_5500", "test": "TREC_10"}
SICK = {"train": "train", "dev": "trial", "test": "test_annotated"}
CLASSES = {
    "SST2": ("0", "1"),
    "SST5": ("0", "1", "2", "3", "4"),
    "TREC": ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    "MRPC": ("0", "1"),
    "SICK-E": ("NEUTRAL", "ENTAILMENT", "CONTRADICTION"),
}
Rows = list[tuple[tuple[str, ...], str]]
"""Texts and a label."""


def made_up() -> dict[str, dict[str, Rows]]:
    """Rows of every set, by split; "" is of the sets that are cross-validated, positive rows first, as SentEval has them."""
    sets: dict[str, dict[str, Rows]] = {}
    for name in TWO_FILES:
        sets[name] = {"": [((f"{name} says café {label}.{i}",), label) for label in "10" for i in range(12)]}
    for name, classes in CLASSES.items():
        splits = ("train", "test") if name in ("TREC", "MRPC") else ("train", "dev", "test")
        run = 3 if name == "MRPC" else 1  # so that both labels are among every tenth pair, the dev set of its pair task
        sides = "ab" if name in ("MRPC", "SICK-E") else "a"
        sets[name] = {
            split: [
                (tuple(f"{name} {split} {side}{i} : “x”" for side in sides), classes[i // run % len(classes)])
                for i in range(11 * len(classes) if split == "train" else 2 * len(classes))
            ]
            for split in splits
        }
    sets["TREC"] = {
        s: [((f"trec {s} : é {i}",), label) for i, (_, label) in enumerate(r)] for s, r in sets["TREC"].items()
    }
    return sets


def write(path: Path, lines: list[str], encoding: str = "utf-8", end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode(encoding))


def write_senteval(root: Path, sets: dict[str, dict[str, Rows]], end: str = "\n") -> None:
    down = root / "downstream"
    for name, files in TWO_FILES.items():
        for file, label in zip(files, "10", strict=True):
            write(down / file, [texts[0] for texts, own in sets[name][""] if own == label], "latin-1", end)
    for split, rows in sets["SST2"].items():
        # The published files have a blank before the tab.
        write(down / f"SST/binary/sentiment-{split}", [f"{text} \t{label}" for (text,), label in rows], end=end)
    for split, rows in sets["SST5"].items():
        write(down / f"SST/fine/sentiment-{split}", [f"{label} {text}" for (text,), label in rows], end=end)
    for split, rows in sets["TREC"].items():
        lines = [f"{label}:other {text}" for (text,), label in rows]
        write(down / f"TREC/{TREC[split]}.label", lines, "latin-1", end)
    for split, rows in sets["MRPC"].items():
        lines = [f"{label}\t{i}\t{i + 900}\t{one}\t{two}" for i, ((one, two), label) in enumerate(rows)]
        head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        write(down / f"MRPC/msr_paraphrase_{split}.txt", [head, *lines], end=end)
    for split, rows in sets["SICK-E"].items():
        lines = [f"{i}\t{one}\t{two}\t{1 + i % 5}\t{label}" for i, ((one, two), label) in enumerate(rows)]
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        write(down / f"SICK/SICK_{SICK[split]}.txt", [head, *lines], end=end)


def write_own(root: Path, sets: dict[str, dict[str, Rows]]) -> None:
    for name, splits in sets.items():
        for split, rows in splits.items():
            texts = ["sentence1", "sentence2"] if len(rows[0][0]) == 2 else ["text"]
            file = f"sc/{name}.{split}.tsv" if split else f"sc/{name}.tsv"
            label = "label"
            if name == "SICK-E":
                file, label = f"sts/SICK.{split}.tsv", "entailment"
            write_tsv(root / file, [*texts, label], [[*own, of] for own, of in rows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """SentEval's `data` folder with every classification set."""
    write_senteval(tmp_path / "senteval", made_up())
    return tmp_path / "senteval"


def read(root: Path) -> Corpus:
    builder = CorpusBuilder("d")
    read_senteval_classification(root, builder)
    return builder.build()


def rows_of(corpus: Corpus, task: ClassificationSet) -> list[tuple[str, tuple[str, ...], str]]:
    """Split, texts and label of each example."""
    texts = zip(*([corpus.sentences[row] for row in side] for side in task.texts), strict=True)
    labels = [task.classes[of] for of in task.class_N]
    return list(zip(task.split_N.tolist(), texts, labels, strict=True))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_sets_are_those_of_our_own_layout(tmp_path: Path, end: str) -> None:
    sets = made_up()
    write_senteval(tmp_path / "senteval", sets, end)
    write_own(tmp_path / "own", sets)
    builder = CorpusBuilder("d")
    read_classification(tmp_path / "own", builder)
    own, theirs = builder.build(), read(tmp_path / "senteval")
    assert [task.name for task in theirs.classification] == [*sets]
    assert theirs.sentences == own.sentences and theirs.found == own.found and theirs.missing == ()
    for one, two in zip(own.classification, theirs.classification, strict=True):
        assert (one.name, one.classes) == (two.name, two.classes)
        for name in ("class_N", "split_N"):
            assert np.array_equal(getattr(one, name), getattr(two, name))
        assert len(one.texts) == len(two.texts)
        assert all(np.array_equal(a, b) for a, b in zip(one.texts, two.texts, strict=True))
    assert theirs.fingerprint == own.fingerprint


def test_texts_labels_and_splits_arrive_where_they_belong(folder: Path) -> None:
    corpus = read(folder)
    rows = {task.name: rows_of(corpus, task) for task in corpus.classification}
    assert rows["MR"][0] == ("train", ("MR says café 1.0",), "1") and rows["MR"][12][2] == "0"
    # SentEval numbers objective sentences 1 and subjective ones 0: the numbers decide on ties of its sorting.
    assert rows["SUBJ"][0] == ("train", ("SUBJ says café 1.0",), "1")
    assert rows["SST2"][1] == ("train", ("SST2 train a1 : “x”",), "1")
    assert rows["SST5"][59] == ("dev", ("SST5 dev a4 : “x”",), "4")
    assert rows["TREC"][67] == ("test", ("trec test : é 1",), "DESC")
    assert rows["MRPC"][23] == ("test", ("MRPC test a1 : “x”", "MRPC test b1 : “x”"), "0")
    assert rows["SICK-E"][-1] == ("test", ("SICK-E test a5 : “x”", "SICK-E test b5 : “x”"), "CONTRADICTION")
    assert "SST5: 55 train, 10 dev, 10 test, 5 classes" in corpus.found
    assert "MR: 24 sentences (cross-validated), 2 classes" in corpus.found


def test_the_same_sentence_with_two_labels_is_two_examples(folder: Path) -> None:
    for file in TWO_FILES["CR"]:
        with (folder / "downstream" / file).open("a") as stream:
            stream.write("it works .\n")
    [task] = [task for task in read(folder).classification if task.name == "CR"]
    assert len(task.class_N) == 26 and task.texts[0][12] == task.texts[0][25]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("MR/rt-polarity.neg", "MR"),
        ("SUBJ/subj.subjective", "SUBJ"),
        ("SST/fine/sentiment-dev", "SST5"),
        ("TREC/TREC_10.label", "TREC"),
        ("SICK/SICK_trial.txt", "SICK-E"),
    ],
)
def test_a_set_without_one_of_its_files_is_left_out_and_told(folder: Path, file: str, name: str) -> None:
    (folder / "downstream" / file).unlink()
    corpus = read(folder)
    assert corpus.missing == (f"downstream/{file}",)
    assert {task.name for task in corpus.classification} == {*FORMATS} - {name}


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("MR/rt-polarity.pos", "  ", r"rt-polarity\.pos, row 13: column 'text' is empty; expected a sentence"),
        ("SST/binary/sentiment-dev", "good", r"sentiment-dev, row 5: 1 fields, expected a sentence and a label"),
        ("SST/binary/sentiment-dev", "a\tb\t1", r"sentiment-dev, row 5: 3 fields, expected a sentence and a label"),
        (
            "SST/binary/sentiment-test",
            "a\t2",
            r"binary/sentiment-test, row 5: column 'label' is '2'; expected one of 0, 1",
        ),
        (
            "SST/fine/sentiment-test",
            "5 a",
            r"fine/sentiment-test, row 11: column 'label' is '5'; expected one of 0, 1, 2",
        ),
        ("SST/fine/sentiment-test", "4 ", r"fine/sentiment-test, row 11: column 'text' is empty"),
        ("SST/fine/sentiment-test", "", r"fine/sentiment-test, row 11: column 'text' is empty"),
        (
            "TREC/train_5500.label",
            "WHO:ind a b",
            r"train_5500\.label, row 67: column 'label' is 'WHO'; expected one of ABBR",
        ),
        (
            "TREC/train_5500.label",
            "no class" * 20,
            r"row 67: column 'label' is 'no class.{49}\.\.\.'; expected one of ABBR",
        ),
        ("TREC/TREC_10.label", "NUM:date", r"TREC_10\.label, row 13: column 'text' is empty"),
        (
            "MRPC/msr_paraphrase_train.txt",
            "2\t1\t2\ta\tb",
            r"train\.txt, row 24: column 'Quality' is '2'; expected one of 0, 1",
        ),
        ("MRPC/msr_paraphrase_train.txt", "1\t1\t2\ta\t", r"train\.txt, row 24: column '#2 String' is empty"),
        (
            "SICK/SICK_trial.txt",
            "9\ta\tb\t3\tneutral",
            r"trial\.txt, row 8: column 'entailment_judgment' is 'neutral'; expected one of CONTRADICTION",
        ),
        ("SICK/SICK_trial.txt", "9\ta\tb\t3", r"SICK_trial\.txt, row 8: 4 fields, expected 5 as in the header"),
    ],
)
def test_a_bad_row_names_file_row_and_value(folder: Path, file: str, line: str, message: str) -> None:
    with (folder / "downstream" / file).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    with pytest.raises(InputError, match=message):
        read(folder)


def test_bytes_that_are_not_utf8(folder: Path) -> None:
    """SST is UTF-8; what Latin-1 files hold is always text."""
    (folder / "downstream/SST/binary/sentiment-dev").write_bytes(b"good\t1\ncaf\xe9\t0\n")
    with pytest.raises(InputError, match=r"sentiment-dev, row 2: not UTF-8"):
        read(folder)


@pytest.mark.parametrize(
    ("file", "lines", "message"),
    [
        (
            TWO_FILES["CR"][1],
            [],
            r"custrev\.pos and .*custrev\.neg: 12 rows with 1 distinct labels; expected at least 2",
        ),
        (
            TWO_FILES["CR"][1],
            ["bad"] * 9,
            r"custrev\.neg: label '0' is of 9 rows; expected at least 10, one for each fold",
        ),
        ("TREC/TREC_10.label", [], r"TREC_10\.label: no rows; expected the test set of TREC"),
        ("SST/binary/sentiment-dev", [], r"sentiment-dev: no rows; expected the dev set of SST2"),
        (
            "SST/fine/sentiment-train",
            ["0 a", "1 b", "2 c", "3 d"],
            r"sentiment-dev, row 5: column 'label' is '4'; expected",
        ),
    ],
)
def test_a_set_that_cannot_be_classified(folder: Path, file: str, lines: list[str], message: str) -> None:
    write(folder / "downstream" / file, lines)
    with pytest.raises(InputError, match=message):
        read(folder)


def test_an_evaluation_reads_them_where_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    (folder / "downstream/COCO").mkdir()
    store = ArtifactStore(tmp_path / "store")
    left_alone = "downstream: {} left alone (no STS set or pair task that is read)"
    data = evaluation_data(folder, ("sts", "classification"), Limits(), store)
    assert {task.name for task in data.corpus.classification} == {*FORMATS}
    assert left_alone.format("COCO") in data.corpus.found
    data = evaluation_data(folder, ("sts",), Limits(), store)
    assert data.corpus.classification == ()
    assert left_alone.format("COCO, CR, MPQA, MR, SST, SUBJ, TREC") in data.corpus.found
    data = evaluation_data(folder, ("classification",), Limits(), store)
    assert len(data.corpus.classification) == len(FORMATS) and data.corpus.sts == () and data.corpus.missing == ()


def test_files_that_two_kinds_of_sets_lack_are_told_once(folder: Path, tmp_path: Path) -> None:
    (folder / "downstream/SICK/SICK_trial.txt").unlink()
    kinds = ("sts", "classification", "pairs")
    missing = evaluation_data(folder, kinds, Limits(), ArtifactStore(tmp_path / "store")).corpus.missing
    assert missing.count("downstream/SICK/SICK_trial.txt") == 1
    assert "pair task SICK: downstream/SICK/SICK_trial.txt" in missing
    assert "pair task STSB: downstream/STS/STSBenchmark/sts-test.csv" in missing
    assert not any("MRPC" in line for line in missing)


def test_a_sweep_leaves_them_alone(folder: Path) -> None:
    from distilbench.data.folder import folder_corpus

    write(folder / "downstream/STS/STSBenchmark/sts-dev.csv", ["g\tf\ty\t1\t1\ta\tb", "g\tf\ty\t2\t4\tc\td"])
    corpus = folder_corpus(folder, Limits(), Requirements(pair_tasks=("MRPC",)))
    assert corpus.classification == () and not any("café" in text for text in corpus.sentences)
    assert "downstream: CR, MPQA, MR, SST, SUBJ, TREC left alone (no STS set or pair task that is read)" in corpus.found
