"""Retrieval sets of a run: judgements in each layout under their folder's name, and sets made of pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import write_tsv

from distilbench.data.corpus import Corpus, RetrievalSet
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.selected import with_selection
from distilbench.selection import Selection

RETRIEVAL = Selection.parse("retrieval")


def read(root: Path, select: Selection | None = None, **limits: int) -> Corpus:
    return folder_corpus(root, Limits(**limits), select=select)


def texts(corpus: Corpus, task: RetrievalSet) -> dict[str, list[str]]:
    """By query what answers it."""
    documents = [corpus.sentences[row] for row in task.documents]
    return {
        corpus.sentences[q]: [documents[d] for d in found] for q, found in zip(task.queries, task.relevant, strict=True)
    }


def trained(corpus: Corpus) -> set[str]:
    return {corpus.sentences[row] for row in corpus.train}


def pairs_of(corpus: Corpus) -> set[tuple[str, str]]:
    return {(corpus.sentences[a], corpus.sentences[b]) for a, b in corpus.pairs_P2}


def beir(folder: Path, splits: tuple[str, ...] = ("train", "dev", "test")) -> Path:
    folder.mkdir(parents=True)
    documents = [{"_id": f"d{i}", "title": "On", "text": f"thing {i}"} for i in range(30)]
    queries = [{"_id": f"q{i}", "text": f"what is thing {i}"} for i in range(9)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    for number, split in enumerate(splits):
        rows = [[f"q{i}", f"d{i}", 1 + i % 2] for i in range(3 * number, 3 * number + 3)]
        write_tsv(folder / "qrels" / f"{split}.tsv", ["query-id", "corpus-id", "score"], rows)
    return folder


def passages(folder: Path) -> Path:
    """A set whose one judged split to score on is dev, at the top of the data folder."""
    write_tsv(folder / "corpus.tsv", ["doc_id", "text"], [[i, f"passage {i}"] for i in range(30)])
    for split, start in (("train", 0), ("dev", 10)):
        inner, numbers = folder / "retrieval", range(start, start + 5)
        write_tsv(inner / f"queries.{split}.tsv", ["query_id", "text"], [[i, f"query {i}"] for i in numbers])
        write_tsv(inner / f"qrels.{split}.tsv", ["query_id", "doc_id", "score"], [[i, i, 1] for i in numbers[:4]])
    return folder


@pytest.mark.parametrize("inside", [True, False])
def test_beirs_layout_with_nothing_else(tmp_path: Path, inside: bool) -> None:
    root = beir(tmp_path / "mine" / "fiqa").parent if inside else beir(tmp_path / "fiqa")
    corpus = read(root)
    assert [(s.name, s.split, len(s.queries), len(s.documents)) for s in corpus.retrieval] == [
        ("fiqa", "dev", 3, 30),
        ("fiqa", "test", 3, 30),
    ]
    dev = corpus.retrieval[0]
    assert texts(corpus, dev) == {f"what is thing {i}": [f"On thing {i}"] for i in (3, 4, 5)}
    assert dev.grades is not None and [grade.tolist() for grade in dev.grades] == [[2], [1], [2]]
    # What it is trained on is its own: the documents, and the training queries, but not what dev and test ask.
    assert trained(corpus) == {f"On thing {i}" for i in range(30)} | {f"what is thing {i}" for i in range(3)}


def test_a_set_of_dev_alone_with_nothing_else(tmp_path: Path) -> None:
    corpus = read(passages(tmp_path / "mine"))
    [dev] = corpus.retrieval
    assert (dev.name, dev.split) == ("mine", "dev")
    assert texts(corpus, dev) == {f"query {i}": [f"passage {i}"] for i in range(10, 14)}
    assert "query 0" in trained(corpus) and not {f"query {i}" for i in range(10, 14)} & trained(corpus)
    # Selected by half of dev, reported on the other half.
    chosen, why = with_selection(corpus, None)
    assert str(chosen.selection) == "retrieval" and "retrieval dev set" in why
    dev, test = chosen.retrieval
    assert {**texts(corpus, dev), **texts(corpus, test)} == texts(corpus, corpus.retrieval[0])
    assert (dev.split, test.split, len(dev.queries), len(test.queries)) == ("dev", "test", 2, 2)


def test_documents_of_each_split(tmp_path: Path) -> None:
    folder = passages(tmp_path / "root" / "mine")
    (folder / "corpus.tsv").unlink()
    write_tsv(folder / "corpus.dev.tsv", ["doc_id", "text"], [[i, f"passage {i}"] for i in range(10, 16)])
    write_tsv(folder / "corpus.train.tsv", ["doc_id", "text"], [[i, f"passage {i}"] for i in range(6)])
    corpus = read(tmp_path / "root")
    [dev] = corpus.retrieval
    assert (dev.name, dev.split, len(dev.documents)) == ("mine", "dev", 6)
    assert texts(corpus, dev) == {f"query {i}": [f"passage {i}"] for i in range(10, 14)}


def duplicates(folder: Path, name: str = "pairs.tsv", groups: int = 40, split: str = "") -> Path:
    """Groups of three questions that ask the same, and two that do not."""
    rows = [[f"how {g} {k}", f"how {g} {k + 1}", 1] for g in range(groups) for k in (0, 1)]
    rows += [[f"how {g} 0", f"why {g}", 0] for g in range(groups)]
    if name == "pairs.tsv":
        header = ["question1", "question2", "is_duplicate", *(["split"] if split else [])]
        write_tsv(folder / name, header, [[*row, *([split] if split else [])] for row in rows])
    else:
        write_tsv(folder / name, ["is_duplicate", "title1", "title2"], [[yes, one, two] for one, two, yes in rows])
    return folder


@pytest.mark.parametrize("name", ["pairs.tsv", "android.dup_pairs.tsv"])
def test_each_question_finds_its_duplicates(tmp_path: Path, name: str) -> None:
    duplicates(tmp_path / "mine" / "forum", name)
    corpus = read(tmp_path / "mine")
    dev, test = corpus.retrieval
    assert {dev.name, test.name} == {"forum" if name == "pairs.tsv" else "android"}
    assert (dev.split, test.split, len(dev.queries), len(test.queries)) == ("dev", "test", 10, 10)
    found = {**texts(corpus, dev), **texts(corpus, test)}
    for query, answers in found.items():
        group = query.split()[1]
        assert sorted([query, *answers]) == [f"how {group} {k}" for k in range(3)]
    # All other texts are searched, but none that asks.
    searched = {corpus.sentences[row] for row in dev.documents}
    assert {f"why {g}" for g in range(40)} < searched and not searched & found.keys()
    # Of the groups that are held out no pair is trained on.
    held = {query.split()[1] for query in found}
    assert {one.split()[1] for one, _ in pairs_of(corpus)} == {str(g) for g in range(40)} - held
    assert not trained(corpus) & found.keys() and "why 1" in trained(corpus)
    assert any(f"made of {name}: 10 questions find their duplicates" in line for line in corpus.found)


def test_a_set_is_only_made_where_nothing_labelled_can_select(tmp_path: Path) -> None:
    root = duplicates(tmp_path / "forum").parent
    write_tsv(root / "sts" / "OWN.dev.tsv", ["sentence1", "sentence2", "score"], [["a", "b", 1], ["c", "d", 2]])
    corpus = read(root)
    assert not corpus.retrieval and len(corpus.pairs_P2) == 80  # STS selects: the pairs are for training alone
    assert [s.split for s in read(root, RETRIEVAL).retrieval] == ["dev", "test"]
    assert not read(root, Selection.parse("fidelity")).retrieval


def test_no_two_sets_have_one_name(tmp_path: Path) -> None:
    duplicates(beir(tmp_path / "forum", ("train", "test")))
    clicks = [[f"find {q}", f"page {q}"] for q in range(40)]
    write_tsv(tmp_path / "forum" / "clicks.tsv", ["query", "document"], clicks)
    sets = {(s.name, s.split): len(s.documents) for s in read(tmp_path, RETRIEVAL).retrieval}
    assert sets.keys() - {("forum", "test")} == {
        (f"forum/{name}", split) for name in ("pairs", "clicks") for split in ("dev", "test")
    }
    assert sets["forum", "test"] == 30


def test_pairs_of_folders_of_one_name_are_all_trained_on(tmp_path: Path) -> None:
    for name, groups in (("one", 40), ("two", 8)):
        duplicates(tmp_path / name / "forum", split="train", groups=groups)
    write_tsv(tmp_path / "sts" / "OWN.dev.tsv", ["sentence1", "sentence2", "score"], [["a", "b", 1], ["c", "d", 2]])
    duplicates(tmp_path / "two" / "forum", "last.dup_pairs.tsv", groups=50)
    assert len(pairs_of(read(tmp_path))) == 100


def test_clicks_are_from_queries_to_documents(tmp_path: Path) -> None:
    rows = [[f"find {q}", f"page {(q + k) % 20}"] for q in range(40) for k in range(2)]
    write_tsv(tmp_path / "shop" / "clicks.tsv", ["query", "document"], rows)
    corpus = read(tmp_path)
    dev, test = corpus.retrieval
    assert (dev.name, len(dev.queries), len(test.queries)) == ("shop", 10, 10)
    for query, answers in texts(corpus, dev).items():
        number = int(query.split()[1])
        assert sorted(answers) == sorted(f"page {(number + k) % 20}" for k in range(2))
    # A page that answers a held-out query may answer others, which are trained on.
    asked = texts(corpus, dev).keys() | texts(corpus, test).keys()
    assert len(corpus.pairs_P2) == 80 - 2 * len(asked) and not {one for one, _ in pairs_of(corpus)} & asked


@pytest.mark.parametrize("split", ["dev", "test"])
def test_pairs_that_a_file_gives_to_dev_are_taken(tmp_path: Path, split: str) -> None:
    root = duplicates(tmp_path / "mine" / "given", split=split).parent
    duplicates(root / "other", split="train", groups=8)
    corpus = read(root)
    given = [s for s in corpus.retrieval if s.name == "given"]
    assert [(s.split, len(s.queries)) for s in given] == [("dev", 20), ("test", 20)]


def test_the_same_pairs_in_another_order_make_the_same_set(tmp_path: Path) -> None:
    path = duplicates(tmp_path / "forum") / "pairs.tsv"
    first = read(tmp_path)
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *reversed(rows)]) + "\n")
    again = read(tmp_path)
    for one, two in zip(first.retrieval, again.retrieval, strict=True):
        assert {q: set(a) for q, a in texts(first, one).items()} == {q: set(a) for q, a in texts(again, two).items()}
