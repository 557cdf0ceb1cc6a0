"""What methods need is added behind a corpus; where they need nothing more, the corpus is what it always was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import demonstration

from distilbench.data.about import DEMONSTRATION
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError


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


def test_the_demonstrations_fingerprint() -> None:
    # The key of everybody's cached embeddings and runs, and the rows that seeds draw from.
    whole = folder_corpus(DEMONSTRATION, Limits())
    assert whole.fingerprint == "efa58aa7d31986101d8db1e50fbf92ebd84f86cea75e7f8302495a5396a187de"
    assert whole.sentences_fingerprint == "f8336f6633dc979e9a09e111391d0eafb762d3e872437e680b1fa8d7bb090261"


def test_what_is_not_needed_is_not_even_read(folder: Path) -> None:
    before = folder_corpus(folder, SMALL)
    for name in ("nli/triplets.tsv", "glue/MRPC.train.tsv", "nli/snli.dev.tsv", "sts/STSB.train.tsv"):
        write(folder / name, "not\ta\ttable", "of the layout")
    after = folder_corpus(folder, SMALL)
    assert (after.fingerprint, after.found, after.missing) == (before.fingerprint, before.found, before.missing)
    assert len(after.triplets_T3) == len(after.pair_tasks) == 0


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
    # "dev 3", the pair with query "asked 5" and that side of it, and now "x".
    assert any("4 left out" in line for line in with_task.found)


@pytest.mark.parametrize(
    ("names", "bad"),
    [
        (("MRPC2",), "MRPC2"),  # no such task
        (("mrpc",), "mrpc"),  # names are as their papers write them
        (("DUP",), "DUP"),  # what another folder's about.json has
        (("STSB", ""), ""),  # the second of two
    ],
)
def test_a_task_that_a_folder_cannot_have(folder: Path, names: tuple[str, ...], bad: str) -> None:
    message = rf"pair task '{bad}' is not known here; expected one of STSB, SICK, MRPC, QQP, RTE, QNLI, MNLI, SNLI$"
    with pytest.raises(InputError, match=message):
        folder_corpus(folder, SMALL, Requirements(pair_tasks=names))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("{", "about.json: : Invalid JSON"),
        ('{"demo": true}', "about.json: demo: Extra inputs"),
        ('{"show": "perhaps"}', r"about.json: show: .* valid boolean.*\(got 'perhaps'\)"),
        ('{"pair_tasks": {"X": {"kind": "many"}}}', r"about.json: pair_tasks.X.kind: .*'regression'"),
        ('{"select": "mrr"}', r"about.json: .*'mrr' is no measure; expected one of sts"),
    ],
)
def test_what_a_folder_cannot_say_of_itself(folder: Path, content: str, wanted: str) -> None:
    (folder / "about.json").write_text(content)
    with pytest.raises(InputError, match=wanted):
        folder_corpus(folder, SMALL)


def test_a_folder_with_a_pair_task_of_its_own(folder: Path) -> None:
    task = {"kind": "binary", "columns": ["a", "b", "same"], "files": "own/X.{}.tsv", "classes": ["no", "yes"]}
    (folder / "about.json").write_text(json.dumps({"demonstration": True, "pair_tasks": {"X": task}}))
    for split in ("train", "dev"):
        write(folder / f"own/X.{split}.tsv", "a\tb\tsame", f"{split} 1\t{split} 2\tyes", f"{split} 3\t{split} 4\tno")
    corpus = folder_corpus(folder, SMALL, Requirements(pair_tasks=("X",)))
    [found] = corpus.pair_tasks
    assert (found.name, found.classes, found.splits["dev"].target_P.tolist()) == ("X", ("no", "yes"), [1, 0])
    assert corpus.demonstration and corpus.missing == ()


def test_a_task_asked_for_twice_is_there_once(folder: Path) -> None:
    # Two methods of one sweep may need the same.
    (task,) = folder_corpus(folder, SMALL, Requirements(pair_tasks=("QQP", "QQP"))).pair_tasks
    assert task.name == "QQP"
    tasks = demonstration(10, Requirements(pair_tasks=("SNLI", "SNLI"))).pair_tasks
    assert [t.name for t in tasks] == ["SNLI"]
