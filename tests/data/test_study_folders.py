"""The data folders of the proof (benchmarks/folders.py): nobody trains on what is held out for a user."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from distilbench.data.folder import Limits, folder_corpus
from distilbench.selection import Selection

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from folders import captions, quora, read_table, stackexchange, write_study, write_user


def text(*columns: str) -> str:
    return "\t".join(columns)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Real data in small: 12 duplicates on each of two sites, 24 photographs of three captions, 30 duplicate questions."""
    root = tmp_path / "source"

    def write(name: str, *rows: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
            file.write("\n".join(rows) + "\n")

    for site in ("askubuntu", "meta_stackexchange"):
        rows = [text(str(int(n < 12)), f"{site} {n} one", f"{site} {n} two") for n in range(20)]
        write(f"cqadupstack/{site}.dup_pairs.tsv", "is_duplicate\ttitle1\ttitle2", *rows)
    images = [(split, n) for split, count in (("train", 12), ("val", 6), ("test_2016", 6)) for n in range(count)]
    rows = [text(f"{split}-{n}", str(c), f"{split} {n} caption {c}") for split, n in images for c in (1, 2, 3)]
    write("multi30k/captions.tsv.gz", "image\tcaption_no\ttext", *rows)
    questions = [("train", n) for n in range(18)] + [("dev", n) for n in range(12)]
    rows = [text(str(n), str(n), f"{s} {n} asks", f"{s} {n} asks too", "1", s) for s, n in questions]
    # A training pair that asks what is held out.
    rows += [text("0", "0", f"dev {n} asks", f"train {n} asks", "0", "train") for n in range(12)]
    header = "doc_id1\tdoc_id2\tquestion1\tquestion2\tis_duplicate\tsplit"
    write("quora/pairs.tsv.gz", header, *rows)
    write("quora/corpus.tsv.gz", "doc_id\ttext", *(text(str(n), f"train {n} asks") for n in range(18)))
    write("quora/retrieval/queries.dev.tsv", "query_id\ttext", *(text(f"q{n}", f"what {n}") for n in range(8)))
    write("quora/retrieval/qrels.dev.tsv", "query_id\tdoc_id\tscore", *(text(f"q{n}", str(n), "1") for n in range(8)))
    for split in ("train", "dev", "test"):
        write(
            f"retrieval_extra/trecqa.{split}.tsv", "question\tlabel\tsentence", text(f"{split}?", "1", f"{split} yes")
        )
    for name in ("sts/STSB.dev.tsv", "sts_senteval_tok/STSB.dev.tsv", "sc/MR.tsv", "nli/triplets.tsv"):
        write(name, "sentence1\tsentence2\tscore", "a\tb\t1", "c\td\t2")
    captioned = [f"{split} {n} caption 1" for split, n in images]
    write(
        "unlabeled/sentences.tsv.gz", "text\tsource", *(text(line, "multi30k") for line in (*captioned, "plain text"))
    )
    return root


@pytest.mark.parametrize("make", [stackexchange, captions, quora])
def test_a_user_trains_on_nothing_that_is_held_out(source: Path, tmp_path: Path, make) -> None:
    user = make(source)
    assert user.dev and user.test and not set(user.dev) & set(user.test)
    out = tmp_path / "user"
    write_user(out, user)
    texts = {row["text"] for row in read_table(out / "unlabeled" / "text.tsv")}
    pairs = read_table(out / "pairs.tsv")
    trained = {row[side] for row in pairs if row["split"] == "train" for side in ("question1", "question2")}
    held_out = {row[side] for row in pairs if row["split"] != "train" for side in ("question1", "question2")}
    assert held_out == user.held_out and texts == trained and not held_out & texts
    corpus = folder_corpus(out, Limits(), select=Selection.parse("retrieval"))
    assert {(s.split, len(s.queries)) for s in corpus.retrieval} == {("dev", len(user.dev)), ("test", len(user.test))}
    assert held_out.isdisjoint(corpus.sentences[int(row)] for row in (*corpus.train, *corpus.pairs_P2.ravel()))


def test_the_study_trains_on_nothing_that_is_held_out_for_a_user(source: Path, tmp_path: Path) -> None:
    held_out = captions(source).held_out | quora(source).held_out
    out = tmp_path / "study"
    for _ in range(2):  # again: the same
        write_study(source, out, held_out)
    texts = {row["text"] for row in read_table(out / "unlabeled" / "sentences.tsv")}
    assert "plain text" in texts and "train 3 caption 1" in texts and not texts & held_out
    trained = [row for row in read_table(out / "quora" / "pairs.tsv") if row["split"] == "train"]
    assert trained and not {row[side] for row in trained for side in ("question1", "question2")} & held_out
    splits = [read_table(out / "quora" / "retrieval" / f"queries.{split}.tsv") for split in ("dev", "test")]
    assert [len(rows) for rows in splits] == [4, 4]
    assert {row["query_id"] for rows in splits for row in rows} == {f"q{n}" for n in range(8)}
    assert (out / "trecqa" / "qrels" / "test.tsv").exists() and (out / "sts" / "STSB.dev.tsv").is_symlink()
