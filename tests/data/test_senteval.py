"""SentEval's folder as a data folder: found by itself, read as SentEval reads it, named as our own sets are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from distilbench.data.corpus import Corpus, StsSet
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.senteval import SUBSETS
from distilbench.data.text import Texts
from distilbench.data.training_text import with_text
from distilbench.errors import InputError
from distilbench.storage.store import ArtifactStore

REAL = Path(os.environ.get("DISTILBENCH_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
STSB = "downstream/STS/STSBenchmark/sts-{}.csv"
SICK = {"train": "train", "dev": "trial", "test": "test_annotated"}


def write(path: Path, *lines: str, head: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_sts(folder: Path, subset: str, rows: list[tuple[str, str, str]]) -> None:
    write(folder / f"STS.input.{subset}.txt", *(f"{one}\t{two}" for one, two, _ in rows))
    write(folder / f"STS.gs.{subset}.txt", *(score for *_, score in rows))


def stsb(*rows: tuple[str, str, str], genre: str = "main-captions") -> list[str]:
    return [f"{genre}\tMSRvid\t2012test\t{i:04}\t{score}\t{one}\t{two}" for i, (one, two, score) in enumerate(rows)]


def write_sick(folder: Path, split: str, *rows: tuple[str, str, str]) -> None:
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    lines = [f"{i}\t{one}\t{two}\t{score}\tNEUTRAL" for i, (one, two, score) in enumerate(rows, 1)]
    write(folder / f"downstream/SICK/SICK_{SICK[split]}.txt", *lines, head=head)


def write_mrpc(folder: Path, split: str, *rows: tuple[str, str, str]) -> None:
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    lines = [f"{label}\t{i}\t{i + 1000}\t{one}\t{two}" for i, (one, two, label) in enumerate(rows)]
    write(folder / f"downstream/MRPC/msr_paraphrase_{split}.txt", *lines, head=head)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """SentEval's `data` folder with a few pairs in every set, STS16 absent, and two classification sets."""
    root = tmp_path / "senteval"
    for group, subsets in SUBSETS.items():
        for subset in subsets if group != "STS16" else ():
            rows = [(f"{group} {subset} a{i}", f"{group} {subset} b{i}", str(i)) for i in range(3)]
            write_sts(root / "downstream" / "STS" / f"{group}-en-test", subset, rows)
    for split in ("train", "dev", "test"):
        pairs = [(f"stsb {split} a{i}", f"stsb {split} b{i}", f"{i}.000") for i in range(4)]
        write(root / STSB.format(split), *stsb(*pairs))
        write_sick(root, split, *((f"sick {split} a{i}", f"sick {split} b{i}", f"{i}.5") for i in range(1, 4)))
    for split, count in (("train", 30), ("test", 6)):
        write_mrpc(root, split, *((f"mrpc {split} a{i}", f"mrpc {split} b{i}", str(i // 3 % 2)) for i in range(count)))
    write(root / "downstream/MR/rt-polarity.pos", "left alone")
    write(root / "downstream/TREC/TREC_10.label", "left alone")
    return root


def pairs_of(corpus: Corpus, sts: StsSet) -> list[tuple[str, str, float]]:
    text = corpus.sentences
    rows = zip(sts.left_P.tolist(), sts.right_P.tolist(), sts.score_P.tolist(), strict=True)
    return [(text[one], text[two], score) for one, two, score in rows]


def one_set(corpus: Corpus, name: str, split: str) -> list[tuple[str, str, float]]:
    (sts,) = [s for s in corpus.sts if (s.name, s.split) == (name, split)]
    return pairs_of(corpus, sts)


def trained(corpus: Corpus) -> list[str]:
    return [corpus.sentences[i] for i in corpus.train]


def test_the_sets_are_named_as_in_our_own_layout(folder: Path) -> None:
    corpus = folder_corpus(folder, Limits())
    assert [(s.name, s.split) for s in corpus.sts] == [
        *((f"STS12.{name}", "test") for name in ("MSRpar", "MSRvid", "SMTeuroparl", "OnWN", "SMTnews")),
        *((f"STS13.{name}", "test") for name in ("FNWN", "headlines", "OnWN")),
        *(
            (f"STS14.{name}", "test")
            for name in ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news")
        ),
        *((f"STS15.{name}", "test") for name in SUBSETS["STS15"]),
        *[("STSB", "dev"), ("STSB", "test"), ("SICK", "dev"), ("SICK", "test")],
    ]
    assert corpus.name == "senteval" and len(corpus.pairs_P2) == 0 and not corpus.demonstration


def test_texts_and_scores_arrive_where_they_belong(folder: Path) -> None:
    corpus = folder_corpus(folder, Limits())
    assert one_set(corpus, "STS12.OnWN", "test")[1] == ("STS12 surprise.OnWN a1", "STS12 surprise.OnWN b1", 1.0)
    assert one_set(corpus, "STSB", "dev")[3] == ("stsb dev a3", "stsb dev b3", 3.0)
    assert one_set(corpus, "SICK", "dev")[0] == ("sick dev a1", "sick dev b1", 1.5)
    assert one_set(corpus, "SICK", "test")[2] == ("sick test a3", "sick test b3", 3.5)


def test_what_is_found_missing_and_left_alone_is_said(folder: Path) -> None:
    (folder / "downstream/STS/STS13-en-test/STS.gs.FNWN.txt").unlink()
    (folder / STSB.format("test")).unlink()
    corpus = folder_corpus(folder, Limits())
    assert corpus.missing == (
        "downstream/STS/STS13-en-test/STS.gs.FNWN.txt",
        "downstream/STS/STS16-en-test",
        "downstream/STS/STSBenchmark/sts-test.csv",
    )
    assert "downstream: MR, TREC left alone (no STS set or pair task that is read)" in corpus.found
    assert "downstream/STS/STS12-en-test/STS.input.MSRpar.txt: 3 pairs (test)" in corpus.found


def test_pairs_without_a_gold_score_are_skipped(folder: Path) -> None:
    rows = [("a", "b", "2"), ("c", "d", ""), ("", "", ""), ("e", "f", "4.25"), ("g", "h", "")]
    write_sts(folder / "downstream/STS/STS15-en-test", "belief", rows)
    corpus = folder_corpus(folder, Limits())
    assert one_set(corpus, "STS15.belief", "test") == [("a", "b", 2.0), ("e", "f", 4.25)]
    assert not {"c", "d", "g", "h"} & set(corpus.sentences)
    line = "downstream/STS/STS15-en-test/STS.input.belief.txt: 2 pairs (test); 3 without a gold score skipped"
    assert line in corpus.found


def test_files_that_senteval_does_not_read_are_left_alone(folder: Path) -> None:
    before = folder_corpus(folder, Limits()).fingerprint
    write_sts(folder / "downstream/STS/STS13-en-test", "SMT", [("licensed", "text", "1"), ("more", "of it", "2")])
    write(folder / "downstream/STS/STS12-en-test/STS.gs.ALL.txt", "1", "2")
    assert folder_corpus(folder, Limits()).fingerprint == before


def test_columns_behind_the_sentences(folder: Path) -> None:
    """The files as published: STS-B goes on with licences, STS16 with sources."""
    before = folder_corpus(folder, Limits()).fingerprint
    for split in ("train", "dev", "test"):
        path = folder / STSB.format(split)
        path.write_text(path.read_text().replace("\n", "\tsource\tlicence\n"))
    path = folder / "downstream/STS/STS14-en-test/STS.input.images.txt"
    path.write_text(path.read_text().replace("\n", "\tsource1\tsource2\n"))
    assert folder_corpus(folder, Limits()).fingerprint == before


def test_quotes_unicode_line_breaks_and_windows_line_ends(folder: Path) -> None:
    path = folder / STSB.format("dev")
    path.write_bytes("\r\n".join(stsb(('"open', "split\u2028no\x85way", "5"), ("x", 'y"', "0"))).encode() + b"\r\n")
    assert one_set(folder_corpus(folder, Limits()), "STSB", "dev") == [
        ('"open', "split\u2028no\x85way", 5.0),
        ("x", 'y"', 0.0),
    ]


def test_train_splits_are_trained_on_without_evaluation_sentences(folder: Path) -> None:
    leak = ("STS12 MSRpar a1", "sick dev b1", "3")  # STS-B was drawn from the STS sets of other years
    with (folder / STSB.format("train")).open("a") as file:
        file.writelines(line + "\n" for line in stsb(leak))
    corpus = folder_corpus(folder, Limits())
    assert set(trained(corpus)) == {f"stsb train {s}{i}" for s in "ab" for i in range(4)} | {
        f"sick train {s}{i}" for s in "ab" for i in range(1, 4)
    }
    assert any("14 distinct of 14 sentences; 2 left out" in line for line in corpus.found)


def test_given_text_is_trained_on_instead_of_them(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "own.txt", "one", "two", "stsb test a1")
    texts = Texts((str(tmp_path / "own.txt"),))
    corpus = with_text(folder_corpus(folder, Limits(), texts=texts), texts, None, ArtifactStore(tmp_path / "store"))
    assert trained(corpus) == ["one", "two"]
    assert any(line == f"--text {tmp_path}/own.txt: 3 sentences (train)" for line in corpus.found)


def test_pair_tasks(folder: Path) -> None:
    corpus = folder_corpus(folder, Limits(), Requirements(pair_tasks=("STSB", "SICK", "MRPC")))
    tasks = {task.name: task for task in corpus.pair_tasks}
    assert {n: (t.kind, t.low, t.high) for n, t in tasks.items()} == {
        "STSB": ("regression", 0.0, 5.0),
        "SICK": ("regression", 1.0, 5.0),
        "MRPC": ("binary", 0.0, 1.0),
    }
    counts = {n: {s: len(p.target_P) for s, p in t.splits.items()} for n, t in tasks.items()}
    assert counts == {
        "STSB": {"train": 4, "dev": 4, "test": 4},
        "SICK": {"train": 3, "dev": 3, "test": 3},
        "MRPC": {"train": 27, "dev": 3, "test": 6},
    }
    dev = tasks["MRPC"].splits["dev"]
    assert [corpus.sentences[i] for i in dev.left_P] == ["mrpc train a9", "mrpc train a19", "mrpc train a29"]
    assert dev.target_P.tolist() == [1.0, 0.0, 1.0]
    assert not {"mrpc train a9", "mrpc test b1", "sick test a1"} & set(trained(corpus))
    assert "mrpc train a8" in trained(corpus)
    assert any("msr_paraphrase_train.txt, every 10th pair: 3 pairs (MRPC, dev)" in line for line in corpus.found)


def test_a_pair_task_that_senteval_does_not_have(folder: Path) -> None:
    with pytest.raises(InputError, match=r"has no pair task 'QQP'; expected one of STSB, SICK, MRPC"):
        folder_corpus(folder, Limits(), Requirements(pair_tasks=("QQP",)))
    shutil.rmtree(folder / "downstream/MRPC")
    with pytest.raises(InputError, match=r"MRPC has no train set; expected downstream/MRPC/msr_paraphrase_train\.txt"):
        folder_corpus(folder, Limits(), Requirements(pair_tasks=("MRPC",)))


STS12 = "downstream/STS/STS12-en-test/STS.{}.MSRpar.txt"


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (STS12.format("input"), "a\tb", r"STS\.gs\.MSRpar\.txt: 3 lines, but STS\.input\.MSRpar\.txt has more"),
        (STS12.format("gs"), "3", r"STS\.input\.MSRpar\.txt: 3 lines, but STS\.gs\.MSRpar\.txt has more"),
        (
            STSB.format("dev"),
            stsb(("a", "b", "high"))[0],
            r"dev\.csv, row 5: column 'score' is 'high'; expected a numb",
        ),
        (STSB.format("dev"), stsb(("a", "b", "5.5"))[0], r"dev\.csv, row 5: column 'score' is '5\.5'; expected 0 to 5"),
        (STSB.format("test"), stsb(("a", " ", "5"))[0], r"test\.csv, row 5: column 'sentence2' is empty"),
        (
            STSB.format("test"),
            "main-captions\tMSRvid\t2012\t1\t5.0\ta",
            r"test\.csv, row 5: 6 fields, expected at least 7",
        ),
        (
            "downstream/SICK/SICK_trial.txt",
            "7\ta\tb\t0.5\tNEUTRAL",
            r"trial\.txt, row 5: .* is '0\.5'; expected 1 to 5",
        ),
        ("downstream/SICK/SICK_trial.txt", "7\ta\tb\t3", r"trial\.txt, row 5: 4 fields, expected 5"),
        (
            "downstream/MRPC/msr_paraphrase_test.txt",
            "2\t1\t2\ta\tb",
            r"row 8: column 'Quality' is '2'; expected 0 or 1",
        ),
    ],
)
def test_a_bad_row_names_file_row_and_value(folder: Path, file: str, line: str, message: str) -> None:
    with (folder / file).open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, Limits(), Requirements(pair_tasks=("MRPC",)))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "b", "1"), ("c\td", "e", "2")], r"STS\.input\.MSRpar\.txt, row 2: 3 fields, expected 2 sentences"),
        ([("a", "b", "1"), ("c", "d", "1")], r"STS\.input\.MSRpar\.txt: 2 pairs with 1 distinct scores"),
        ([("a", "b", ""), ("c", "d", "")], r"STS\.input\.MSRpar\.txt: 0 pairs with 0 distinct scores"),
    ],
)
def test_an_sts_file_that_cannot_be_scored(folder: Path, rows: list[tuple[str, str, str]], message: str) -> None:
    write_sts(folder / "downstream/STS/STS12-en-test", "MSRpar", rows)
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, Limits())


