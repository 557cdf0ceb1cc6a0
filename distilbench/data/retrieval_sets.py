"""Retrieval sets with relevance judgements, in any subfolder NAME of a data folder, in one of a subfolder, or in itself.

NAME/corpus.tsv[.gz]                          doc_id text [is_beir_query]; or corpus.SPLIT.tsv for each split
NAME/retrieval/queries.SPLIT.tsv, qrels.SPLIT.tsv    query_id text; query_id doc_id score

NAME/corpus.jsonl[.gz], queries.jsonl[.gz]    BEIR's own layout: objects with _id, text and perhaps title
NAME/qrels/SPLIT.tsv                          query-id corpus-id score

Encoders are scored on the splits dev and test, or other usual names of these (`splits`); judgements of train are trained on
(`training_text`).

Documents of equal similarity are ranked by their places, which a file must not decide: one that has the answers first would
gain or lose by it. So they are placed by digests of their ids. Samples, rows of the corpus and with them codes follow the
ids in their own order (`in_order`), not the files'. A query that is a document too does not find itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from distilbench.data.corpus import CorpusBuilder, Split
from distilbench.data.documents import MARK, TITLE, Columns, documents_once, read_documents
from distilbench.data.readers import column_names, either, finite_number, read_tsv
from distilbench.data.sampling import fixed_sample
from distilbench.data.sentences import text_digest
from distilbench.data.splits import EXPECTED, split_files
from distilbench.data.splits import SPLITS as EVERY_SPLIT
from distilbench.errors import InputError

SPLITS: tuple[Split, ...] = ("dev", "test")
TRAIN = "train"
LAYOUTS = "expected corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, or corpus.tsv with retrieval/"


@dataclass(frozen=True)
class Layout:
    """Where a set with judgements is, and the columns of its files; `queries` and `qrels` are by split, also "train"."""

    name: str
    corpus: Path
    queries: dict[str, Path]
    qrels: dict[str, Path]
    judged: tuple[str, str, str]
    documents: Columns
    asked: Columns


class JudgedQueries(NamedTuple):
    """The queries of a split that have a relevant document, with the grades of their documents by id.

    `needed` has the row of a judgement of each relevant document; `left_out` queries have no text, or no such document.
    """

    queries: dict[str, str]
    grades: dict[str, dict[str, float]]
    needed: dict[str, int]
    left_out: int = 0

    def among(self, documents: Collection[str], own: Collection[str] = ()) -> JudgedQueries:
        """Keep the judgements of these documents, and the queries that have one; `own` queries do not answer themselves."""
        grades = {
            query: {doc: g for doc, g in graded.items() if doc in documents and not (doc == query and doc in own)}
            for query, graded in self.grades.items()
        }
        grades = {query: graded for query, graded in grades.items() if graded}
        needed = {doc: row for doc, row in self.needed.items() if doc in documents}
        gone = len(self.queries) - len(grades)
        return JudgedQueries({q: self.queries[q] for q in grades}, grades, needed, self.left_out + gone)


def read_searches(root: Path, limit: int | None, builder: CorpusBuilder) -> set[str]:
    """Add the retrieval sets with judgements; what they ask.

    Of more than `limit` documents (None: all) those that answer a query and a fixed sample of the others are taken.
    """
    asked: set[str] = set()
    found = layouts(root)
    for layout in found:
        for split in SPLITS:
            if split in layout.qrels:
                asked |= _add_judged(layout, split, limit, builder)
            else:
                builder.missing.append(f"{layout.name} retrieval, {split} (queries and qrels)")
        for word in layout.qrels.keys() - EVERY_SPLIT:
            builder.missing.append(
                f"{layout.name} retrieval: {layout.qrels[word].name} is of no split and not read; {EXPECTED}"
            )
    read = {path for one in found for path in (one.corpus, *one.queries.values(), *one.qrels.values())}
    for folder in set_folders(root):
        patterns = ("corpus*", "queries*", "qrels*", "qrels/*", "retrieval/queries*", "retrieval/qrels*")
        unread = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file() and path not in read}
        if unread:
            names = ", ".join(path.relative_to(root).as_posix() for path in sorted(unread)[:4])
            builder.missing.append(f"{names}: not read as a retrieval set; {LAYOUTS}")
    return asked


def _add_judged(layout: Layout, split: Split, limit: int | None, builder: CorpusBuilder) -> set[str]:
    judged = judged_queries(layout, split)
    row_of, empty = _document_rows(layout)
    check_documents(layout, split, judged.needed, row_of)
    absent, judged = len(judged.needed.keys() - row_of.keys()), judged.among(row_of)
    chosen = dict.fromkeys(row_of)
    if limit is not None and len(row_of) > limit:
        others = [doc for doc in row_of if doc not in judged.needed]
        chosen = dict.fromkeys([*judged.needed, *fixed_sample(others, max(0, limit - len(judged.needed)))])
    text_of = {doc: text for doc, text in texts_of(layout) if doc in chosen}
    own = _own(layout, judged.queries, text_of)
    judged = judged.among(text_of, own)
    queries, graded = list(judged.queries.values()), list(judged.grades.values())
    # Answers get their rows in the corpus first, which training text that is a document too has its place by.
    answers = dict.fromkeys(doc for of_query in graded for doc in of_query)
    builder.rows([*queries, *(text_of[doc] for doc in dict.fromkeys([*answers, *chosen]))])
    position = {doc: i for i, doc in enumerate(sorted(text_of, key=text_digest))}
    builder.add_retrieval(
        layout.name,
        split,
        queries,
        [text_of[doc] for doc in position],
        [{position[doc]: grade for doc, grade in of_query.items()} for of_query in graded],
        [position[query] if query in own else -1 for query in judged.queries] if own else None,
    )
    told = [f"{len(queries):,} queries, {len(text_of):,} of {len(row_of):,} documents"]
    counts = {
        "documents without a text are left out": empty,
        "judged documents that are not there or have no text are left out": absent,
        "queries are documents too, and do not find themselves": len(own),
        "queries without a text or another answer are left out": judged.left_out,
    }
    told += [f"{count:,} {what}" for what, count in counts.items() if count]
    builder.found.append(f"{layout.name} retrieval, {split}: {'; '.join(told)}")
    return set(queries)


def _own(layout: Layout, queries: Mapping[str, str], text_of: Mapping[str, str]) -> set[str]:
    """The queries that are documents: of the same id and text, before which the document may have a title."""
    own = {query for query, text in queries.items() if text_of.get(query) == text}
    titled = {query for query, text in queries.items() if text_of.get(query, "").endswith(f" {text}")}
    if titled and layout.documents.title:
        untitled = read_documents(layout.corpus, replace(layout.documents, title=""))
        own |= {doc for _, doc, text in untitled if doc in titled and text == queries[doc]}
    return own


def in_order(name: str) -> tuple[bool, int, str]:
    """What ids are sorted by: numbers come first, by their size."""
    return not name.isdecimal(), len(name), name


def searched_text(root: Path, builder: CorpusBuilder) -> Iterator[str]:
    """The training queries and the documents of all sets with judgements: what there is to train on where nothing else is."""
    found = layouts(root)
    builder.found += [f"{layout.name}: its documents and training queries are the training text" for layout in found]
    trained = (judged_queries(layout, TRAIN).queries.values() for layout in found if TRAIN in layout.qrels)
    return chain(*trained, (text for layout in found for _, text in texts_of(layout)))


def set_folders(root: Path) -> dict[Path, str]:
    """The folders that may hold sets, with the sets' names: the data folder, its subfolders and theirs; where two have one
    name, the deeper is PARENT/NAME."""
    # A subfolder has the name it is found by, be it a link; the root may be ".".
    outer, inner = _subfolders(root), [folder for parent in _subfolders(root) for folder in _subfolders(parent)]
    count = Counter(folder.name for folder in (*outer, *inner))
    named = {f: f.name if count[f.name] == 1 else f"{f.parent.name}/{f.name}" for f in inner}
    return {root: root.resolve().name, **{folder: folder.name for folder in outer}, **named}


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def layouts(root: Path) -> list[Layout]:
    """The sets with judgements of a data folder."""
    return [layout for folder, name in set_folders(root).items() for layout in _layouts(folder, name)]


def _layouts(folder: Path, name: str) -> list[Layout]:
    by_split = split_files(folder, "corpus.{}.tsv")
    if own := [_own_layout(folder, name, by_split[split], (split,)) for split in EVERY_SPLIT if split in by_split]:
        return own
    if corpus := either(folder, "corpus.tsv"):
        return [_own_layout(folder, name, corpus)]
    if corpus := either(folder, "corpus.jsonl"):
        one_file = either(folder, "queries.jsonl")
        qrels = split_files(folder / "qrels", "{}.tsv") if one_file else {}
        queries = dict.fromkeys(qrels, one_file) if one_file else {}
        columns = Columns("_id", "text", TITLE)
        return [Layout(name, corpus, queries, qrels, ("query-id", "corpus-id", "score"), columns, columns)]
    return []


def _own_layout(folder: Path, name: str, corpus: Path, splits: Sequence[str] = ()) -> Layout:
    inner = folder / "retrieval"
    queries = {s: path for s, path in split_files(inner, "queries.{}.tsv").items() if not splits or s in splits}
    qrels = {s: path for s, path in split_files(inner, "qrels.{}.tsv").items() if s in queries}
    mark = MARK if MARK in column_names(corpus) else ""
    documents, asked = Columns("doc_id", "text", mark=mark), Columns("query_id", "text")
    return Layout(name, corpus, queries, qrels, ("query_id", "doc_id", "score"), documents, asked)


def judged_queries(layout: Layout, split: str) -> JudgedQueries:
    """The queries of a split and their judgements."""
    grades = read_qrels(layout.qrels[split], layout)
    queries_file, queries = layout.queries[split], dict[str, str]()
    for _, query, text in documents_once(queries_file, layout.asked):
        queries[query] = text or queries.get(query, "")
    for query, graded in grades.items():
        if query not in queries:
            row = next(iter(graded.values()))[0]
            raise InputError(f"{layout.qrels[split]}, row {row}: query id {query!r} is not in {queries_file.name}")
    answered = sorted((query for query, text in queries.items() if text and query in grades), key=in_order)
    if not answered:
        raise InputError(f"{queries_file}: none of its queries has a relevant document in {layout.qrels[split].name}")
    return JudgedQueries(
        {query: queries[query] for query in answered},
        {query: {doc: grades[query][doc][1] for doc in sorted(grades[query], key=in_order)} for query in answered},
        {doc: row for q, graded in grades.items() if queries[q] for doc, (row, _) in graded.items()},
        len(grades) - len(answered),
    )


def read_qrels(path: Path, layout: Layout) -> dict[str, dict[str, tuple[int, float]]]:
    """By query the row and the grade of each relevant document."""
    grades: dict[str, dict[str, tuple[int, float]]] = {}
    seen_keys: set[tuple[str, str]] = set()
    columns = layout.judged
    for row, (query, doc, score) in read_tsv(path, columns):
        grade = finite_number(path, row, columns[2], score)
        if (query, doc) in seen_keys:
            raise InputError(
                f"{path}, row {row}: {columns[0]} {query!r} with {columns[1]} {doc!r} is there already; expected it once"
            )
        seen_keys.add((query, doc))
        if grade > 0:
            grades.setdefault(query, {})[doc] = row, grade
    return grades


def _document_rows(layout: Layout) -> tuple[dict[str, int], int]:
    row_of, empty = dict[str, int](), 0
    for row, doc, text in documents_once(layout.corpus, layout.documents):
        if text:
            row_of[doc] = row
        else:
            empty += 1
    return dict(sorted(row_of.items(), key=lambda doc_and_row: in_order(doc_and_row[0]))), empty


def check_documents(layout: Layout, split: str, needed: Mapping[str, int], found: Collection[str]) -> None:
    """Check that a document that answers a query is there; `needed` has the row of the judgement of each."""
    if needed and not any(doc in found for doc in needed):
        row, doc = min((row, doc) for doc, row in needed.items())
        raise InputError(
            f"{layout.qrels[split]}, row {row}: document {doc!r} is not in {layout.corpus.name}, nor is any other"
        )


def texts_of(layout: Layout) -> Iterator[tuple[str, str]]:
    """Id and text of each document that has one."""
    return ((doc, text) for _, doc, text in documents_once(layout.corpus, layout.documents) if text)
