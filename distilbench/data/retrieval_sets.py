"""Retrieval sets to evaluate on: queries in memory, documents streamed into a file that need not fit in memory.

With relevance judgements, in any subfolder NAME of a data folder, in one of a subfolder, or in the folder itself:

NAME/corpus.tsv[.gz]                          doc_id text [is_beir_query]; or corpus.SPLIT.tsv for each split
NAME/retrieval/queries.SPLIT.tsv, qrels.SPLIT.tsv    query_id text; query_id doc_id score

NAME/corpus.jsonl[.gz], queries.jsonl[.gz]    BEIR's own layout: objects with _id, text and perhaps title
NAME/qrels/SPLIT.tsv                          query-id corpus-id score

SPLIT is dev or test, or another usual name (`splits`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import RetrievalSet, Rows
from distilbench.data.documents import MARK, TITLE, Columns, Ids, read_documents
from distilbench.data.readers import column_names, either, finite_number, read_tsv
from distilbench.data.sampling import fixed_sample
from distilbench.data.sentences import FILE, SentenceFile, write_sentences
from distilbench.data.splits import EXPECTED, split_files
from distilbench.data.splits import SPLITS as EVERY_SPLIT
from distilbench.errors import InputError
from distilbench.storage.files import file_sha256, fingerprint
from distilbench.storage.store import ArtifactStore

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
"""The splits that encoders are scored on."""
TRAIN = "train"
"""Judgements of this split are trained on (`judgements`)."""
STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it writes."""


@dataclass(frozen=True)
class LargeRetrievalSet:
    """Queries against documents, with their text.

    `relevant[i]` are positions in `documents` that answer query i, never empty; `grades[i]` how well. `fingerprint` is of
    the documents.
    """

    name: str
    split: Split
    queries: tuple[str, ...]
    documents: SentenceFile
    fingerprint: str
    relevant: tuple[Rows, ...]
    grades: tuple[NDArray[np.float64], ...]

    def digest(self) -> str:
        """SHA-256 of everything that a score of it depends on."""
        sha256 = hashlib.sha256(json.dumps([self.name, self.split, self.queries, self.fingerprint]).encode())
        for column in (*self.relevant, *self.grades):
            sha256.update(column.tobytes() + b"|")
        return sha256.hexdigest()


@dataclass(frozen=True)
class Layout:
    """Where a set with judgements is, and what the columns of its files are called.

    `queries` and `qrels` are by split, of which there may be a "train" too.
    """

    name: str
    corpus: Path
    queries: dict[str, Path]
    qrels: dict[str, Path]
    judged: tuple[str, str, str]
    documents: Columns
    asked: Columns


class JudgedQueries(NamedTuple):
    """The queries of a split that have a relevant document, with the grades of their documents by id.

    `needed` has the row of a judgement of each relevant document.
    """

    queries: dict[str, str]
    grades: dict[str, dict[str, float]]
    needed: dict[str, int]


class ChosenDocuments(NamedTuple):
    """Which documents of a set are taken: the ids (None: all), of which needed one the position, how many, and of how many.

    `parts` are what a file of them depends on.
    """

    ids: dict[str, None] | None
    position: dict[str, int]
    taken: int
    total: int
    parts: dict[str, Any]


def read_retrieval_sets(
    root: Path, store: ArtifactStore, documents: int | None, notes: list[str], missing: list[str]
) -> list[LargeRetrievalSet]:
    """Every set of `root`; lines for the user are added to `notes` and `missing`.

    Of more than `documents` documents (None: all) those that answer a query and a sample of the others are taken.
    """
    sets = [_judged(layout, split, store, documents, notes) for layout, split in judged_splits(root, missing)]
    if not sets:
        missing.append("a retrieval set (NAME/corpus.tsv with retrieval/, or BEIR's NAME/corpus.jsonl)")
    return sets


def of_corpus(task: RetrievalSet, sentences: Sequence[str], store: ArtifactStore) -> LargeRetrievalSet:
    """A retrieval set of a corpus, every relevant document of grade 1."""
    documents = [sentences[row] for row in task.documents]
    parts = {"sentences": fingerprint(documents), "step_version": STEP_VERSION}
    return LargeRetrievalSet(
        task.name,
        "dev" if task.split == "dev" else "test",
        tuple(sentences[row] for row in task.queries),
        _written(documents, parts, store),
        fingerprint(parts),
        task.relevant,
        tuple(np.ones(len(rows)) for rows in task.relevant),
    )