def test_bytes_that_are_not_utf8(folder: Path) -> None:
    (folder / STS12.format("input")).write_bytes(b"a\tb\ncaf\xe9\tc\nd\te\n")
    with pytest.raises(InputError, match=r"STS\.input\.MSRpar\.txt, row 2: not UTF-8"):
        folder_corpus(folder, Limits())


def test_without_training_text(folder: Path) -> None:
    for file in (STSB.format("train"), "downstream/SICK/SICK_train.txt"):
        (folder / file).unlink()
    with pytest.raises(InputError, match=r"nothing to train on; expected .*SICK_train\.txt, or --text"):
        folder_corpus(folder, Limits())


@pytest.mark.skipif(not (REAL / "sts").is_dir(), reason="no real data: set DISTILBENCH_DATA to a folder with sts/*.tsv")
def test_real_sets_are_the_same_in_both_layouts(tmp_path: Path) -> None:
    """The real files rewritten into SentEval's layout give the sets that our own layout gives."""
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    shutil.copytree(REAL / "sts", own / "sts")
    write(own / "unlabeled/one.tsv", "A sentence to train on.", head="text\n")
    for path in sorted((own / "sts").glob("*.tsv")):
        header, *lines = [line.split("\t") for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]
        at = [header.index(c) for c in ("sentence1", "sentence2", "score")]
        rows = [(r[at[0]], r[at[1]], r[at[2]]) for r in lines]
        group, part = path.name.split(".")[:2]
        if group == "STSB":
            write(theirs / STSB.format(part), *stsb(*rows))
        elif group == "SICK":
            write_sick(theirs, part, *rows)
        else:
            subset = f"surprise.{part}" if group == "STS12" and part in ("OnWN", "SMTnews") else part
            write_sts(theirs / "downstream/STS" / f"{group}-en-test", subset, rows)
    one, two = folder_corpus(own, Limits()), folder_corpus(theirs, Limits())

    def by_name(corpus: Corpus) -> dict[tuple[str, str], list[tuple[str, str, float]]]:
        return {(s.name, s.split): pairs_of(corpus, s) for s in corpus.sts}

    assert by_name(one) == by_name(two)
    assert len(one.sts) >= 16
    asked = {text for s in two.sts for pair in pairs_of(two, s) for text in pair[:2]}
    assert len(two.train) > 5000 and not asked & set(trained(two))
    assert np.array_equal(np.unique(two.train), two.train)
