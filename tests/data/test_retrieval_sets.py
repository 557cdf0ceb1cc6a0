"""Retrieval sets to evaluate on: every layout, samples of documents, positions, and what is refused."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from samples import write_tsv

from distilbench.data.corpus import CorpusBuilder, RetrievalSet
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.retrieval_sets import read_searches
from distilbench.errors import InputError

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


class Read(NamedTuple):
    """A set with the texts of its documents."""

    task: RetrievalSet
    documents: list[str]
    answers: dict[str, dict[str, float]]
    """By query, the texts of its relevant documents and their grades."""


def read(root: Path, limit: int | None = None, builder: CorpusBuilder | None = None) -> list[Read]:
    builder = builder or CorpusBuilder("c")
    asked = read_searches(root, limit, builder)
    corpus, sets = builder.build(), list[Read]()
    for task in corpus.retrieval:
        documents, queries = ([corpus.sentences[row] for row in rows] for rows in (task.documents, task.queries))
        assert set(queries) <= asked
        grades = task.grades or [np.ones(len(rows)) for rows in task.relevant]
        of_query = [
            {documents[i]: g for i, g in zip(*pair, strict=True)} for pair in zip(task.relevant, grades, strict=True)
        ]
        sets.append(Read(task, documents, dict(zip(queries, of_query, strict=True))))
    return sets


EXPECTED = {
    "who is it": {"document number 3": 1.0, "document number 1": 2.0},
    "where is it": {"document number 28": 1.0},
}


def test_our_layout(tmp_path: Path) -> None:
    write_own(tmp_path / "data" / "quora")
    builder = CorpusBuilder("c")
    [dev] = read(tmp_path / "data", builder=builder)
    assert (dev.task.name, dev.task.split) == ("quora", "dev")
    assert sorted(dev.documents) == sorted(DOCUMENTS.values()) and dev.answers == EXPECTED
    assert builder.found == ["quora retrieval, dev: 2 queries, 30 of 30 documents"]
    assert builder.missing == ["quora retrieval, test (queries and qrels)"]


def test_documents_that_are_marked_as_queries_are_not_indexed(tmp_path: Path) -> None:
    folder = write_own(tmp_path / "data" / "quora")
    rows: list[list[object]] = [[key, text, 0] for key, text in DOCUMENTS.items()]
    rows.insert(2, ["b7", "who is it", 1])
    write_tsv(folder / "corpus.tsv", ["doc_id", "text", "is_beir_query"], rows)
    [dev] = read(tmp_path / "data")
    assert sorted(dev.documents) == sorted(DOCUMENTS.values()) and dev.answers == EXPECTED
    add(folder / "corpus.tsv", "d30\ttext\tyes")
    with pytest.raises(InputError, match=r"corpus\.tsv, row 33: column 'is_beir_query' is 'yes'; expected 0 or 1"):
        read(tmp_path / "data")


@pytest.mark.parametrize("answers_first", [True, False])
def test_the_order_of_a_file_changes_nothing(tmp_path: Path, answers_first: bool) -> None:
    folder = write_own(tmp_path / "data" / "x")
    [as_written] = read(tmp_path / "data")
    lines = sorted(DOCUMENTS.items(), key=lambda pair: (pair[0] in {"d3", "d1", "d28"}) != answers_first)
    write_tsv(folder / "corpus.tsv", ["doc_id", "text"], [[*pair] for pair in lines])
    [read_again] = read(tmp_path / "data")
    assert read_again.documents == as_written.documents
    assert all(map(np.array_equal, read_again.task.relevant, as_written.task.relevant))
    assert read_again.documents not in ([*DOCUMENTS.values()], [text for _, text in lines])


@pytest.mark.parametrize("limit", [None, 8])
@pytest.mark.parametrize("write", [write_own, write_beir])
def test_shuffled_files_are_the_same_corpus(tmp_path: Path, write: Any, limit: int | None) -> None:
    folder, corpora = write(tmp_path / "data" / "x", "test"), []
    for seed in (0, 1, 2):
        for path in (path for path in folder.rglob("*.*") if seed and path.is_file()):
            header, rows = [], path.read_text().splitlines()
            if path.suffix == ".tsv":
                header, rows = rows[:1], rows[1:]
            random.Random(seed).shuffle(rows)
            path.write_text("\n".join([*header, *rows]) + "\n\n")  # a blank line at the end is no row
        corpora.append(folder_corpus(tmp_path / "data", Limits(documents=limit)))
    assert corpora[0].fingerprint == corpora[1].fingerprint == corpora[2].fingerprint


def test_a_title_does_not_hide_that_a_document_is_the_query(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "data" / "x")
    add(folder / "corpus.jsonl", '{"_id": "q0", "title": "A debate", "text": "who is it"}')
    add(folder / "corpus.jsonl", '{"_id": "q2", "title": "", "text": "but where is it"}')
    add(folder / "corpus.jsonl", '{"_id": "q1", "text": null}')  # as good as no text
    builder = CorpusBuilder("c")
    [found] = read(tmp_path / "data", builder=builder)
    assert found.task.own_Q is not None and found.documents[found.task.own_Q[0]] == "A debate who is it"
    assert found.task.own_Q[1] == -1 and "1 documents without a text are left out" in builder.found[0]


def test_files_of_another_layout_are_told(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "data" / "x")
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "test.jsonl")
    with pytest.raises(InputError, match=r"x/qrels/test.jsonl, x/queries.jsonl: not read as a retrieval set"):
        evaluation_corpus(tmp_path / "data", ["retrieval"], Limits())


@pytest.mark.parametrize("write", [write_own, write_beir])
def test_a_query_that_is_a_document_does_not_find_itself(tmp_path: Path, write: Any) -> None:
    folder = write(tmp_path / "data" / "x", "test")
    corpus = next(folder.glob("corpus.*"))
    for name, text in (("q0", "who is it"), ("q2", "another text")):  # q2 is another document of the query's id
        line = f"{name}\t{text}" if write is write_own else json.dumps({"_id": name, "text": text})
        add(corpus, line)
    add(
        next(folder.rglob("*test.tsv")) if write is write_beir else folder / "retrieval" / "qrels.test.tsv", "q0\tq0\t1"
    )
    builder = CorpusBuilder("c")
    [found] = read(tmp_path / "data", builder=builder)
    assert found.answers == EXPECTED and found.task.own_Q is not None  # the judgement of itself is left out
    first, second = found.task.own_Q.tolist()
    assert found.documents[first] == "who is it" and second == -1 and "another text" in found.documents
    assert builder.found == [
        "x retrieval, test: 2 queries, 32 of 32 documents; 1 queries are documents too, and do not find themselves"
    ]


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
    builder = CorpusBuilder("c")
    dev, test = read(tmp_path / "data", builder=builder)
    assert sorted(test.documents) == ["No title", "Nor here: “é”", "On frogs They jump.\nHigh.", "Only a title"]
    assert (dev.task.split, test.task.split) == ("dev", "test")
    assert dev.answers == {"who is it": {"On frogs They jump.\nHigh.": 2.0}}
    assert test.answers == {"what is it": {"Nor here: “é”": 1.0, "Only a title": 3.0}}
    # The queries of a split are those with judgements: the others belong to another split.
    assert builder.found[1] == "scifact retrieval, test: 1 queries, 4 of 4 documents"
    assert dev.documents == test.documents


def test_the_folder_itself_may_be_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_beir(tmp_path / "scifact")
    [test] = read(tmp_path / "scifact")
    assert (test.task.name, test.answers) == ("scifact", EXPECTED)
    monkeypatch.chdir(tmp_path / "scifact")
    [test] = read(Path("."))
    assert test.task.name == "scifact"


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
    assert {(one.task.name, one.task.split) for one in (dev, test)} == {
        ("quora-duplicates", "dev"),
        ("quora-duplicates", "test"),
    }
    assert sorted(dev.documents) == ["how can i fly", "how does one fly", "what is water"]
    assert dev.answers == {
        "how to fly": {"how does one fly": 1.0, "how can i fly": 1.0},
        "may i fly": {"how does one fly": 1.0},
    }
    assert test.documents == ["is this a test"] and test.answers == {"is it a test": {"is this a test": 1.0}}


@pytest.mark.parametrize("write", [write_own, write_beir])
@pytest.mark.parametrize("limit", [1, 3, 7, 29, 30, 31])
def test_a_limit_keeps_relevant_documents(tmp_path: Path, write: Any, limit: int) -> None:
    write(tmp_path / "data" / "x")
    [whole], [cut] = read(tmp_path / "data"), read(tmp_path / "data", limit)
    texts = cut.documents
    assert len(texts) == len(set(texts)) == min(30, max(3, limit))
    assert cut.answers == whole.answers == EXPECTED  # so that positions are those in the smaller set
    assert texts == [text for text in whole.documents if text in set(texts)]


OWN = {"corpus": "corpus.tsv", "queries": "retrieval/queries.dev.tsv", "qrels": "retrieval/qrels.dev.tsv"}
BEIR = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("qrels", "q77\td1\t1", r"qrels\.dev\.tsv, row 7: query id 'q77' is not in queries\.dev\.tsv"),
        ("qrels", "q0\td1\t1", r"qrels\.dev\.tsv, row 7: query_id 'q0' with doc_id 'd1' is there already"),
        ("qrels", "q1\td9\tnan", r"qrels\.dev\.tsv, row 7: column 'score' is 'nan'; expected a number"),
        ("queries", "q1\tagain", r"queries\.dev\.tsv, row 5: id 'q1' is there already, in row"),
        ("corpus", "d7\tagain", r"corpus\.tsv, row 32: id 'd7' is there already"),
    ],
)
def test_bad_rows_of_our_layout(tmp_path: Path, file: str, line: str, message: str, limit: int | None) -> None:
    add(write_own(tmp_path / "data" / "x") / OWN[file], line)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "data", limit)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("queries", '{"_id": "q1", "text": "x"}', r"queries\.jsonl, row 4: id 'q1' is there already"),
        ("corpus", '{"_id": "d1", "text": "x"}', r"corpus\.jsonl, row 31: id 'd1' is there already"),
        ("corpus", '{"_id": true, "text": "x"}', r"corpus\.jsonl, row 31: column '_id' is True; expected an id"),
        ("corpus", '{"_id": "d30", "title": "x"}', r"corpus\.jsonl, row 31: no column 'text'; the columns are"),
        # Half a surrogate pair: JSON allows it, UTF-8 does not.
        ("corpus", r'{"_id": "\udc00", "text": "a"}', r"corpus\.jsonl, row 31: column '_id' is not UTF-8"),
    ],
)
def test_bad_rows_of_beir(tmp_path: Path, file: str, line: str, message: str) -> None:
    add(write_beir(tmp_path / "data" / "x") / BEIR[file], line)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "data")


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("layout", ["own", "beir"])
def test_holes_are_left_out_and_counted(tmp_path: Path, layout: str, limit: int | None) -> None:
    folder = tmp_path / "data" / "x"
    write, corpus = (write_own, "corpus.tsv") if layout == "own" else (write_beir, "corpus.jsonl")
    write(folder)
    end = "\n" if layout == "own" else '"'
    for key in ("d3", "d28", "d29"):  # the first two answer a query
        (folder / corpus).write_text((folder / corpus).read_text().replace(DOCUMENTS[key] + end, " " + end))
    names = OWN if layout == "own" else BEIR
    add(folder / names["qrels"], "q0\td77\t1")
    add(folder / names["queries"], "q3\t " if layout == "own" else '{"_id": "q3", "text": ""}')
    add(folder / names["qrels"], "q3\td5\t1")
    builder = CorpusBuilder("c")
    [task] = read(tmp_path / "data", limit, builder)
    assert task.answers == {"who is it": {"document number 1": 2.0}}
    assert len(task.documents) == (limit or 27)
    for told in ("3 documents without a text", "3 judged documents that are not there", "2 queries without a text"):
        assert told in builder.found[0]


def test_judgements_of_other_documents_are_refused(tmp_path: Path) -> None:
    folder = write_own(tmp_path / "data" / "x")
    write_tsv(folder / OWN["qrels"], ["query_id", "doc_id", "score"], [["q0", "d77", 1], ["q1", "d78", 1]])
    with pytest.raises(InputError, match=r"qrels\.dev\.tsv, row 2: document 'd77' is not in corpus\.tsv"):
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
    builder = CorpusBuilder("c")
    assert read(tmp_path / "data", builder=builder) == []
    assert builder.missing[:4] == [
        f"{name} retrieval, {s} (queries and qrels)" for name in ("beir", "own") for s in ("dev", "test")
    ]
