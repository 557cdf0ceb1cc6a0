"""Search end to end: a query's text goes in, ten documents come out. Students beside their teacher, on one thread.

    python benchmarks/end_to_end.py --data DIR --store STORE --teacher NAME STUDENT [STUDENT ...]

A STUDENT is an exported folder, with the code that was saved with it; float32 where there is none. A pair's folder embeds the
queries, and its documents are the teacher's vectors, after the pair's head. The documents are all those of the data's
largest retrieval set. Vectors that STORE has, where `distilbench evaluate` leaves them, are taken from there. Of each encoder
there is the exact index that `distilbench index` makes; the teacher has float32.

Tokenising, encoding and searching count: a query at a time, and 32 at a time. The encoders take turns, so that what else the
machine does meets all of them. Seconds are the thread's own; the median of --rounds rounds counts. MRR@10 is of the same
indexes and all test queries. --out writes the table's numbers as JSON.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from distilbench.commands.index import chosen_code
from distilbench.data.corpus import Corpus, RetrievalSet, Rows
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits
from distilbench.data.roles import DOCUMENT, QUERY
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import prompt_of
from distilbench.encoders.shared_space import DOCUMENTS, SharedSpace
from distilbench.errors import InputError
from distilbench.evaluation.cost import BATCH, on_threads, read_texts
from distilbench.evaluation.faiss_codes import Code, unit
from distilbench.evaluation.indexes import MORE, IndexSpec, document_index, stored_codes
from distilbench.evaluation.ranking import ranking_metrics
from distilbench.evaluation.retrieval import BLOCK, Documents, faiss_threads
from distilbench.prepare.encode import CorpusEncoding
from distilbench.storage.files import fingerprint, write_json
from distilbench.storage.store import ArtifactStore

RANKS = 10
SINGLES, BATCHED = 64, 256
"""Queries of a round: one at a time, and in batches."""


class Searcher(NamedTuple):
    """An encoder and the index of its documents. `again`: what FAISS finds is ranked again by cosine."""

    name: str
    model: Any
    prompt: str
    index: Any
    again: bool
    megabytes: float

    def search(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The positions of the first documents, Q x RANKS, best first: as the README of an index searches it."""
        query_QD = unit(read_texts(self.model, texts, self.prompt))
        if not self.again:
            found_QR: NDArray[np.int64] = self.index.search(query_QD, RANKS)[1]
            return found_QR
        _, found_QR, vectors_QRD = self.index.search_and_reconstruct(query_QD, RANKS * MORE)
        cosine_QR = np.einsum("qrd,qd->qr", vectors_QRD, query_QD)
        cosine_QR /= np.linalg.norm(vectors_QRD, axis=2).clip(1e-12)
        best_QR = np.argsort(-cosine_QR, axis=1, kind="stable")[:, :RANKS]
        return np.take_along_axis(found_QR, best_QR, axis=1)


