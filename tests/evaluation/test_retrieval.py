"""The streaming evaluation against the whole matrix: metrics, costs, memory, and bad input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import in_memory

from distilbench.data.corpus import CorpusBuilder, RetrievalSet
from distilbench.errors import InputError
from distilbench.evaluation.encoders import Vectors, encoder_rows
from distilbench.evaluation.faiss_codes import Code, unit
from distilbench.evaluation.indexes import FAISS_KINDS, IndexSpec
from distilbench.evaluation.ranking import ranking_metrics
from distilbench.evaluation.retrieval import RUN, Documents, evaluate_retrieval, retrieval_task_scores
from distilbench.storage.arrays import ShardedArray, save_array, shard_name

WIDTH = 16
FLAT = (IndexSpec("flat"),)


def vectors(rows: int, seed: int = 0, width: int = WIDTH) -> NDArray[np.float32]:
    """Of many lengths, around 20 centres."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((20, width))
    cloud = centres[rng.integers(0, 20, rows)] + 0.5 * rng.standard_normal((rows, width))
    return (cloud * rng.uniform(0.1, 9, (rows, 1))).astype(np.float32)


def judged(relevant: Sequence[NDArray[np.int64]], grades: Any = None, documents: int = 0) -> RetrievalSet:
    """Only the judgements count here: queries and documents come as vectors."""
    return RetrievalSet("set", "test", np.arange(len(relevant)), np.arange(documents), tuple(relevant), grades)


def asked(documents: NDArray[np.float32], queries: int = 40) -> tuple[NDArray[np.float32], RetrievalSet]:
    """Queries beside the first documents; each has two or three relevant ones, with grades."""
    rng = np.random.default_rng(5)
    query = unit(documents[:queries]) + 0.3 * rng.standard_normal((queries, documents.shape[1])).astype(np.float32)
    relevant = tuple(np.unique([q, (q * 7 + 1) % len(documents), (q * 3 + 2) % len(documents)]) for q in range(queries))
    grades = tuple(rng.integers(1, 4, len(r)).astype(float) for r in relevant)
    return query, judged(relevant, grades, len(documents))


def sharded(folder: Path, array: NDArray[np.floating], shard_rows: int) -> ShardedArray:
    for shard, start in enumerate(range(0, len(array), shard_rows)):
        save_array(folder / shard_name(shard), array[start : start + shard_rows])
    return ShardedArray(folder, len(array), array.shape[1], shard_rows)


@pytest.mark.parametrize("block", [1, 7, 300, 16_384])
def test_scores_are_the_exact_ones_of_the_whole_matrix(block: int) -> None:
    documents = vectors(700)
    queries, task = asked(documents)
    result = evaluate_retrieval(in_memory(documents), queries, task, indexes=(), block=block)
    exact = np.argsort(-(unit(queries) @ unit(documents).T), axis=1, kind="stable")[:, :100]
    expected = ranking_metrics(exact, task.relevant, task.grades)
    assert list(result.per_query) == list(expected)
    for metric, values in expected.items():
        np.testing.assert_allclose(result.per_query[metric], values, err_msg=metric)
    scores = retrieval_task_scores(task, result.per_query)
    told = {s.metric: s.value for s in scores}
    assert all(s.low is not None and s.high is not None and s.low <= s.value <= s.high for s in scores)
    assert told == pytest.approx({metric: 100 * values.mean() for metric, values in expected.items()})
    assert 0 < told["recall@1"] < told["recall@10"] < told["recall@100"] < 100
    assert {(s.task, s.set, s.split, s.variant, s.n) for s in scores} == {("retrieval", "set", "test", "all", 40)}
    assert result.costs == [] and result.notes == []


def test_every_kind_has_its_cost(tmp_path: Path) -> None:
    documents = vectors(2_500).astype(np.float16)
    queries, task = asked(documents.astype(np.float32))
    shards = sharded(tmp_path, documents, 900)
    calibration = vectors(500, seed=3)
    result = evaluate_retrieval(
        Documents(shards.take, np.arange(shards.rows), shards.width, "set (test)"),
        queries,
        task,
        indexes=(*map(IndexSpec, FAISS_KINDS), IndexSpec("ivf", lists=(2_501, 5)), IndexSpec("ivf", lists=(64, 64))),
        codes=(Code.calibrate("int8", calibration), Code.calibrate("binary", calibration)),
        block=400,
    )
    costs = result.costs
    assert result.notes == ["set (test): not measured: ivf:2501:5: 2500 documents; expected at least as many as lists"]
    assert [c.kind for c in costs] == [*FAISS_KINDS, "ivf", "int8", "binary"]
    assert {(c.set, c.split, c.documents, c.queries, c.threads, c.device) for c in costs} == {
        ("set", "test", 2_500, 40, 1, "cpu")
    }
    assert all(c.build_s > 0 and c.ms_per_1000_queries > 0 for c in costs)
    flat, ivf, hnsw, all_lists, int8, binary = costs
    told = {s.metric: s.value for s in retrieval_task_scores(task, result.per_query)}
    for cost in (int8, binary):
        assert 100 * result.by_code[cost.kind]["mrr@10"].mean() == pytest.approx(cost.mrr10)
        assert 100 * result.by_code[cost.kind]["recall@100"].mean() == pytest.approx(cost.recall100)
    assert flat.overlap10_with_flat == all_lists.overlap10_with_flat == 100
    assert flat.mrr10 == pytest.approx(told["mrr@10"]) and flat.recall100 == pytest.approx(told["recall@100"])
    assert (ivf.nlist, ivf.nprobe, all_lists.nprobe, flat.nlist) == (64, 5, 64, None)
    assert 0 < ivf.overlap10_with_flat < 100
    assert min(hnsw.overlap10_with_flat, int8.overlap10_with_flat) > 90
    assert 0 < binary.overlap10_with_flat < 90
    assert binary.bytes < int8.bytes < flat.bytes < ivf.bytes < hnsw.bytes
    assert (ivf.setting, int8.setting, binary.setting) == ("trained on 2496", "rescore=4", "")


