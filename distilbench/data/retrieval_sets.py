"""Retrieval sets to evaluate on: queries in memory, documents streamed into a file that need not fit in memory.

With relevance judgements, in any subfolder NAME of a data folder (or the folder itself):

NAME/corpus.tsv[.gz]                          doc_id text [is_beir_query]
NAME/retrieval/queries.SPLIT.tsv, qrels.SPLIT.tsv    query_id text; query_id doc_id score

NAME/corpus.jsonl[.gz], queries.jsonl[.gz]    BEIR's own layout: objects with _id, text and perhaps title
NAME/qrels/SPLIT.tsv                          query-id corpus-id score

NAME/collection.tsv[.gz], queries.SPLIT.tsv   MS MARCO's: an id and a text, no header; also queries.dev.small.tsv
NAME/qrels.SPLIT.tsv                          query id, 0, document id, grade; no header

Of duplicate pairs (HPD, section 4.2: question2 is indexed, question1 asks):

quora/pairs.tsv[.gz]                          question1 question2 is_duplicate split; of the splits dev and test

SPLIT is dev or test.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distilbench.data.columns import usable
from distilbench.data.corpus import RetrievalSet, Rows
from distilbench.data.lines import decoded, read_lines
from distilbench.data.sentences import FILE, TEXT, SentenceFile, in_batches, write_arrow
from distilbench.data.tables import columns_of, either, fixed_sample
from distilbench.data.tsv import finite_number, flag, read_tsv, sentence
from distilbench.errors import InputError
from distilbench.storage.files import file_sha256, fingerprint
from distilbench.storage.store import ArtifactStore

Split = Literal["dev", "test"]
SPLITS: tuple[Split, ...] = ("dev", "test")
"""What encoders are scored on."""
TRAIN = "train"
"""Judgements of this split are trained on (`judgements`)."""
EVERY_SPLIT = (TRAIN, *SPLITS)
DUPLICATES = "-duplicates"
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
    """Where a set with judgements is, and how its files name things; no `columns`: MS MARCO's, which have no header.

    `queries` and `qrels` are by split, of which there may be a "train" too.
    """

    name: str
    corpus: Path
    queries: dict[str, Path]
    qrels: dict[str, Path]
    columns: tuple[str, str, str] | None

    @property
    def keys(self) -> tuple[str, str, str]:
        """What the columns of judgements are called in messages."""
        return self.columns or ("query id", "document id", "grade")


class JudgedQueries(NamedTuple):
    """The queries of a split that have a relevant document, with the grades of their documents by id.

    `needed` has the row of the first judgement of each relevant document, `asked` is the number of all queries.
    """

    queries: dict[str, str]
    grades: dict[str, dict[str, float]]
    needed: dict[str, int]
    asked: int


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

    Of more than `documents` documents (None: all) those that answer a query and a sample of the others are taken; those of
    duplicate pairs are not cut.

    Raises:
        InputError: a file is malformed, an id is there twice, a judgement names a document or a query that is not there, or
            no query has a relevant document. File, row and value are named.
    """
    sets: list[LargeRetrievalSet] = []
    for layout in layouts(root):
        for split in SPLITS:
            if split in layout.qrels:
                sets.append(_judged(layout, split, store, documents, notes))
            else:
                missing.append(f"{layout.name} retrieval, {split} (queries and qrels)")
    sets += _duplicates(root / "quora", store, notes)
    if not sets:
        missing.append(
            "a retrieval set (NAME/corpus.tsv with retrieval/, BEIR's NAME/corpus.jsonl, or quora/pairs.tsv)"
        )
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


def layouts(root: Path) -> list[Layout]:
    """The sets with judgements of a data folder: in any subfolder, or in the folder itself."""
    # A subfolder has the name it is found by, be it a link; the root may be ".".
    named = [(root, root.resolve().name), *((folder, folder.name) for folder in sorted(root.iterdir()))]
    return [layout for folder, name in named if (layout := _layout(folder, name))]


