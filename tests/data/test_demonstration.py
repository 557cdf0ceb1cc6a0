"""The demonstration's data folder: what is in it, that its splits share no text, and that its sources are named."""

from __future__ import annotations

import csv
import gzip
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from distilbench.choices import EVERY_TASK
from distilbench.data.about import DEMONSTRATION, about
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("DISTILBENCH_DATA", ROOT.parent / "shared" / "data"))
NO_TEXT = {"score", "label", "gold_label", "is_duplicate", "source", "doc_id", "query_id"}
FILES = sorted(path.relative_to(DEMONSTRATION).as_posix() for path in DEMONSTRATION.rglob("*.gz"))


def split_of(file: str) -> str:
    """The split that a file's name says; the others are trained on."""
    found = re.search(r"\.(train|dev|test)\.tsv", file)
    return found[1] if found else "train"


def texts(file: str) -> set[str]:
    with gzip.open(DEMONSTRATION / file, "rt", encoding="utf-8", newline="\n") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return {" ".join(row[column].casefold().split()) for row in rows for column in row.keys() - NO_TEXT}


def test_train_dev_and_test_share_no_text() -> None:
    of = defaultdict[str, set[str]](set)
    for file in FILES:
        of[split_of(file)] |= texts(file)
    assert min(map(len, of.values())) > 1500 and set(of) == {"train", "dev", "test"}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert of[one] & of[other] == set()


@pytest.mark.parametrize("file", FILES)
def test_every_file_has_its_source(file: str) -> None:
    told = (DEMONSTRATION / "SOURCES.md").read_text()
    named = [
        re.escape(name).replace(r"\*", ".*").replace("SPLIT", "(train|dev|test)")
        for name in re.findall("`(.+?)`", told)
    ]
    folder, _, base = file.removesuffix(".gz").rpartition("/")
    assert any(re.fullmatch(f"({folder}/)?{name}", f"{folder}/{base}") or name == f"{folder}/" for name in named)
    assert "CC BY-SA 4.0" in told


def test_there_is_something_for_every_method() -> None:
    corpus = folder_corpus(DEMONSTRATION, Limits(), Requirements(triplets=True, pair_tasks=("SNLI",)))
    assert len(corpus.pairs_P2) > 2000 and len(corpus.triplets_T3) > 1000 and len(corpus.text_queries) > 2000
    assert {split: len(s.target_P) for split, s in corpus.pair_tasks[0].splits.items()} == {
        "train": 1800,
        "dev": 600,
        "test": 900,
    }
    sets = [(s.name, s.split, len(s.queries), len(s.documents)) for s in corpus.retrieval]
    assert sets == [("SQuAD", "dev", 500, 295), ("SQuAD", "test", 600, 345)]
    assert str(about(DEMONSTRATION).selection) == "retrieval"


def test_each_kind_of_set_is_there() -> None:
    data = evaluation_corpus(DEMONSTRATION, EVERY_TASK, Limits())
    assert [(s.name, s.split) for s in data.sts] == [("SNLI", "dev"), ("SNLI", "test")]
    [topics] = data.classification
    assert (topics.name, len(topics.classes)) == ("SQuAD-article", 10)
    assert [task.name for task in data.probed] == ["SNLI"] and len(data.retrieval) == 2


@pytest.mark.skipif(
    not (DATA / "retrieval" / "squad").is_dir(), reason="no real data: set DISTILBENCH_DATA to its folder"
)
def test_the_folder_can_be_made_again(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "demonstration_data.py")]
    subprocess.run([*tool, str(DATA), str(tmp_path)], check=True)
    made = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.gz"))
    assert made == FILES
    for file in FILES:
        assert gzip.decompress((tmp_path / file).read_bytes()) == gzip.decompress((DEMONSTRATION / file).read_bytes())
