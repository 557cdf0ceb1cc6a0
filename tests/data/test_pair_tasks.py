"""Labelled pair tasks of a data folder: found by name, labels as numbers, training text apart from what is evaluated."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from distilbench.data.corpus import Corpus, PairTask
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError

SCORED = "sentence1\tsentence2\tscore"
GLUE = "index\tlabel\tsentence1\tsentence2"
NLI = "premise\thypothesis\tgold_label\tinfo"
QUORA = "doc_id1\tquestion1\tquestion2\tis_duplicate\tsplit"


@pytest.fixture
def folder(tmp_path: Path, data_folder: Path) -> Path:
    """A copy of the small data folder, without any pair task."""
    ignored = shutil.ignore_patterns("nli", "glue", "quora", "STSB.train.tsv")
    return Path(shutil.copytree(data_folder, tmp_path / "mine", ignore=ignored))


def write(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


def write_mrpc(folder: Path, **more: list[str]) -> None:
    """Train, dev and test of MRPC, two pairs each; `more` rows for a split."""
    for split in ("train", "dev", "test"):
        rows = [f"0\t1\t{split} a\t{split} b", f"1\t0\t{split} c\t{split} d", *more.get(split, [])]
        write(folder / f"glue/MRPC.{split}.tsv", GLUE, *rows)


def write_nli(folder: Path, train: str = "snli.train.tsv") -> None:
    for name in (train, "snli.dev.tsv", "snli.test.tsv"):
        rows = [f"{name} {i}\t{name} so {i}\t{label}\t" for i, label in enumerate(("neutral", "entailment"))]
        write(folder / "nli" / name, NLI, *rows, f"{name} p\t{name} h\tcontradiction\tgenre")


def read(folder: Path, name: str, limits: Limits | None = None) -> tuple[Corpus, PairTask]:
    corpus = folder_corpus(folder, limits or Limits(), Requirements(pair_tasks=(name,)))
    (task,) = corpus.pair_tasks
    return corpus, task


def rows(corpus: Corpus, task: PairTask, split: str) -> list[tuple[str, str, float]]:
    found = task.splits[split]
    columns = zip(found.left_P.tolist(), found.right_P.tolist(), found.target_P.tolist(), strict=True)
    return [(corpus.sentences[one], corpus.sentences[two], target) for one, two, target in columns]


def test_a_task_has_its_pairs_labels_and_classes(folder: Path) -> None:
    write_mrpc(folder)
    corpus, task = read(folder, "MRPC")
    assert (task.name, task.kind, task.classes, task.low, task.high) == (
        "MRPC",
        "binary",
        ("different", "equivalent"),
        0,
        1,
    )
    for split in ("train", "dev", "test"):
        assert rows(corpus, task, split) == [(f"{split} a", f"{split} b", 1), (f"{split} c", f"{split} d", 0)]
    trained = {corpus.sentences[i] for i in corpus.train}
    assert trained >= {f"train {x}" for x in "abcd"}
    assert not trained & {f"{split} {x}" for split in ("dev", "test") for x in "abcd"}


@pytest.mark.parametrize(
    ("name", "low", "train", "expected"),
    [
        # STS-B dev is there already, as an STS set; its score column is not the last one.
        ("STSB", 0, ("sts/STSB.train.tsv", "score\tsentence1\tsentence2", "0\ta\tb", "4.75\tc\td"), [0, 4.75]),
        # SICK has a column `entailment` too, and no zero.
        ("SICK", 1, ("sts/SICK.train.tsv", f"{SCORED}\tentailment", "a\tb\t1\tX", "c\td\t5.0\tX"), [1, 5]),
    ],
)
def test_regressions(folder: Path, name: str, low: float, train: tuple[str, ...], expected: list[float]) -> None:
    write(folder / train[0], *train[1:])
    write(folder / "sts" / "SICK.dev.tsv", SCORED, "e\tf\t1", "g\th\t2")
    corpus, task = read(folder, name)
    assert (task.kind, task.classes, task.low, task.high) == ("regression", (), low, 5)
    assert rows(corpus, task, "train") == [("a", "b", expected[0]), ("c", "d", expected[1])]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("RTE", "index\tsentence1\tsentence2\tlabel"),
        ("QNLI", "index\tquestion\tsentence\tlabel"),  # its own names for the two sides
    ],
)
def test_entailment_or_not(folder: Path, name: str, header: str) -> None:
    for split in ("train", "dev"):
        write(folder / f"glue/{name}.{split}.tsv", header, f"0\t{split} a\tb\tentailment", "1\tc\td\tnot_entailment")
    with pytest.raises(InputError, match=rf"{name}\.train\.tsv: 1 train pairs of {name} that are not in its dev"):
        read(folder, name)  # c and d are in both: one label is left
    write(folder / f"glue/{name}.dev.tsv", header, "0\te\tf\tentailment", "1\tg\th\tnot_entailment")
    corpus, task = read(folder, name)
    assert (task.kind, task.classes) == ("binary", ("not_entailment", "entailment"))
    assert rows(corpus, task, "train") == [("train a", "b", 1), ("c", "d", 0)]
    assert set(task.splits) == {"train", "dev"}
    assert f"pair task {name}, test (glue/{name}.test.tsv)" in corpus.missing


def test_duplicate_questions_come_from_one_file(folder: Path) -> None:
    pairs = ["1\ta\tb\t1\ttrain", "2\tc\td\t1\tdev", "3\te\tf\t0\tdev", "4\tg\th\t0\ttrain"]
    path = write(folder / "quora/pairs.tsv", QUORA, *pairs)
    corpus, task = read(folder, "QQP")
    assert (task.kind, task.classes) == ("binary", ("different", "duplicate"))
    assert rows(corpus, task, "train") == [("a", "b", 1), ("g", "h", 0)]
    assert rows(corpus, task, "dev") == [("c", "d", 1), ("e", "f", 0)]
    assert "pair task QQP, test (quora/pairs.tsv with rows of split test)" in corpus.missing
    path.with_name("pairs.tsv.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    zipped, _ = read(folder, "QQP")
    assert zipped.fingerprint == corpus.fingerprint


def test_three_classes(folder: Path) -> None:
    write_nli(folder)
    corpus, task = read(folder, "SNLI")
    assert (task.kind, task.classes) == ("three-class", ("entailment", "neutral", "contradiction"))
    for split in ("train", "dev", "test"):
        assert [target for *_, target in rows(corpus, task, split)] == [1, 0, 2]
    assert rows(corpus, task, "dev")[0][:2] == ("snli.dev.tsv 0", "snli.dev.tsv so 0")  # premise first


def test_pairs_without_an_agreed_label_are_skipped_and_counted(folder: Path) -> None:
    write_nli(folder)
    for name in ("snli.train.tsv", "snli.dev.tsv"):
        with (folder / "nli" / name).open("a") as file:
            file.write("who\tknows\t-\t\n" * 2)
    corpus, task = read(folder, "SNLI")
    assert [len(task.splits[s].target_P) for s in ("train", "dev", "test")] == [3, 3, 3]
    assert "who" not in corpus.sentences
    assert "nli/snli.dev.tsv: 3 pairs (SNLI, dev); 2 without an agreed label skipped" in corpus.found
    assert "nli/snli.test.tsv: 3 pairs (SNLI, test)" in corpus.found


@pytest.mark.parametrize(
    ("files", "used"),
    [
        (["snli.train_part.tsv.gz"], "snli.train_part.tsv.gz"),
        (["snli.train_part.tsv.gz", "snli.train.tsv.gz"], "snli.train.tsv.gz"),  # the whole rather than a part
    ],
)
def test_the_files_of_a_training_split(folder: Path, files: list[str], used: str) -> None:
    write_nli(folder)
    content = (folder / "nli/snli.train.tsv").read_bytes()
    (folder / "nli/snli.train.tsv").unlink()
    for name in files:
        (folder / "nli" / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    corpus, _ = read(folder, "SNLI")
    assert any(line.startswith(f"nli/{used}: 3 pairs (SNLI, train)") for line in corpus.found)


@pytest.mark.parametrize("test", ["mnli.dev_mismatched.tsv", "mnli.dev_mismatched_part.tsv"])  # all of it, or a part
def test_mnli_is_tested_on_the_mismatched_genres(folder: Path, test: str) -> None:
    write_nli(folder)
    moved = {"snli.train.tsv": "mnli.train.tsv", "snli.dev.tsv": "mnli.dev_matched.tsv", "snli.test.tsv": test}
    for old, new in moved.items():
        (folder / "nli" / old).rename(folder / "nli" / new)
    corpus, task = read(folder, "MNLI")
    assert set(task.splits) == {"train", "dev", "test"}
    assert f"nli/{test}: 3 pairs (MNLI, test)" in corpus.found


def test_train_pairs_that_are_also_evaluated_are_left_out(folder: Path) -> None:
    more = ["2\t1\tdev a\tdev b", "3\t0\ttest d\ttest c", "4\t1\tdev a\tnew"]  # as it is, turned round, one side only
    write_mrpc(folder, train=more)
    corpus, task = read(folder, "MRPC")
    assert [pair[:2] for pair in rows(corpus, task, "train")] == [
        ("train a", "train b"),
        ("train c", "train d"),
        ("dev a", "new"),
    ]
    trained = {corpus.sentences[i] for i in corpus.train}
    assert "new" in trained and "dev a" not in trained
    (line,) = (line for line in corpus.found if "MRPC, train" in line)
    assert line == "glue/MRPC.train.tsv: 5 pairs (MRPC, train); training on 3 of 3, 2 left out (in its dev or test set)"


def test_sentences_that_other_sets_ask_about_are_not_trained_on_without_a_label(folder: Path) -> None:
    sts = next(s for s in folder_corpus(folder, Limits()).sts if s.split == "test")
    asked = folder_corpus(folder, Limits()).sentences[sts.left_P[0]]
    partner = folder_corpus(folder, Limits()).sentences[sts.right_P[0]]
    write_mrpc(folder, train=[f"2\t1\t{asked}\tnew", f"3\t1\t{asked}\t{partner}", "4\t1\tsnli.dev.tsv p\tnewer"])
    write_nli(folder)
    corpus = folder_corpus(folder, Limits(), Requirements(pair_tasks=("MRPC", "SNLI")))
    trained = {corpus.sentences[i] for i in corpus.train}
    assert not trained & {asked, partner, "snli.dev.tsv p"}
    assert trained >= {"new", "newer"}
    assert [task.name for task in corpus.pair_tasks] == ["MRPC", "SNLI"]
    assert len(corpus.pair_tasks[0].splits["train"].target_P) == 5  # the task itself keeps its pairs
    # Said, because a score on that STS set then is one on seen pairs.
    assert any("MRPC, train" in line and "; 1 are pairs of STS dev or test sets" in line for line in corpus.found)


def test_a_limit_samples_training_pairs_only(folder: Path) -> None:
    more = {split: [f"{i}\t{i % 2}\t{split} l{i}\t{split} r{i}" for i in range(40)] for split in ("train", "dev")}
    write_mrpc(folder, **more)
    (one, task), (two, _) = (read(folder, "MRPC", Limits(pairs=10)) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert [len(task.splits[s].target_P) for s in ("train", "dev", "test")] == [10, 42, 2]
    assert len(read(folder, "MRPC", Limits(pairs=None))[1].splits["train"].target_P) == 42
    assert any("42 pairs (MRPC, train); training on 10 of 42" in line for line in one.found)


@pytest.mark.parametrize(
    ("name", "absent", "message"),
    [
        ("MRPC", "glue/MRPC.train.tsv", r"pair task MRPC has no train set; expected glue/MRPC\.train\.tsv"),
        # More than one file would do.
        ("SNLI", "nli/snli.train.tsv", r"no train set; expected nli/snli\.train\.tsv or nli/snli\.train_part\.tsv"),
        ("QQP", "glue/MRPC.dev.tsv", r"no train set; expected quora/pairs\.tsv with rows of split train"),
    ],
)
def test_a_task_without_train_or_dev_set(folder: Path, name: str, absent: str, message: str) -> None:
    write_mrpc(folder)
    write_nli(folder)
    (folder / absent).unlink()
    with pytest.raises(InputError, match=rf"--data {folder}: .*{message}"):
        read(folder, name)


@pytest.mark.parametrize(
    ("name", "file", "lines", "message"),
    [
        ("MRPC", "glue/MRPC.dev.tsv", [GLUE, "0\tyes\ta\tb"], r"row 2: column 'label' is 'yes'; expected 0 or 1"),
        # What GLUE writes where labels are hidden, and NLI files where annotators disagree.
        ("MRPC", "glue/MRPC.test.tsv", [GLUE, "0\t-1\ta\tb"], r"test\.tsv, row 2: .* is '-1'; expected 0 or 1"),
        ("MRPC", "glue/MRPC.dev.tsv", [GLUE, "0\t-\ta\tb"], r"column 'label' is '-'; expected 0 or 1"),
        # Labels are the very words: no spelling is guessed.
        ("SNLI", "nli/snli.dev.tsv", [NLI, "a\tb\tNeutral\t"], r"row 2: .* is 'Neutral'; expected entailment or"),
        # A score beyond the scale at either end, or none.
        ("STSB", "sts/STSB.train.tsv", [SCORED, "a\tb\t5.1"], r"STSB\.train\.tsv, row 2: .* expected 0 to 5"),
        ("SICK", "sts/SICK.train.tsv", [SCORED, "a\tb\t0.9"], r"column 'score' is '0\.9'; expected 1 to 5"),
        ("STSB", "sts/STSB.train.tsv", [SCORED, "a\tb\tnan"], r"column 'score' is 'nan'; expected a number"),
        ("MRPC", "glue/MRPC.dev.tsv", [GLUE, "0\t1\ta\t "], r"row 2: column 'sentence2' is empty"),
        ("QQP", "quora/pairs.tsv", [QUORA, "1\ta\tb\t1\tspare"], r"'split' is 'spare'; expected one of train"),
        # One class only: every constant answer would be right.
        ("MRPC", "glue/MRPC.dev.tsv", [GLUE, "0\t1\ta\tb"], r"1 dev pairs of MRPC, with 1 distinct labels; exp"),
        ("MRPC", "glue/MRPC.train.tsv", [GLUE], r"MRPC\.train\.tsv: 0 train pairs of MRPC .*, with 0 distinct labels"),
    ],
)
def test_a_bad_file_is_named_with_row_and_value(
    folder: Path, name: str, file: str, lines: list[str], message: str
) -> None:
    write_mrpc(folder)
    write_nli(folder)
    write(folder / file, *lines)
    with pytest.raises(InputError, match=message):
        read(folder, name)