class Watched(Documents):
    """Documents that note which rows were read."""

    def __init__(self, array: NDArray[np.float32]) -> None:
        super().__init__(array.__getitem__, np.arange(len(array)), array.shape[1], "watched")
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "read", [])

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        self.read.append((start, stop))
        return super().block(start, stop)


def test_every_row_is_read_once_for_all_indexes() -> None:
    documents = Watched(vectors(1_000))
    queries, task = asked(documents.array)
    evaluate_retrieval(documents, queries, task, indexes=(*FLAT, IndexSpec("hnsw")), block=300)
    assert documents.read == [(0, 300), (300, 600), (600, 900), (900, 1_000)]


def test_training_samples_are_spread_over_the_corpus() -> None:
    documents = Watched(vectors(4_000))
    queries, task = asked(documents.array)
    evaluate_retrieval(documents, queries, task, indexes=(IndexSpec("ivf", lists=(16, 2)),), block=4_000)
    sample, everything = documents.read[:-1], documents.read[-1]
    assert everything == (0, 4_000)
    assert sum(stop - start for start, stop in sample) == 16 * 39
    assert all(one[1] <= next_[0] for one, next_ in pairwise(sample))  # no row twice
    assert sample[0][0] == 0 and sample[-1][0] == 4_000 - RUN


def test_recalls_that_mean_nothing_are_left_out_and_noted() -> None:
    documents = vectors(60)
    queries, task = asked(documents, queries=10)
    result = evaluate_retrieval(in_memory(documents), queries, task, indexes=FLAT)
    assert result.per_query.keys() == {"mrr@10", "ndcg@10", "map@100", "recall@1", "recall@10"}
    assert result.notes == [
        "set (test): recall@100 is left out: with 60 documents it is 100 whatever their order",
        "set (test): recall100 of an index's cost is within its first 60, all documents",
    ]
    tiny = evaluate_retrieval(in_memory(documents[:5]), queries[:2], judged(task.relevant[:1] * 2), indexes=())
    assert tiny.per_query.keys() == {"mrr@10", "ndcg@10", "map@100", "recall@1"}


def changed(row: int, column: int | None, value: float) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    def change(array: NDArray[np.float32]) -> NDArray[np.float32]:
        array = array.copy()
        array[row, slice(None) if column is None else column] = value
        return array

    return change


@pytest.mark.parametrize(
    ("change", "row", "message"),
    [
        (changed(157, 3, np.nan), 157, "dimension 3 is nan"),
        (changed(0, 2, np.inf), 0, "dimension 2 is inf"),
        (changed(199, None, 0), 199, "norm 0"),
        (changed(20, None, 1e-30), 20, "norm 0"),  # squares vanish in float32: not a direction that can be trusted
        (changed(21, None, 1e30), 21, "norm inf"),
    ],
)
@pytest.mark.parametrize("side", ["document", "query"])
def test_vectors_that_have_no_direction_are_named(
    side: str, change: Callable[[NDArray[np.float32]], NDArray[np.float32]], row: int, message: str
) -> None:
    documents = vectors(200)
    queries, task = asked(documents, queries=200)
    good = {"document": documents, "query": queries}
    bad = {**good, side: change(good[side])}
    with pytest.raises(InputError, match=rf"^set \(test\): {side} {row}: {message}, expected finite"):
        evaluate_retrieval(in_memory(bad["document"]), bad["query"], task, indexes=FLAT, block=64)
    with pytest.raises(InputError, match=rf"{side} {row}: {message}"):  # also where a training sample meets it first
        evaluate_retrieval(in_memory(bad["document"]), bad["query"], task, indexes=(IndexSpec("ivf"),), block=64)