def has_training_judgements(root: Path) -> bool:
    """Whether a data folder has judgements to train on."""
    return any(TRAIN in layout.qrels for layout in layouts(root))


def _layout(folder: Path, name: str) -> Layout | None:
    if not folder.is_dir():
        return None
    if corpus := either(folder, "collection.tsv"):
        queries = {s: path for s in EVERY_SPLIT if (path := _of_split(folder, "queries", s))}
        qrels = {s: path for s in queries if (path := _of_split(folder, "qrels", s))}
        return Layout(name, corpus, queries, qrels, None)
    if corpus := either(folder, "corpus.tsv"):
        inner = folder / "retrieval"
        queries = {s: path for s in EVERY_SPLIT if (path := either(inner, f"queries.{s}.tsv"))}
        qrels = {s: path for s in queries if (path := either(inner, f"qrels.{s}.tsv"))}
        return Layout(name, corpus, queries, qrels, ("query_id", "doc_id", "score"))
    if corpus := either(folder, "corpus.jsonl"):
        one_file = either(folder, "queries.jsonl")
        queries = dict.fromkeys(EVERY_SPLIT, one_file) if one_file else {}
        qrels = {s: path for s in queries if (path := either(folder / "qrels", f"{s}.tsv"))}
        return Layout(name, corpus, queries, qrels, ("query-id", "corpus-id", "score"))
    return None


def _of_split(folder: Path, kind: str, split: str) -> Path | None:
    """MS MARCO's file of a split; of its dev queries those with a judgement are a file of their own (`dev.small`)."""
    return either(folder, f"{kind}.{split}.small.tsv") or either(folder, f"{kind}.{split}.tsv")


def _judged(
    layout: Layout, split: Split, store: ArtifactStore, limit: int | None, notes: list[str]
) -> LargeRetrievalSet:
    judged = judged_queries(layout, split)
    chosen = chosen_documents(layout, split, judged.needed, limit)
    documents = _written((text for _, text in documents_of(layout, chosen)), chosen.parts, store)
    notes.append(told_of(layout, split, judged, chosen))
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


def told_of(layout: Layout, split: str, judged: JudgedQueries, chosen: ChosenDocuments) -> str:
    """A set as a line for the user."""
    without = judged.asked - len(judged.queries) if len(set(layout.queries.values())) == len(layout.queries) else 0
    note = f"; {without} queries without a relevant document left out" if without else ""
    documents = f"{chosen.taken:,} of {chosen.total:,} documents"
    return f"{layout.name} retrieval, {split}: {len(judged.queries):,} queries, {documents}{note}"


def judged_queries(layout: Layout, split: str) -> JudgedQueries:
    """The queries of a split and their judgements.

    Raises:
        InputError: a file is malformed, an id is there twice, a judgement names a query that is not there, or no query has
            a relevant document.
    """
    grades = read_qrels(layout.qrels[split], layout)
    queries_file, queries = layout.queries[split], dict[str, str]()
    for row, query, text in texts_of(queries_file, layout, "query_id"):
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
        len(queries),
    )


def read_qrels(path: Path, layout: Layout) -> dict[str, tuple[int, dict[str, tuple[int, float]]]]:
    """By query its first row, and of each relevant document the row and the grade."""
    grades: dict[str, tuple[int, dict[str, tuple[int, float]]]] = {}
    seen_keys: set[tuple[str, str]] = set()
    columns = layout.keys
    lines = read_tsv(path, columns) if layout.columns else _trec_judgements(path)
    for row, (query, doc, score) in lines:
        grade = finite_number(path, row, columns[2], score)
        if (query, doc) in seen_keys:
            raise InputError(
                f"{path}, row {row}: {columns[0]} {query!r} with {columns[1]} {doc!r} is there already; expected it once"
            )
        seen_keys.add((query, doc))
        if grade > 0:
            grades.setdefault(query, (row, {}))[1][doc] = (row, grade)
    return grades


