"""Retrieval sets to evaluate on: every layout, samples of documents, positions, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import make_data, write_tsv

from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.retrieval_sets import LargeRetrievalSet, read_retrieval_sets
from distilbench.errors import InputError
from distilbench.storage.store import ArtifactStore

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from duplicates import write_searches

DOCUMENTS = {f"d{i}": f"document number {i}" for i in range(30)}
QUERIES = {"q0": "who is it", "q1": "what is it", "q2": "where is it"}
QRELS = [("q0", "d3", 1), ("q0", "d1", 2), ("q2", "d28", 1), ("q1", "d0", 0), ("q1", "d2", -1)]


def write_own(folder: Path, split: str = "dev") -> Path:
    """Our layout; q1 has no relevant document."""
    write_tsv(folder / "corpus.tsv", ["doc_id", "text"], [[*pair] for pair in DOCUMENTS.items()])
    inner = folder / "retrieval"
    write_tsv(inner / f"queries.{split}.tsv", ["query_id", "text"], [[*pair] for pair in QUERIES.items()])
    write_tsv(inner / f"qrels.{split}.tsv", ["query_id", "doc_id", "score"], [[*row] for row in QRELS])
    return folder


def write_beir(folder: Path, split: str = "test") -> Path:
    """The same set in BEIR's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        records = [{"_id": key, "title": "", "text": text, "metadata": {}} for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_tsv(folder / "qrels" / f"{split}.tsv", ["query-id", "corpus-id", "score"], [[*row] for row in QRELS])
    return folder


