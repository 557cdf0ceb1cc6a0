"""Retrieval over documents read block by block: exact metrics, and what every kind of index costs and finds.

The corpus may be larger than memory: a block is read and normalised once, added to every index and offered to the exact
search, which keeps the best of each query. Peak memory is the indexes and a few blocks, or the training sample of one index
where that is larger (39 vectors for each list: 16 % of a million documents, 6 % of ten million).

Axes in names: N documents (of a block or sample), D dimensions, Q queries, R ranks (best first).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import RetrievalSet, Rows
from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import resampled_mean, score_of
from distilbench.evaluation.faiss_codes import Code, unit
from distilbench.evaluation.indexes import DocumentIndex, IndexSpec, document_index, overlap, serialised_bytes, widen
from distilbench.evaluation.ranking import ranking_metrics, without_own
from distilbench.evaluation.sts import Embed
from distilbench.records import IndexCost, Metric, Score

PerQuery = dict[Metric, NDArray[np.float64]]
DEPTH = 100
THREADS = 1
"""Threads of searches."""
REPEATS = 3
"""Searches timed at most; the fastest counts."""
ENOUGH_S = 0.1
"""After so many seconds of searches no more of them are timed: what takes long is not disturbed as a whole."""
BLOCK = 16_384
"""Documents read at a time: 50 MB at 768 dimensions."""
RUN = 64
"""Consecutive rows of a training sample, which is spread over the whole corpus. Opening a shard for each run of 16 took 15
times as long as reading all 200,000 rows."""
FIRST = 10
"""The first documents of each query, which predictions keep."""
LEAST_NORM = 1e-15
"""Below it the squares of float32 lose digits, then vanish."""


@dataclass(frozen=True)
class Documents:
    """The documents of a retrieval set: the first `width` dimensions of the vectors of the rows `positions`.

    `where` names the set, for an error. `own_QD` are the queries by the encoder of the documents, where another one asks.
    """

    take: Embed
    positions: Rows
    width: int
    where: str
    own_QD: NDArray[np.float32] | None = None

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.positions)

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """The unit vectors of documents `start` to `stop` - 1, checked; a document may be asked for more than once."""
        vectors_ND = self.take(self.positions[start:stop])[:, : self.width]
        return _checked_unit(vectors_ND, start, f"{self.where}: document")

    def sample(self, rows: int) -> NDArray[np.float32]:
        """`rows` documents in runs spread evenly over all."""
        out_ND = np.empty((rows, self.width), dtype=np.float32)
        runs = -(-rows // RUN)
        spread = runs * RUN <= self.rows
        starts = np.linspace(0, self.rows - RUN, runs).astype(int) if spread else RUN * np.arange(runs)
        for at, start in zip(range(0, rows, RUN), starts.tolist(), strict=True):
            size = min(RUN, rows - at)
            out_ND[at : at + size] = self.block(start, start + size)
        return out_ND


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """`per_query` (0 to 1, a value for each query) is of the exact search by float32 inner products, `by_code` of the index
    of each code. `first` has by code ("float32": the exact search) the positions of the first `FIRST` documents, Q x R.

    `costs` are in the order of the kinds asked for, the codes after them; `notes` say what is left out and why.
    """

    costs: list[IndexCost]
    per_query: PerQuery
    by_code: dict[str, PerQuery]
    first: dict[str, NDArray[np.int64]]
    notes: list[str]


def retrieval_task_scores(task: RetrievalSet, per_query: PerQuery) -> list[Score]:
    """The means over queries x 100, with their bootstrap intervals."""
    described = {"task": "retrieval", "set": task.name, "split": task.split}
    return [
        score_of(resampled_mean(value_Q), len(value_Q), metric=metric, **described)
        for metric, value_Q in per_query.items()
    ]


def evaluate_retrieval(
    documents: Documents,
    queries_QD: NDArray[Any],
    task: RetrievalSet,
    indexes: Sequence[IndexSpec],
    codes: Sequence[Code] = (),
    block: int = BLOCK,
) -> RetrievalResult:
    """Search the documents exactly and by each of `indexes` and `codes`.

    A recall whose k is not below the number of documents is left out, and noted: any encoder would have 100. An index is
    searched for the first min(100, documents) of all queries, up to three times; the fastest counts. Its build time is
    training and adding, without reading and normalising. Where the documents' own encoder has queries too, lists and graphs
    are searched once more as `widen` has it; the first of `indexes` is flat then.
    """
    specs: list[IndexSpec] = []
    too_many: list[str] = []
    for spec in indexes:
        try:
            specs.append(spec.resolved(documents.rows))
        except InputError as error:
            too_many.append(f"{documents.where}: not measured: {error}")
    queries_QD = _checked_unit(queries_QD, 0, f"{documents.where}: query")
    with faiss_threads(THREADS):
        started = [_started(spec, documents) for spec in specs]
        started += [_started(IndexSpec("flat"), documents, code) for code in codes]
        depth = min(DEPTH + (task.own_Q is not None), documents.rows)
        exact_QR, adding = _filled(documents, [index for index, _ in started], queries_QD, depth, block)
        exact_QR = without_own(exact_QR, task.own_Q, DEPTH)
        built = [(index, training + added) for (index, training), added in zip(started, adding, strict=True)]
        measured = [_cost(task, index, exact_QR, queries_QD, depth, build_s) for index, build_s in built]
        again = [
            _cost(task, index, exact_QR, queries_QD, depth, build_s)[0]
            for index, build_s in built
            if documents.own_QD is not None and widen(index, built[0][0], queries_QD, documents.own_QD)
        ]
    per_query, notes = _told(ranking_metrics(exact_QR, task.relevant, task.grades), documents.where, documents.rows)
    by_code: dict[str, PerQuery] = {}
    first = {"float32": exact_QR[:, :FIRST].copy()}
    for code, (_, values, first[code.kind]) in zip(codes, measured[len(specs) :], strict=True):
        by_code[code.kind] = {metric: value_Q for metric, value_Q in values.items() if metric in per_query}
    costs = [*(cost for cost, *_ in measured), *again]
    return RetrievalResult(costs, per_query, by_code, first, [*notes, *too_many])


def _checked_unit(rows_ND: NDArray[Any], first: int, what: str) -> NDArray[np.float32]:
    """Rows of norm 1, which are numbers `first` and on of all `what`."""
    with np.errstate(over="ignore"):
        float_ND = np.asarray(rows_ND, dtype=np.float32)
        norm_N = np.linalg.norm(float_ND, axis=1)
    bad_N = np.flatnonzero(~((norm_N >= LEAST_NORM) & (norm_N < np.inf)))
    if len(bad_N):
        i = bad_N[0]
        strange_D = np.flatnonzero(~np.isfinite(float_ND[i]))
        problem = f"dimension {strange_D[0]} is {rows_ND[i][strange_D[0]]}" if len(strange_D) else f"norm {norm_N[i]:g}"
        raise InputError(f"{what} {first + i}: {problem}, expected finite float32 numbers, not all 0")
    return unit(float_ND)


def _started(spec: IndexSpec, documents: Documents, code: Code | None = None) -> tuple[DocumentIndex, float]:
    """The trained, empty index, and the seconds of training."""
    sample_ND = documents.sample(spec.training_rows(documents.rows))
    began = time.perf_counter()
    index = document_index(spec, documents.width, documents.rows, sample_ND, code, on_gpu=True)
    return index, time.perf_counter() - began


def _filled(
    documents: Documents, indexes: Sequence[DocumentIndex], queries_QD: NDArray[np.float32], depth: int, block: int
) -> tuple[NDArray[np.int64], list[float]]:
    """Adds all documents to the indexes: the exact best of each query, Q x R, and the seconds of adding to each.

    The exact search takes the mean of the first block from all documents: that moves every inner product of a query alike,
    and leaves float32 the digits that tell crowded vectors apart.
    """
    seconds = [0.0] * len(indexes)
    origin_D: NDArray[np.float32] | None = None
    best = faiss.ResultHeap(len(queries_QD), depth, keep_max=True)
    for start in range(0, documents.rows, block):
        block_ND = documents.block(start, min(start + block, documents.rows))
        for i, index in enumerate(indexes):
            began = time.perf_counter()
            index.add(block_ND)
            seconds[i] += time.perf_counter() - began
        if origin_D is None:
            origin_D = block_ND.mean(axis=0, dtype=np.float64).astype(np.float32)
        block_ND -= origin_D
        product_QR, found_QR = faiss.knn(queries_QD, block_ND, min(best.k, len(block_ND)), faiss.METRIC_INNER_PRODUCT)
        best.add_result(product_QR, found_QR + start)
        del block_ND  # before the next one is read
    best.finalize()
    return best.I, seconds


def _cost(
    task: RetrievalSet,
    index: DocumentIndex,
    exact_QR: NDArray[np.int64],
    queries_QD: NDArray[np.float32],
    depth: int,
    build_s: float,
) -> tuple[IndexCost, PerQuery, NDArray[np.int64]]:
    """The cost, the metrics of what it found, and the first documents of each query."""
    queries = len(queries_QD)
    found_QR, search_s = timed(index.search, queries_QD, depth)
    found_QR = without_own(found_QR, task.own_Q, DEPTH)
    values = ranking_metrics(found_QR, task.relevant, task.grades)
    nlist, nprobe = index.spec.lists or (None, None)
    cost = IndexCost(
        set=task.name,
        split=task.split,
        kind=index.kind,
        nlist=nlist,
        nprobe=nprobe,
        documents=len(task.documents),
        queries=queries,
        build_s=build_s,
        bytes=serialised_bytes(index),
        ms_per_1000_queries=1e6 * search_s / queries,
        threads=THREADS,
        device=index.device,
        setting=index.setting,
        mrr10=100 * float(values["mrr@10"].mean()),
        recall100=100 * float(values["recall@100"].mean()),
        overlap10_with_flat=overlap(found_QR, exact_QR),
    )
    return cost, values, found_QR[:, :FIRST].copy()


def _told(values: PerQuery, where: str, documents: int) -> tuple[PerQuery, list[str]]:
    """Without the recalls that every encoder would have, and a note for each."""
    trivial = [m for m in values if m.startswith("recall@") and int(m.removeprefix("recall@")) >= documents]
    notes = [
        f"{where}: {metric} is left out: with {documents} documents it is 100 whatever their order"
        for metric in trivial
    ]
    if documents <= DEPTH:
        notes.append(f"{where}: recall100 of an index's cost is within its first {documents}, all documents")
    return {metric: value_Q for metric, value_Q in values.items() if metric not in trivial}, notes


@contextmanager
def faiss_threads(threads: int) -> Iterator[None]:
    """FAISS works on `threads` threads within the block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def timed(search: Callable[..., NDArray[np.int64]], *arguments: Any) -> tuple[NDArray[np.int64], float]:
    """What `search(*arguments)` finds, and the seconds of its fastest run."""
    seconds = []
    positions = np.empty((0, 0), dtype=np.int64)
    for _ in range(REPEATS):
        began = time.perf_counter()
        positions = search(*arguments)
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > ENOUGH_S:
            break
    return positions, min(seconds)
