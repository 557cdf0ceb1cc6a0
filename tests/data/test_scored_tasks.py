"""Classification sets and pair tasks that the rows of a run are scored on too: they come after its own sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from samples import make_data, write_tsv

from distilbench.data.corpus import Corpus, Rows
from distilbench.data.evaluation_sets import with_scored_tasks
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.training_text import asked_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder whose MR, TREC and MRPC have sentences that a run would train on."""
    root = make_data(tmp_path / "small")
    text = (root / "unlabeled" / "sentences.tsv").read_text().splitlines()[1:]
    question = (root / "quora" / "pairs.tsv").read_text().splitlines()[1].split("\t")[0]
    triplet = (root / "nli" / "triplets.tsv").read_text().splitlines()[3].split("\t")[2]
    mr = [text[0], question, triplet, *(f"mr {i}" for i in range(21))]
    write_tsv(root / "sc" / "MR.tsv", ["text", "label"], [[t, i % 2] for i, t in enumerate(mr)])
    for split, known in (("train", text[1]), ("test", text[2])):
        rows = [[t, i % 2] for i, t in enumerate([known, *(f"trec {split} {i}" for i in range(23))])]
        write_tsv(root / "sc" / f"TREC.{split}.tsv", ["text", "label"], rows)
    for split, known in (("train", text[3]), ("dev", text[4]), ("test", text[5])):
        rows = [[known, "a"], *([f"{split} {i}", f"{split} other {i}"] for i in range(9))]
        write_tsv(
            root / "glue" / f"MRPC.{split}.tsv",
            ["sentence1", "sentence2", "label"],
            [[*pair, i % 2] for i, pair in enumerate(rows)],
        )
    return root


def read(folder: Path) -> Corpus:
    return folder_corpus(folder, Limits(), Requirements(triplets=True))


def texts(corpus: Corpus, rows: Rows) -> set[str]:
    return {corpus.sentences[row] for row in np.ravel(rows)}


def test_the_runs_own_sentences_keep_their_rows(folder: Path) -> None:
    before = read(folder)
    assert with_scored_tasks(before, folder, ("sts", "retrieval"), None) is before
    after = with_scored_tasks(before, folder, ("sts", "retrieval", "classification", "pairs"), None)
    assert after.sentences[: len(before.sentences)] == before.sentences and len(after.sentences) > len(before.sentences)
    assert [t.name for t in after.classification] == ["MR", "TREC"] and [t.name for t in after.probed] == ["MRPC"]
    assert after.pair_tasks == before.pair_tasks == ()  # none to learn from
    assert after.fingerprint != before.fingerprint
    assert "MR: 24" in "\n".join(after.found) and "sc/CR.tsv" in "\n".join(after.missing)


def test_nothing_that_they_ask_about_is_trained_on(folder: Path) -> None:
    before = read(folder)
    after = with_scored_tasks(before, folder, ("sts", "classification", "pairs"), None)
    asked = texts(after, np.array(sorted(asked_rows(after))))
    text = (folder / "unlabeled" / "sentences.tsv").read_text().splitlines()[1:]
    assert {text[0], text[2], text[4], text[5]} <= asked and not {text[1], text[3]} & asked
    for rows, own in ((before.train, after.train), (before.pairs_P2, after.pairs_P2)):
        assert texts(before, rows) & asked and not texts(after, own) & asked
    assert {text[1], text[3]} <= texts(after, after.train)  # a training set's
    assert (len(before.pairs_P2), len(before.triplets_T3)) == (len(after.pairs_P2) + 1, len(after.triplets_T3) + 1)
    only = with_scored_tasks(before, folder, ("sts", "pairs"), 4)
    assert only.classification == () and text[0] in texts(only, only.train)
    assert len(only.probed[0].splits["train"].target_P) == 4