def set_folders(root: Path) -> dict[Path, str]:
    """The folders that may hold sets, with the sets' names: the data folder, its subfolders and theirs.

    Where two have one name, the deeper is PARENT/NAME.
    """
    # A subfolder has the name it is found by, be it a link; the root may be ".".
    outer, inner = _subfolders(root), [folder for parent in _subfolders(root) for folder in _subfolders(parent)]
    count = Counter(folder.name for folder in (*outer, *inner))
    named = {
        folder: folder.name if count[folder.name] == 1 else f"{folder.parent.name}/{folder.name}" for folder in inner
    }
    return {root: root.resolve().name, **{folder: folder.name for folder in outer}, **named}


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def layouts(root: Path) -> list[Layout]:
    """The sets with judgements of a data folder."""
    return [layout for folder, name in set_folders(root).items() for layout in _layouts(folder, name)]


def judged_splits(root: Path, missing: list[str]) -> Iterator[tuple[Layout, Split]]:
    """The sets with the splits that encoders are scored on; a line is added to `missing` for each that is not there."""
    for layout in layouts(root):
        for split in SPLITS:
            if split in layout.qrels:
                yield layout, split
            else:
                missing.append(f"{layout.name} retrieval, {split} (queries and qrels)")
        for word in layout.qrels.keys() - EVERY_SPLIT:
            missing.append(f"{layout.name} retrieval: {layout.qrels[word].name} is of no split; {EXPECTED}")


def has_training_judgements(root: Path) -> bool:
    """True if a data folder has judgements to train on."""
    return any(TRAIN in layout.qrels for layout in layouts(root))


def _layouts(folder: Path, name: str) -> list[Layout]:
    by_split = split_files(folder, "corpus.{}.tsv")
    if own := [_own_layout(folder, name, by_split[split], (split,)) for split in EVERY_SPLIT if split in by_split]:
        return own
    layout = _layout(folder, name)
    return [layout] if layout else []


def _own_layout(folder: Path, name: str, corpus: Path, splits: Sequence[str] = ()) -> Layout:
    inner = folder / "retrieval"
    queries = {s: path for s, path in split_files(inner, "queries.{}.tsv").items() if not splits or s in splits}
    qrels = {s: path for s, path in split_files(inner, "qrels.{}.tsv").items() if s in queries}
    mark = MARK if MARK in column_names(corpus) else ""
    documents, asked = Columns("doc_id", "text", mark=mark), Columns("query_id", "text")
    return Layout(name, corpus, queries, qrels, ("query_id", "doc_id", "score"), documents, asked)


def _layout(folder: Path, name: str) -> Layout | None:
    if corpus := either(folder, "corpus.tsv"):
        return _own_layout(folder, name, corpus)
    if corpus := either(folder, "corpus.jsonl"):
        one_file = either(folder, "queries.jsonl")
        qrels = split_files(folder / "qrels", "{}.tsv") if one_file else {}
        queries = dict.fromkeys(qrels, one_file) if one_file else {}
        documents, asked = Columns("_id", "text", TITLE), Columns("_id", "text", TITLE)
        return Layout(name, corpus, queries, qrels, ("query-id", "corpus-id", "score"), documents, asked)
    return None


def _judged(
    layout: Layout, split: Split, store: ArtifactStore, limit: int | None, notes: list[str]
) -> LargeRetrievalSet:
    judged = judged_queries(layout, split)
    chosen = chosen_documents(layout, split, judged.needed, limit)
    documents = _written((text for _, text in documents_of(layout, chosen)), chosen.parts, store)
    notes.append(summary(layout, split, judged, chosen))
    graded = list(judged.grades.values())
    return LargeRetrievalSet(
        layout.name,
        split,
        tuple(judged.queries.values()),
        documents,
        fingerprint(chosen.parts),
        tuple(np.array([chosen.position[doc] for doc in of_query], dtype=np.int64) for of_query in graded),
        tuple(np.array(list(of_query.values())) for of_query in graded),
    )


def summary(layout: Layout, split: str, judged: JudgedQueries, chosen: ChosenDocuments) -> str:
    """Describe a set in a line for the user."""
    documents = f"{chosen.taken:,} of {chosen.total:,} documents"
    return f"{layout.name} retrieval, {split}: {len(judged.queries):,} queries, {documents}"


