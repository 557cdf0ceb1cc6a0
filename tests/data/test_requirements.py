"""What methods need is added behind a corpus; where they need nothing more, the corpus is what it always was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distilbench.data.builtin import builtin_corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError

EVERYTHING = Requirements(triplets=True, pair_tasks=("DEMO-SIM", "DEMO-DUP", "DEMO-NLI"))


def write(path: Path, *rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every part of the layout, with more of each than `SMALL` takes; its fingerprint must not change."""
    sts = [f"dev {i}\tof dev {i}\t{i % 6}" for i in range(8)]
    write(tmp_path / "sts/STSB.dev.tsv", "sentence1\tsentence2\tscore", *sts)
    write(tmp_path / "sts/STS12.OnWN.tsv", "sentence1\tsentence2\tscore", "one\ttwo\t1.5", "two\tthree\t4")
    pairs = [f"asked {i}\tasked otherwise {i}\t{int(i != 3)}\ttrain" for i in range(12)]
    write(
        tmp_path / "quora/pairs.tsv",
        "question1\tquestion2\tis_duplicate\tsplit",
        *pairs,
        "x\ty\t1\tdev",
        "v\tw\t0\tdev",
    )
    documents = [f"{i}\tdocument {i}\t{int(i == 7)}" for i in range(14)]
    write(tmp_path / "quora/corpus.tsv", "doc_id\ttext\tis_beir_query", *documents)
    write(tmp_path / "quora/retrieval/queries.dev.tsv", "query_id\ttext", "a\tasked 5", "b\tquery b")
    write(tmp_path / "quora/retrieval/qrels.dev.tsv", "query_id\tdoc_id\tscore", "a\t3\t1", "b\t9\t1", "b\t2\t1")
    write(tmp_path / "cqadupstack/unix.dup_pairs.tsv", "is_duplicate\ttitle1\ttitle2", "1\tt 1\tt 2", "0\tt 3\tt 4")
    write(tmp_path / "unlabeled/text.tsv", "text", *(f"sentence {i}" for i in range(20)), "dev 3", "x")
    return tmp_path


SMALL = Limits(pairs=5, sentences=16, documents=6)


def test_fingerprints_of_before_there_were_needs(folder: Path) -> None:
    # Recorded from the code without `Requirements`: they are the keys of everybody's cached embeddings and runs.
    builtin = builtin_corpus(200)
    assert builtin.fingerprint == "ebf3424840d31b00485213cf31d3dba569523db0759ba0f6ad8f9ba6e661087c"
    assert builtin.sentences_fingerprint == "7cdc8c8692212636c0125bbd8a1ee17d06e8ede704278541f3ad8b498d6d5b40"
    assert builtin_corpus(200, needs=Requirements()).fingerprint == builtin.fingerprint
    small, whole = folder_corpus(folder, SMALL), folder_corpus(folder, Limits())
    assert small.fingerprint == "99d8f07b07c6ca64e0c2cb0124486a3df88208041c827d88e9f645bf8cf5703d"
    assert small.sentences_fingerprint == "e2b7aedf91ffe86e84a4643f87d9aa10198321ec05cd39384a36a590f55d3443"
    assert whole.fingerprint == "c5a878e492ef92a8b1f0458ce4010a6611b694d066202eda3612f1e34d49f13b"
    assert folder_corpus(folder, SMALL, Requirements()).fingerprint == small.fingerprint


def test_what_is_not_needed_is_not_even_read(folder: Path) -> None:
    before = folder_corpus(folder, SMALL)
    for name in ("nli/triplets.tsv", "glue/MRPC.train.tsv", "nli/snli.dev.tsv", "sts/STSB.train.tsv"):
        write(folder / name, "not\ta\ttable", "of the layout")
    after = folder_corpus(folder, SMALL)
    assert (after.fingerprint, after.found, after.missing) == (before.fingerprint, before.found, before.missing)
    assert len(after.triplets_T3) == len(after.pair_tasks) == 0


def test_what_is_needed_comes_behind_the_built_in_corpus() -> None:
    without, with_all = builtin_corpus(50), builtin_corpus(50, needs=EVERYTHING)
    assert with_all.sentences[: len(without.sentences)] == without.sentences
    assert len(with_all.sentences) > len(without.sentences) + 5000
    assert np.array_equal(with_all.pairs_P2, without.pairs_P2)
    assert set(without.train.tolist()) < set(with_all.train.tolist())
    assert with_all.fingerprint != without.fingerprint
    assert with_all.found[: len(without.found)] == without.found