def test_documents_that_tie_are_each_found_once_across_blocks() -> None:
    documents = np.repeat(vectors(30), 10, axis=0)  # each ten times, in one block or over two
    task = judged([np.array([10 * q, 10 * q + 9]) for q in range(30)])
    result = evaluate_retrieval(in_memory(documents), documents[::10], task, indexes=FLAT, block=7)
    assert result.per_query["recall@10"].tolist() == [1] * 30
    assert result.costs[0].overlap10_with_flat == 100


@pytest.mark.parametrize("count", [8, 60, 300])
def test_queries_that_are_documents_find_others(count: int) -> None:
    documents = vectors(count)
    cosine = unit(documents) @ unit(documents).T
    np.fill_diagonal(cosine, -1)
    own_Q = np.where(np.arange(8) < 6, np.arange(8), -1)
    nearest = [int(np.argmax(cosine[q])) for q in range(8)]
    task = replace(judged([np.array([d]) for d in nearest], documents=count), own_Q=own_Q)
    result = evaluate_retrieval(in_memory(documents), documents[:8], task, indexes=FLAT)
    # The last two have no document of their own, so the first that they find is the one that they are.
    assert result.per_query["mrr@10"].tolist() == [1] * 6 + [0.5] * 2
    assert result.costs[0].mrr10 == pytest.approx(87.5) and result.costs[0].overlap10_with_flat == 100


@pytest.mark.parametrize("pair", [False, True])
def test_lists_and_graphs_are_of_the_largest_test_set_alone(pair: bool) -> None:
    """Of two that are as large it is the first by name. All else is measured everywhere, and its numbers are the same."""
    builder, found = CorpusBuilder("test"), [{i: 1.0} for i in range(20)]
    for name, split, documents in (("a", "dev", 300), ("c", "test", 200), ("b", "test", 200), ("a", "test", 150)):
        texts = [f"{name} {split} document {i}" for i in range(documents)]
        builder.add_retrieval(name, split, [f"{name} {split} query {i}" for i in range(20)], texts, found)
    corpus = builder.build()
    all_ND = vectors(len(corpus.sentences))
    asked_ND = all_ND + 0.3 * vectors(len(all_ND), seed=5)
    own = Vectors("own", WIDTH, lambda rows: asked_ND[rows], (lambda rows: all_ND[rows]) if pair else None)
    code, kinds = Code.calibrate("int8", all_ND), [IndexSpec("flat"), IndexSpec("ivf")]
    float32, int8 = encoder_rows(own, corpus, [WIDTH], lambda _: [code], kinds)
    every = [("a", "dev"), ("c", "test"), ("b", "test"), ("a", "test")]
    assert [(c.set, c.split) for c in int8.indexes] == [(c.set, c.split) for c in float32.indexes if c.kind == "flat"]
    assert [(c.set, c.split) for c in int8.indexes] == every and {c.kind for c in int8.indexes} == {"int8"}
    lists = [c for c in float32.indexes if c.kind != "flat"]
    assert {(c.set, c.split) for c in lists} == {("b", "test")}
    assert {c.kind for c in lists} == ({"ivf", "hnsw"} if pair else {"ivf"})
    times = {"build_s", "ms_per_1000_queries"}
    for task in corpus.retrieval:
        documents = in_memory((all_ND if pair else asked_ND)[task.documents])
        whole = evaluate_retrieval(documents, asked_ND[task.queries], task, kinds, [code])
        alone = {c.kind: c.model_dump(exclude=times) for c in whole.costs}
        for cost in (c for c in (*float32.indexes, *int8.indexes) if (c.set, c.split) == (task.name, task.split)):
            if cost.kind in alone and "finds" not in cost.setting:
                assert cost.model_dump(exclude=times) == alone[cost.kind]


MEASURE = """
import sys
from pathlib import Path
import numpy as np
from distilbench.evaluation.faiss_codes import Code
from distilbench.data.corpus import RetrievalSet
from distilbench.evaluation.retrieval import Documents, evaluate_retrieval
from distilbench.storage.arrays import ShardedArray

def peak():  # of this process: `ru_maxrss` starts from the parent's
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

codes = (Code.calibrate("pq32", np.random.default_rng(1).standard_normal((1_000, 256))),)
def search(folder, rows):
    documents = ShardedArray(Path(folder), rows, 256, 10_000)
    every = np.arange(rows)
    task = RetrievalSet("m", "test", every[:20], every, tuple(np.array([q]) for q in range(20)))
    taken = Documents(documents.take, every, 256, "m")
    return evaluate_retrieval(taken, documents.block(0, 20), task, (), codes, block=4_096)

search(sys.argv[1], 10_000)  # what the libraries and the training sample take
before = peak()
found = search(sys.argv[1], 100_000)
print(peak() - before, found.per_query["mrr@10"].mean(), found.costs[0].documents)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_a_corpus_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for shard in range(10):
        save_array(tmp_path / shard_name(shard), rng.standard_normal((10_000, 256)).astype(np.float16))
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    growth, mrr, documents = map(float, measured.stdout.split())
    assert (mrr, documents) == (1, 100_000)
    assert growth < 0.25 * 100_000 * 256 * 4  # the matrix, 102 MB; the index is 3 MB