def main() -> None:
    """Index the documents, take turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("students", nargs="+", metavar="STUDENT")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--backend", choices=("torch", "bf16"), default="torch", help="what reads the documents")
    parser.add_argument("--max-documents", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    try:
        largest, rows = measured(asked)
    except InputError as error:
        raise SystemExit(str(error)) from None
    print(f"{len(largest.documents):,} documents of {largest.name}, {len(largest.queries):,} test queries\n")
    print(table(rows))
    if asked.out:
        write_json(asked.out, {"documents": len(largest.documents), "queries": len(largest.queries), "rows": rows})


def measured(asked: argparse.Namespace) -> tuple[RetrievalSet, list[dict[str, Any]]]:
    """The largest test set, and a row for each encoder, the teacher first.

    Raises:
        InputError: the data has no retrieval set with a test split, or an encoder or the data cannot be read.
    """
    store = ArtifactStore(asked.store)
    corpus = evaluation_corpus(asked.data, ("retrieval",), Limits(documents=asked.max_documents or None))
    tests = [s for s in corpus.retrieval if s.split == "test"]
    if not tests:
        raise InputError(f"--data {asked.data}: no retrieval set with a test split")
    largest = max(tests, key=lambda s: len(s.documents))
    documents, queries = texts(corpus, largest.documents), texts(corpus, largest.queries)
    with on_threads(1), faiss_threads(1):
        searchers = [searcher(name, asked, documents, store) for name in (asked.teacher, *asked.students)]
        metrics = [ranking_metrics(found(s, queries), largest.relevant)["mrr@10"] for s in searchers]
        times = taking_turns(searchers, queries, asked.rounds)
    rows = [
        {"encoder": s.name, "mrr@10": 100 * float(mrr_Q.mean()), "index_mb": s.megabytes, **milliseconds}
        for s, mrr_Q, milliseconds in zip(searchers, metrics, times, strict=True)
    ]
    return largest, rows


def texts(corpus: Corpus, rows: Rows) -> list[str]:
    """The texts of these rows."""
    return [corpus.sentences[int(row)] for row in rows]


def searcher(name: str, asked: argparse.Namespace, documents: Sequence[str], store: ArtifactStore) -> Searcher:
    """The encoder of the queries, with an index of all documents in its code."""
    spec = EncoderSpec(name)
    code, pair = chosen_code(spec, name, None), spec.check_roles("STUDENT")
    reader = EncoderSpec(asked.teacher) if pair else spec
    encoding = CorpusEncoding(reader, store, reader.title, "float32", asked.backend, in_process=True)
    roles_N = np.full(len(documents), DOCUMENT, dtype=np.int8)
    made, _ = encoding.vectors(CorpusText(documents, fingerprint(["documents", *documents]), roles_N))
    model, width = spec.load("cpu").eval(), spec.width()
    prompt = model.prompts["query"] if pair else prompt_of(model, spec.prompt_before(QUERY))
    space = SharedSpace.load(Path(name) / DOCUMENTS) if pair else SharedSpace(width)
    if space is None:
        raise InputError(f"STUDENT {name}: no {DOCUMENTS} folder; expected what `export` writes of a pair")
    if pair:
        model = SentenceTransformer(modules=list(model[0].sub_modules["query"]), truncate_dim=model.truncate_dim)

    def take(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.ascontiguousarray(space.documents(made.take(rows))[:, :width])

    vectors = Documents(take, np.arange(made.rows), width, "documents")
    return over(f"{spec.title}, {code.kind}", model, prompt, code.load(), vectors)


def over(title: str, model: Any, prompt: str, code: Code | None, vectors: Documents) -> Searcher:
    """A searcher of documents' vectors, N x D, in a code; None is float32."""
    index = document_index(IndexSpec("flat"), vectors.width, vectors.rows, np.empty((0, 0), dtype=np.uint8), code)
    size = 0
    for start in range(0, vectors.rows, BLOCK):
        block_ND = vectors.block(start, min(start + BLOCK, vectors.rows))
        codes_NB = stored_codes(code, block_ND)
        index.add_codes(codes_NB)
        size += codes_NB.size
    return Searcher(title, model, prompt, index.held, index.rescored, size / 1e6)


def found(one: Searcher, queries: Sequence[str]) -> NDArray[np.int64]:
    """The first documents of all queries."""
    return np.concatenate([one.search(queries[start : start + BATCH]) for start in range(0, len(queries), BATCH)])


def taking_turns(searchers: Sequence[Searcher], queries: Sequence[str], rounds: int) -> list[dict[str, float]]:
    """Milliseconds of a query for each searcher, one at a time and in batches: the medians over the rounds."""
    chosen = [queries[int(i)] for i in np.linspace(0, len(queries) - 1, min(BATCHED, len(queries)))]
    batches = [chosen[start : start + BATCH] for start in range(0, len(chosen), BATCH)]
    singles = [[text] for text in chosen[:: max(1, len(chosen) // SINGLES)]]
    medians: list[dict[str, float]] = [{} for _ in searchers]
    for kind, pieces in (("single_ms", singles), ("batched_ms", batches)):
        rounds_RS = [_round(searchers, pieces) for _ in range(rounds)]
        for own, times_R in zip(medians, zip(*rounds_RS, strict=True), strict=True):
            own[kind] = statistics.median(times_R)
    return medians


def _round(searchers: Sequence[Searcher], pieces: Sequence[Sequence[str]]) -> list[float]:
    """Milliseconds of a query for each searcher; they take turns piece by piece."""
    spent = [0.0] * len(searchers)
    for piece in pieces:
        for place, one in enumerate(searchers):
            began = time.thread_time()
            one.search(piece)
            spent[place] += time.thread_time() - began
    return [1000 * seconds / sum(map(len, pieces)) for seconds in spent]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown; "kept" and "times" are beside the first one, the teacher."""
    lines = [
        "| encoder and code | MRR@10 | kept | index, MB | one query, ms | times | 32 at once, ms each | times |",
        "|---" * 8 + "|",
    ]
    teacher = rows[0]
    for row in rows:
        times = [f"{row[kind]:.2f} | {teacher[kind] / row[kind]:.1f}" for kind in ("single_ms", "batched_ms")]
        kept = f"{100 * row['mrr@10'] / teacher['mrr@10']:.1f} %"
        lines.append(
            f"| {row['encoder']} | {row['mrr@10']:.2f} | {kept} | {row['index_mb']:.1f} | {times[0]} | {times[1]} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