def add(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read(root: Path, documents: int | None = None) -> list[LargeRetrievalSet]:
    return read_retrieval_sets(root, ArtifactStore(root.with_name(root.name + "-store")), documents, [], [])


def answers(task: LargeRetrievalSet) -> dict[str, dict[str, float]]:
    """By query, the texts of its relevant documents and their grades."""
    return {
        query: dict(zip((task.documents[row] for row in rows.tolist()), grades.tolist(), strict=True))
        for query, rows, grades in zip(task.queries, task.relevant, task.grades, strict=True)
    }


EXPECTED = {
    "who is it": {"document number 3": 1.0, "document number 1": 2.0},
    "where is it": {"document number 28": 1.0},
}


def test_our_layout(tmp_path: Path) -> None:
    write_own(tmp_path / "data" / "quora")
    found, missing = list[str](), list[str]()
    [task] = read_retrieval_sets(tmp_path / "data", ArtifactStore(tmp_path / "store"), None, found, missing)
    assert (task.name, task.split) == ("quora", "dev")
    assert list(task.documents) == [*DOCUMENTS.values()]
    assert answers(task) == EXPECTED and [rows.tolist() for rows in task.relevant] == [[3, 1], [28]]
    assert found == ["quora retrieval, dev: 2 queries, 30 of 30 documents"]
    assert missing == ["quora retrieval, test (queries and qrels)"]


def test_documents_that_are_marked_as_queries_are_not_indexed(tmp_path: Path) -> None:
    folder = write_own(tmp_path / "data" / "quora")
    rows: list[list[object]] = [[key, text, 0] for key, text in DOCUMENTS.items()]
    rows.insert(2, ["b7", "who is it", 1])
    write_tsv(folder / "corpus.tsv", ["doc_id", "text", "is_beir_query"], rows)
    [task] = read(tmp_path / "data")
    assert list(task.documents) == [*DOCUMENTS.values()] and answers(task) == EXPECTED
    add(folder / "corpus.tsv", "d30\ttext\tyes")
    with pytest.raises(InputError, match=r"corpus\.tsv, row 33: column 'is_beir_query' is 'yes'; expected 0 or 1"):
        read(tmp_path / "data")


def test_beir_layout_has_titles_and_grades(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "data" / "scifact")
    records: list[dict[str, Any]] = [
        {"_id": "1", "title": " On frogs ", "text": "They jump.\nHigh."},
        {"_id": "2", "title": "Only a title", "text": ""},
        {"_id": "3", "title": None, "text": "No title"},
        {"_id": "4", "text": "Nor here: “é”"},
    ]
    lines = [json.dumps(records[0]), *(json.dumps(record, ensure_ascii=False) for record in records[1:])]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    header = ["query-id", "corpus-id", "score"]
    write_tsv(folder / "qrels" / "test.tsv", header, [["q1", "4", 1], ["q1", "2", 3], ["q1", "1", 0]])
    write_tsv(folder / "qrels" / "dev.tsv", header, [["q0", "1", 2]])
    write_tsv(folder / "qrels" / "train.tsv", header, [["q2", "nowhere", 2]])  # is not read
    found = list[str]()
    dev, test = read_retrieval_sets(tmp_path / "data", ArtifactStore(tmp_path / "store"), None, found, [])
    assert list(test.documents) == ["On frogs They jump.\nHigh.", "Only a title", "No title", "Nor here: “é”"]
    assert (dev.split, test.split) == ("dev", "test")
    assert answers(dev) == {"who is it": {"On frogs They jump.\nHigh.": 2.0}}
    assert answers(test) == {"what is it": {"Nor here: “é”": 1.0, "Only a title": 3.0}}
    # The queries of a split are those with judgements: the others belong to another split.
    assert found[1] == "scifact retrieval, test: 1 queries, 4 of 4 documents"
    assert dev.documents.paths == test.documents.paths and dev.digest() != test.digest()


def test_the_folder_itself_may_be_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_beir(tmp_path / "scifact")
    [task] = read(tmp_path / "scifact")
    assert (task.name, answers(task)) == ("scifact", EXPECTED)
    monkeypatch.chdir(tmp_path / "scifact")
    [task] = read_retrieval_sets(Path("."), ArtifactStore(tmp_path / "store"), None, [], [])
    assert task.name == "scifact"


def test_duplicate_pairs(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["how to fly", "how does one fly", 1, "dev"],
        ["how to swim", "what is water", 0, "dev"],
        ["how to fly", "how can i fly", 1, "dev"],
        ["may i fly", "how does one fly", 1, "dev"],
        ["how to fly", "how does one fly", 1, "dev"],
        ["how to train", "how do i train", 1, "train"],
        ["is it a test", "is this a test", 1, "test"],
        ["how to fly", "is this a test", 0, "test"],
    ]
    path = write_tsv(tmp_path / "pairs.tsv", ["question1", "question2", "is_duplicate", "split"], rows)
    write_searches(path, tmp_path / "data" / "quora-duplicates")
    dev, test = read(tmp_path / "data")
    assert {(task.name, task.split) for task in (dev, test)} == {
        ("quora-duplicates", "dev"),
        ("quora-duplicates", "test"),
    }
    assert list(dev.documents) == ["how does one fly", "what is water", "how can i fly"]
    assert answers(dev) == {
        "how to fly": {"how does one fly": 1.0, "how can i fly": 1.0},
        "may i fly": {"how does one fly": 1.0},
    }
    assert list(test.documents) == ["is this a test"] and answers(test) == {"is it a test": {"is this a test": 1.0}}


@pytest.mark.parametrize("write", [write_own, write_beir])
@pytest.mark.parametrize("limit", [1, 3, 7, 29, 30, 31])
def test_a_limit_keeps_relevant_documents(tmp_path: Path, write: Any, limit: int) -> None:
    write(tmp_path / "data" / "x")
    [whole], [cut] = read(tmp_path / "data"), read(tmp_path / "data", limit)
    texts = list(cut.documents)
    assert len(texts) == len(set(texts)) == min(30, max(3, limit))
    assert answers(cut) == answers(whole) == EXPECTED  # so that positions are those in the smaller file
    assert texts == [text for text in DOCUMENTS.values() if text in set(texts)]
    assert (cut.digest() == whole.digest()) == (limit >= 30)


@pytest.mark.parametrize("limit", [5, 23, 40, 60, 100])
def test_the_sample_is_that_of_a_sweep(tmp_path: Path, limit: int) -> None:
    """What is searched in a sweep and in an evaluation of the same folder, by the same limit, are the same documents."""
    make_data(tmp_path / "data")
    corpus = folder_corpus(tmp_path / "data", Limits(documents=limit))
    [theirs], [ours] = corpus.retrieval, read(tmp_path / "data", limit)
    assert {corpus.sentences[row] for row in theirs.documents} == set(ours.documents)
    assert len(theirs.documents) == len(ours.documents) == min(60, max(20, limit))
    assert [corpus.sentences[row] for row in theirs.queries] == list(ours.queries)
    for theirs_of, ours_of in zip(theirs.relevant, ours.relevant, strict=True):
        assert [corpus.sentences[theirs.documents[i]] for i in theirs_of] == [ours.documents[int(i)] for i in ours_of]


@pytest.mark.parametrize("limit", [None, 5])
def test_a_second_reading_finds_the_file_of_the_first(tmp_path: Path, limit: int | None) -> None:
    write_own(tmp_path / "data" / "x")
    [first] = read(tmp_path / "data", limit)
    [path] = first.documents.paths
    written = path.stat().st_mtime_ns, path.stat().st_ino
    [second] = read(tmp_path / "data", limit)
    assert second.documents.paths == first.documents.paths
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written
    assert answers(second) == EXPECTED and second.digest() == first.digest()
    assert all(np.array_equal(a, b) for a, b in zip(first.relevant, second.relevant, strict=True))


def test_the_digest_depends_on_everything_that_is_scored(tmp_path: Path) -> None:
    digests = [read(write_own(tmp_path / "same" / "x").parent)[0].digest()]
    changes = {
        "document": lambda folder: add(folder / "corpus.tsv", "d99\tone more"),
        "text": lambda folder: _replace(folder / "corpus.tsv", "number 5", "number five"),
        "query": lambda folder: _replace(folder / "retrieval/queries.dev.tsv", "who", "whom"),
        "grade": lambda folder: _replace(folder / "retrieval/qrels.dev.tsv", "d1\t2", "d1\t3"),
        "relevant": lambda folder: _replace(folder / "retrieval/qrels.dev.tsv", "d28", "d27"),
    }
    for name, change in changes.items():
        folder = write_own(tmp_path / name / "x")
        change(folder)
        digests.append(read(tmp_path / name)[0].digest())
    assert len(set(digests)) == len(changes) + 1
    assert read(write_own(tmp_path / "again" / "x").parent)[0].digest() == digests[0]


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


OWN = {"corpus": "corpus.tsv", "queries": "retrieval/queries.dev.tsv", "qrels": "retrieval/qrels.dev.tsv"}
BEIR = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("qrels", "q0\td77\t1", r"qrels\.dev\.tsv, row 7: document 'd77' is not in corpus\.tsv"),
        ("qrels", "q77\td1\t1", r"qrels\.dev\.tsv, row 7: query id 'q77' is not in queries\.dev\.tsv"),
        ("qrels", "q0\td1\t1", r"qrels\.dev\.tsv, row 7: query_id 'q0' with doc_id 'd1' is there already"),
        ("qrels", "q1\td9\tnan", r"qrels\.dev\.tsv, row 7: column 'score' is 'nan'; expected a number"),
        ("queries", "q1\tagain", r"queries\.dev\.tsv, row 5: query id 'q1' is there already; expected it once"),
        ("corpus", "d7\tagain", r"corpus\.tsv, row 32: id 'd7' is there already"),
        ("corpus", "d30\t", r"corpus\.tsv, row 32: column 'text' is empty; expected a sentence"),
    ],
)
def test_bad_rows_of_our_layout(tmp_path: Path, file: str, line: str, message: str, limit: int | None) -> None:
    add(write_own(tmp_path / "data" / "x") / OWN[file], line)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "data", limit)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("qrels", "q0\td77\t1", r"qrels/test\.tsv, row 7: document 'd77' is not in corpus\.jsonl"),
        ("queries", '{"_id": "q1", "text": "x"}', r"queries\.jsonl, row 4: query id 'q1' is there already"),
        ("corpus", '{"_id": "d1", "text": "x"}', r"corpus\.jsonl, row 31: id 'd1' is there already"),
        ("corpus", '{"_id": true, "text": "x"}', r"corpus\.jsonl, row 31: column '_id' is True; expected an id"),
        ("corpus", '{"_id": "d30", "title": "x"}', r"corpus\.jsonl, row 31: no column 'text'; the columns are"),
        ("corpus", '{"_id": "d30", "title": "", "text": " "}', r"corpus\.jsonl, row 31: column 'text' is empty"),
        # Half a surrogate pair: JSON allows it, UTF-8 does not.
        ("corpus", r'{"_id": "\udc00", "text": "a"}', r"corpus\.jsonl, row 31: column '_id' is not UTF-8"),
    ],
)
def test_bad_rows_of_beir(tmp_path: Path, file: str, line: str, message: str) -> None:
    add(write_beir(tmp_path / "data" / "x") / BEIR[file], line)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "data")


@pytest.mark.parametrize("rows", [[], [["q0", "d1", 0], ["q1", "d2", -1]]])
def test_no_relevant_document_at_all(tmp_path: Path, rows: list[list[object]]) -> None:
    folder = write_own(tmp_path / "data" / "x")
    write_tsv(folder / OWN["qrels"], ["query_id", "doc_id", "score"], rows)
    with pytest.raises(
        InputError, match=r"queries\.dev\.tsv: none of its queries has a relevant document in qrels\.dev"
    ):
        read(tmp_path / "data")


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    own, beir = write_own(tmp_path / "data" / "own"), write_beir(tmp_path / "data" / "beir")
    (own / OWN["queries"]).unlink()
    (beir / BEIR["queries"]).unlink()
    missing = list[str]()
    assert read_retrieval_sets(tmp_path / "data", ArtifactStore(tmp_path / "store"), None, [], missing) == []
    assert missing[:4] == [
        f"{name} retrieval, {s} (queries and qrels)" for name in ("beir", "own") for s in ("dev", "test")
    ]
    assert missing[4].startswith("a retrieval set (NAME/corpus.tsv with retrieval/, or BEIR's NAME/corpus.jsonl")