def _trec_judgements(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Row, and query id, document id and grade of each judgement in trec_eval's format: four fields, no header."""
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        if isinstance(text, InputError):
            raise text
        fields = text.split()
        if len(fields) != 4:
            raise InputError(
                f"{path}, row {row}: {len(fields)} fields, expected 4: query id, 0, document id, grade (no header)"
            )
        yield row, [fields[0], fields[2], fields[3]]


def chosen_documents(layout: Layout, split: str, needed: dict[str, int], limit: int | None) -> ChosenDocuments:
    """The documents that answer a query, and a sample of the others: `limit` in all (None: every one).

    In memory: 16 bytes for each document, and its id only where a sample is drawn.

    Raises:
        InputError: the collection is malformed, an id is there twice, or a needed document is not there.
    """
    path, others, position = layout.corpus, list[str](), dict[str, int]()
    digests, rows, documents = array("q"), array("q"), 0
    for row, doc, text in _rows(path, layout, "doc_id"):
        digests.append(int.from_bytes(hashlib.blake2b(doc.encode(), digest_size=8).digest(), "little", signed=True))
        rows.append(row)
        if text is None:
            continue  # one of BEIR's queries
        documents += 1
        if doc in needed:
            position[doc] = documents - 1
        elif limit is not None:
            others.append(doc)
    absent = needed.keys() - position.keys()
    if absent:
        doc = min(absent, key=lambda d: needed[d])
        raise InputError(f"{layout.qrels[split]}, row {needed[doc]}: document {doc!r} is not in {path.name}")
    _only_once(path, layout, np.array(digests), np.array(rows))
    parts: dict[str, Any] = {"file": file_sha256(path), "step_version": STEP_VERSION}
    chosen: dict[str, None] | None = None
    if limit is not None and documents > limit:
        chosen = dict.fromkeys([*needed, *fixed_sample(others, max(0, limit - len(needed)))])
        position = {
            doc: i
            for i, doc in enumerate(doc for _, doc, _ in texts_of(path, layout, "doc_id") if doc in chosen)
            if doc in needed
        }
        parts |= {"limit": limit, "qrels": file_sha256(layout.qrels[split])}
    return ChosenDocuments(chosen, position, documents if chosen is None else len(chosen), documents, parts)


def documents_of(layout: Layout, chosen: ChosenDocuments | None = None) -> Iterator[tuple[str, str]]:
    """Id and text of each document, or of the chosen ones, in the collection's order."""
    ids = None if chosen is None else chosen.ids
    return ((doc, text) for _, doc, text in texts_of(layout.corpus, layout, "doc_id") if ids is None or doc in ids)


def queries_of(layout: Layout, split: str) -> Iterator[str]:
    """The text of each query of a split's file, with or without a judgement."""
    return (text for _, _, text in texts_of(layout.queries[split], layout, "query_id"))


def texts_of(path: Path, layout: Layout, key: str) -> Iterator[tuple[int, str, str]]:
    """Row, id (of a table, its column `key`) and text of each document or query.

    Those that are marked as BEIR's queries are no documents.
    """
    return ((row, name, text) for row, name, text in _rows(path, layout, key) if text is not None)


def _rows(path: Path, layout: Layout, key: str) -> Iterator[tuple[int, str, str | None]]:
    """The same with those that are marked, which have no text here."""
    if layout.columns is None:
        yield from _plain_texts(path)
        return
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        yield from _json_texts(path)
        return
    marked = ("is_beir_query",) if "is_beir_query" in columns_of(path) else ()
    for row, (name, text, *query) in read_tsv(path, (key, "text", *marked)):
        marked_query = query and flag(path, row, "is_beir_query", query[0])
        yield row, name, None if marked_query else sentence(path, row, "text", text)


def _plain_texts(path: Path) -> Iterator[tuple[int, str, str]]:
    """Of a table without a header: an id and a text."""
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        if isinstance(text, InputError):
            raise text
        fields = text.split("\t")
        if len(fields) != 2:
            raise InputError(f"{path}, row {row}: {len(fields)} fields, expected 2: an id and a text (no header)")
        yield row, fields[0], sentence(path, row, "text", fields[1])


def _json_texts(path: Path) -> Iterator[tuple[int, str, str]]:
    for row, line in read_lines(path):
        text = decoded(path, row, line)
        if isinstance(text, InputError):
            raise text
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, row {row}: malformed JSON ({error}); expected one object a line") from None
        if not isinstance(record, dict) or not all(isinstance(record.get(c), str) for c in ("_id", "text")):
            raise InputError(f"{path}, row {row}: {text:.80}; expected an object with strings _id and text")
        parts = (record.get("title"), record["text"])
        joined = " ".join(p.strip() for p in parts if isinstance(p, str) and p.strip())
        # Half a surrogate pair is JSON, but cannot be written as UTF-8.
        for what, value in (("_id", record["_id"]), ("text", joined)):
            if isinstance(wrong := usable(path, row, f"column {what!r}", value), InputError):
                raise wrong
        yield row, record["_id"], joined


def _only_once(path: Path, layout: Layout, digest_N: Rows, row_N: Rows) -> None:
    order = np.argsort(digest_N, kind="stable")
    again = order[1:][np.diff(digest_N[order]) == 0]
    if len(again):
        row = int(row_N[again.min()])
        doc = next(doc for owner, doc, _ in _rows(path, layout, "doc_id") if owner == row)
        raise InputError(f"{path}, row {row}: document id {doc!r} is there already; expected it once")


def _duplicates(folder: Path, store: ArtifactStore, notes: list[str]) -> Iterator[LargeRetrievalSet]:
    """question1 of the duplicate pairs asks, question2 of all pairs of the split is indexed."""
    path = either(folder, "pairs.tsv")
    if path is None:
        return
    columns = ("question1", "question2", "is_duplicate", "split")
    documents: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    relevant: dict[str, dict[str, dict[int, None]]] = {split: {} for split in SPLITS}
    for row, (one, two, duplicate, split) in read_tsv(path, columns):
        if split in documents:
            asks, answers = sentence(path, row, columns[0], one), sentence(path, row, columns[1], two)
            position = documents[split].setdefault(answers, len(documents[split]))
            if flag(path, row, columns[2], duplicate):
                relevant[split].setdefault(asks, {})[position] = None
    for split in SPLITS:
        if not relevant[split]:
            continue
        parts = {"file": file_sha256(path), "duplicates": split, "step_version": STEP_VERSION}
        positions = tuple(np.array(list(rows), dtype=np.int64) for rows in relevant[split].values())
        yield LargeRetrievalSet(
            folder.name + DUPLICATES,
            split,
            tuple(relevant[split]),
            _written(documents[split], parts, store),
            fingerprint(parts),
            positions,
            tuple(np.ones(len(rows)) for rows in positions),
        )
        notes.append(
            f"{folder.name}/{path.name}: {len(relevant[split]):,} questions of duplicate pairs, "
            f"{len(documents[split]):,} to find them among ({split})"
        )


def _written(texts: Iterable[str], parts: dict[str, Any], store: ArtifactStore) -> SentenceFile:
    """The texts as a file of the store, written if it is not there."""
    schema = pa.schema([(TEXT, pa.string())])

    def make(folder: Path, missing: list[str]) -> None:
        batches = (pa.record_batch([pa.array(batch, pa.string())], schema=schema) for batch in in_batches(texts))
        write_arrow(folder / FILE, batches, schema)

    return SentenceFile(store.build("documents", parts, [FILE], make) / FILE)