@pytest.mark.parametrize("limits", [SMALL, Limits()], ids=["sampled", "whole"])  # a sample must not be drawn anew
def test_what_is_needed_comes_behind_a_folders_corpus(folder: Path, limits: Limits) -> None:
    write(folder / "nli/triplets.tsv", "anchor\tpositive\tnegative", "new a\tnew p\tnew n", "sentence 1\tnew q\tx")
    without = folder_corpus(folder, limits)
    with_all = folder_corpus(folder, limits, Requirements(triplets=True, pair_tasks=("QQP",)))
    assert with_all.sentences[: len(without.sentences)] == without.sentences
    assert set(with_all.sentences[len(without.sentences) :]) >= {"y", "v", "w", "new a", "new p", "new n"}
    for before, after in zip((*without.sts, *without.retrieval), (*with_all.sts, *with_all.retrieval), strict=True):
        assert (before.name, before.split) == (after.name, after.split)
    # The second triplet asks about "x", as the dev set of QQP does.
    assert [[with_all.sentences[i] for i in t] for t in with_all.triplets_T3] == [["new a", "new p", "new n"]]


def test_a_sentence_that_a_needed_task_asks_about_is_not_trained_on(folder: Path) -> None:
    without = folder_corpus(folder, Limits())
    with_task = folder_corpus(folder, Limits(), Requirements(pair_tasks=("QQP",)))
    trained = {without.sentences[i] for i in without.train}
    assert "x" in trained  # an unlabelled sentence of the folder, and one of the dev pairs of QQP
    # Pair 3 trains QQP only, being no duplicate; in pair 5 one side is a query, the other is as good as any sentence.
    added = {"asked 3", "asked otherwise 3", "asked otherwise 5"}
    assert {with_task.sentences[i] for i in with_task.train} == trained - {"x"} | added
    assert any("3 left out" in line for line in with_task.found)  # "dev 3", the pair with query "asked 5", and now "x"


@pytest.mark.parametrize(
    ("names", "bad"),
    [
        (("MRPC2",), "MRPC2"),  # no such task
        (("mrpc",), "mrpc"),  # names are as their papers write them
        (("DEMO-NLI",), "DEMO-NLI"),  # the built-in corpus's tasks are not a folder's
        (("STSB", ""), ""),  # the second of two
    ],
)
def test_a_task_that_a_folder_cannot_have(folder: Path, names: tuple[str, ...], bad: str) -> None:
    message = rf"pair task '{bad}' is not known here; expected one of STSB, SICK, MRPC, QQP, RTE, QNLI, MNLI, SNLI$"
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, SMALL, Requirements(pair_tasks=names))


@pytest.mark.parametrize("name", ["MRPC", "demo-nli"])  # a folder's task; the right letters in the wrong case
def test_a_task_that_the_built_in_corpus_does_not_have(name: str) -> None:
    message = rf"pair task '{name}' is not known here; expected one of DEMO-SIM, DEMO-DUP, DEMO-NLI$"
    with pytest.raises(InputError, match=message):
        builtin_corpus(10, needs=Requirements(pair_tasks=(name,)))


def test_a_similar_pair_with_a_sentence_that_a_needed_task_asks_about_is_not_trained_on(folder: Path) -> None:
    write(folder / "cqadupstack/unix.dup_pairs.tsv", "is_duplicate\ttitle1\ttitle2", "1\tt 1\tt 2", "1\tt 5\tw")
    counts = [
        len(folder_corpus(folder, Limits(), needs).pairs_P2)
        for needs in (Requirements(), Requirements(pair_tasks=("QQP",)))
    ]
    assert counts == [12, 11]


def test_a_task_asked_for_twice_is_there_once(folder: Path) -> None:
    # Two methods of one sweep may need the same.
    (task,) = folder_corpus(folder, SMALL, Requirements(pair_tasks=("QQP", "QQP"))).pair_tasks
    assert task.name == "QQP"
    tasks = builtin_corpus(10, needs=Requirements(pair_tasks=("DEMO-SIM", "DEMO-DUP", "DEMO-SIM"))).pair_tasks
    assert [t.name for t in tasks] == ["DEMO-SIM", "DEMO-DUP"]
