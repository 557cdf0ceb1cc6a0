"""Retrieval within the query's own cluster (MCR2, table 1): by an exported student's cluster head, and by k-means.

    python benchmarks/clusters.py STUDENT ... --data DIR --store STORE [--clusters 128] [--threads 1] [--out clusters.json]

Each retrieval set of DIR is searched within so many clusters, by default as many as the student's own head has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import faiss
import numpy as np
from cluster_head import load_cluster_head
from faiss.contrib.ivf_tools import add_preassigned, search_preassigned
from numpy.typing import NDArray

from distilbench.data.corpus import Corpus, RetrievalSet, Rows
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits
from distilbench.data.roles import DOCUMENT, QUERY
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import unit
from distilbench.evaluation.retrieval import DEPTH, faiss_threads, timed
from distilbench.evaluation.sts import Embed
from distilbench.machine import torch_threads
from distilbench.prepare.encode import CorpusEncoding
from distilbench.storage.files import fingerprint, write_json
from distilbench.storage.store import ArtifactStore

ITERATIONS = 25
"""The iterations of k-means: FAISS's own default."""
MOST_CLUSTERED = 500_000
"""Documents of a set at most: k-means wants them in memory."""


class ClusterCost(NamedTuple):
    """Retrieval within the query's own cluster, one way of clustering the documents."""

    set: str
    split: str
    kind: Literal["implicit", "k-means"]
    """By the method's own cluster head, or by k-means on the same vectors."""
    clusters: int
    used: int
    """Clusters that hold at least one document."""
    documents: int
    queries: int
    accuracy: float
    """Share (x 100) of queries with a relevant document in their own cluster."""
    searched: float
    """Mean share (x 100) of the documents that are in the query's cluster: what a search reads."""
    fit_s: float
    """Seconds to fit k-means; 0 for the method's own clusters, which are learned in training."""
    assign_s: float
    """Seconds to assign all documents and queries, from their teacher embeddings or vectors on."""
    search_s: float
    """Seconds to search all queries within their clusters."""
    threads: int