def judged_queries(layout: Layout, split: str) -> JudgedQueries:
    """The queries of a split and their judgements."""
    grades = read_qrels(layout.qrels[split], layout)
    queries_file, queries = layout.queries[split], dict[str, str]()
    for row, query, text in texts_of(queries_file, layout.asked):
        if query in queries:
            raise InputError(f"{queries_file}, row {row}: query id {query!r} is there already; expected it once")
        queries[query] = text
    for query, (row, _) in grades.items():
        if query not in queries:
            raise InputError(f"{layout.qrels[split]}, row {row}: query id {query!r} is not in {queries_file.name}")
    answered = [query for query in queries if query in grades]
    if not answered:
        raise InputError(f"{queries_file}: none of its queries has a relevant document in {layout.qrels[split].name}")
    return JudgedQueries(
        {query: queries[query] for query in answered},
        {query: {doc: grade for doc, (_, grade) in grades[query][1].items()} for query in answered},
        {doc: row for _, graded in grades.values() for doc, (row, _) in graded.items()},
    )


def read_qrels(path: Path, layout: Layout) -> dict[str, tuple[int, dict[str, tuple[int, float]]]]:
    """By query its first row, and of each relevant document the row and the grade."""
    grades: dict[str, tuple[int, dict[str, tuple[int, float]]]] = {}
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
            grades.setdefault(query, (row, {}))[1][doc] = (row, grade)
    return grades


def chosen_documents(layout: Layout, split: str, needed: dict[str, int], limit: int | None) -> ChosenDocuments:
    """The documents that answer a query, and a sample of the others: `limit` in all (None: every one).

    In memory: 8 bytes for each document, and its id only where a sample is drawn.
    """
    path, others, position, documents = layout.corpus, list[str](), dict[str, int](), 0
    ids = Ids(path, layout.documents)
    for _, doc, text in read_documents(path, layout.documents):
        ids.add(doc)
        if text is None:
            continue  # one of BEIR's queries
        documents += 1
        if doc in needed:
            position[doc] = documents - 1
        elif limit is not None:
            others.append(doc)
    check_documents(layout, split, needed, position)
    ids.check_once()
    parts: dict[str, Any] = {"file": file_sha256(path), "step_version": STEP_VERSION}
    chosen: dict[str, None] | None = None
    if limit is not None and documents > limit:
        chosen = dict.fromkeys([*needed, *fixed_sample(others, max(0, limit - len(needed)))])
        position = {
            doc: i
            for i, doc in enumerate(doc for _, doc, _ in texts_of(path, layout.documents) if doc in chosen)
            if doc in needed
        }
        parts |= {"limit": limit, "qrels": file_sha256(layout.qrels[split])}
    return ChosenDocuments(chosen, position, documents if chosen is None else len(chosen), documents, parts)


def check_documents(layout: Layout, split: str, needed: Mapping[str, int], found: Collection[str]) -> None:
    """Check that all documents that answer a query are there; `needed` has the row of the judgement of each."""
    if absent := [(row, doc) for doc, row in needed.items() if doc not in found]:
        row, doc = min(absent)
        raise InputError(f"{layout.qrels[split]}, row {row}: document {doc!r} is not in {layout.corpus.name}")


def documents_of(layout: Layout, chosen: ChosenDocuments | None = None) -> Iterator[tuple[str, str]]:
    """Id and text of each document, or of the chosen ones, in the collection's order."""
    ids = None if chosen is None else chosen.ids
    return ((doc, text) for _, doc, text in texts_of(layout.corpus, layout.documents) if ids is None or doc in ids)


def texts_of(path: Path, columns: Columns) -> Iterator[tuple[int, str, str]]:
    """Row, id and text of each document or query; those that are marked as BEIR's queries are no documents."""
    return ((row, name, text) for row, name, text in read_documents(path, columns) if text is not None)


def _written(texts: Iterable[str], parts: dict[str, Any], store: ArtifactStore) -> SentenceFile:
    """The texts as a file of the store, written if it is not there."""

    def make(folder: Path, missing: list[str]) -> None:
        write_sentences(folder / FILE, texts)

    return SentenceFile(store.build("documents", parts, [FILE], make) / FILE)