def main() -> None:
    """Measure each student on each retrieval set, and print a line for each way of clustering."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("students", nargs="+", metavar="STUDENT")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--clusters", type=int)
    parser.add_argument("--max-documents", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    store = ArtifactStore(options.store)
    rows = []
    try:
        corpus = evaluation_corpus(options.data, ("retrieval",), Limits(documents=options.max_documents))
        for student in options.students:
            for search in corpus.retrieval:
                costs = measured(EncoderSpec(student), corpus, search, options.clusters, store, options.threads)
                rows += [{"student": student, **cost._asdict()} for cost in costs]
    except InputError as error:
        raise SystemExit(str(error)) from None
    for row in rows:
        seconds = row["fit_s"] + row["assign_s"] + row["search_s"]
        print(
            f"{row['student']}  {row['set']} ({row['split']})  {row['kind']}  {row['clusters']} clusters  "
            f"{row['accuracy']:.1f} % with an answer  {row['searched']:.1f} % searched  {seconds:.2f} s"
        )
    if options.out:
        write_json(options.out, rows)


def measured(
    spec: EncoderSpec, corpus: Corpus, search: RetrievalSet, clusters: int | None, store: ArtifactStore, threads: int
) -> list[ClusterCost]:
    """Measure a student on a retrieval set, in `clusters` clusters; None: as many as its own cluster head has."""
    folder = spec.folder()
    head = load_cluster_head(folder) if folder is not None else None
    wanted = clusters or (head.clusters if head else None)
    if wanted is None:
        raise InputError(f"{spec.name}: no cluster head; expected --clusters with their number")
    documents, queries = len(search.documents), len(search.queries)
    if documents > MOST_CLUSTERED:
        raise InputError(f"{search.name}: {documents:,} documents; expected --max-documents {MOST_CLUSTERED} or fewer")
    documents_read, queries_read = (
        [corpus.sentences[int(row)] for row in rows] for rows in (search.documents, search.queries)
    )
    encoding = CorpusEncoding(spec, store, spec.title, "float32", in_process=True)
    sides = (documents_read, DOCUMENT), (queries_read, QUERY)
    parts = [
        encoding.vectors(CorpusText(texts, fingerprint([role, *texts]), np.full(len(texts), role, dtype=np.int8)))[0]
        for texts, role in sides
    ]
    vectors_MD = np.concatenate([part.block(0, part.rows) for part in parts]).astype(np.float32)
    task = RetrievalSet(
        search.name, search.split, documents + np.arange(queries), np.arange(documents), search.relevant
    )
    assign = None
    if head is not None and head.clusters == wanted:
        states_MD = np.concatenate([head.states(texts, spec.prompt_before(role)) for texts, role in sides])
        assign = lambda rows: head.assign(states_MD[rows])  # noqa: E731
    return cluster_costs(vectors_MD.__getitem__, task, wanted, assign, threads)


def cluster_costs(
    embed: Embed,
    task: RetrievalSet,
    clusters: int,
    assign: Callable[[Rows], NDArray[np.int64]] | None,
    threads: int = 1,
    seed: int = 0,
) -> list[ClusterCost]:
    """Accuracy and cost of searching only a query's own cluster: by `assign` (None: left out), then by k-means.

    `assign` gives the cluster, 0 to `clusters` - 1, of corpus rows: the method's own head. k-means clusters the vectors
    of the documents into as many, by cosine. Compare accuracies at equal `searched` only: with all documents in one
    cluster both are 100. Assignments and searches are the fastest of a few, on `threads` threads (`assign` on its
    method's device); putting the documents into lists is in no figure.
    """
    if not 1 <= clusters <= len(task.documents):
        raise ValueError(
            f"{clusters} clusters for the {len(task.documents)} documents of {task.name} ({task.split}): "
            "expected at least 1 and at most as many as documents"
        )
    rows_M = np.concatenate([task.documents, task.queries])
    vectors_MD = np.ascontiguousarray(unit(embed(rows_M)))
    documents_ND, queries_QD = np.split(vectors_MD, [len(task.documents)])

    def cost(
        kind: Literal["implicit", "k-means"], cluster_M: NDArray[np.int64], fit: float, took: float
    ) -> ClusterCost:
        document_N, query_Q = np.split(cluster_M, [len(documents_ND)])
        size_K = np.bincount(document_N, minlength=clusters)
        lists = cluster_lists(documents_ND, document_N, clusters)
        _, search_s = timed(search_lists, lists, queries_QD, query_Q, min(DEPTH, len(documents_ND)))
        return ClusterCost(
            set=task.name,
            split=task.split,
            kind=kind,
            clusters=clusters,
            used=int((size_K > 0).sum()),
            documents=len(documents_ND),
            queries=len(queries_QD),
            accuracy=accuracy(document_N, query_Q, task.relevant),
            searched=100 * float(size_K[query_Q].mean()) / len(documents_ND),
            fit_s=fit,
            assign_s=took,
            search_s=search_s,
            threads=threads,
        )

    costs = []
    with torch_threads(threads), faiss_threads(threads):
        if assign is not None:
            cluster_M, seconds = timed(assign, rows_M)
            if cluster_M.shape != rows_M.shape or cluster_M.min() < 0 or cluster_M.max() >= clusters:
                raise ValueError(f"assign gave clusters out of range; expected 0 to {clusters - 1} for every row")
            costs.append(cost("implicit", cluster_M, 0.0, seconds))
        began = time.perf_counter()
        centroids = spherical_kmeans(documents_ND, clusters, seed)
        fit_s = time.perf_counter() - began
        cluster_M, seconds = timed(lambda: centroids.search(vectors_MD, 1)[1][:, 0])
        costs.append(cost("k-means", cluster_M, fit_s, seconds))
    return costs


def spherical_kmeans(vectors_ND: NDArray[np.float32], clusters: int, seed: int) -> faiss.Index:
    """An exact index of the centroids (norm 1) of FAISS's k-means by cosine, of rows of norm 1, with k-means++ start.

    FAISS and not scikit-learn, which the paper used: on 9,674 MiniLM vectors it took 2 to 4 times less than Lloyd's and
    3 to 5 times less than the mini-batch algorithm there, for a mean cosine to the centroid within 0.8 %.
    """
    kmeans = faiss.Kmeans(
        vectors_ND.shape[1],
        clusters,
        niter=ITERATIONS,
        spherical=True,
        seed=seed,
        init_method=faiss.ClusteringInitMethod_KMEANS_PLUS_PLUS,
        min_points_per_centroid=1,  # its warning from 39 down is for indexes
        max_points_per_centroid=len(vectors_ND),  # no sampling
    )
    kmeans.train(vectors_ND)
    return kmeans.index


def accuracy(
    document_N: NDArray[np.int64], query_Q: NDArray[np.int64], relevant: tuple[NDArray[np.int64], ...]
) -> float:
    """Share (x 100) of queries with a relevant document in their own cluster, from the clusters of both."""
    found = [(document_N[wanted] == own).any() for own, wanted in zip(query_Q, relevant, strict=True)]
    return 100 * float(np.mean(found))


def cluster_lists(
    documents_ND: NDArray[np.float32], document_N: NDArray[np.int64], clusters: int
) -> faiss.IndexIVFFlat:
    """The documents in one inverted list for each cluster; the quantizer that the index needs is never asked."""
    width = documents_ND.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, clusters, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True
    add_preassigned(index, documents_ND, document_N)
    return index


def search_lists(
    index: faiss.IndexIVFFlat, queries_QD: NDArray[np.float32], query_Q: NDArray[np.int64], depth: int
) -> NDArray[np.int64]:
    """Positions of the documents of the query's cluster, Q x depth, best first; -1 where there are no more."""
    found: NDArray[np.int64] = search_preassigned(index, queries_QD, depth, query_Q[:, None])[1]
    return found


if __name__ == "__main__":
    main()
