"""What only a student with a head of its own has: pair tasks by DSE's pair head, clusters by MCR2's cluster head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import RetrievalSet, Rows
from distilbench.data.evaluation_sets import EvaluationData
from distilbench.data.retrieval_sets import SPLITS
from distilbench.data.roles import DOCUMENT, QUERY
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.evaluation.clusters import cluster_costs
from distilbench.evaluation.pairs import pair_scores
from distilbench.evaluation.retrieval_task import Documents
from distilbench.methods.parts.cluster_head import FILE, ClusterHead, load_cluster_head
from distilbench.records import ClusterCost, Score

MOST_CLUSTERED = 500_000


def own_head_scores(spec: EncoderSpec, data: EvaluationData) -> tuple[list[Score], list[str]]:
    """The scores of the task that the student's head was trained for, and a note where that task is not in the data.

    Nothing of an encoder without such a head.

    Raises:
        InputError: its head cannot be read.
    """
    from distilbench.encoders.pair_head import DESCRIPTION, load_pair_scorer

    folder = spec.folder()
    if folder is None or not (folder / DESCRIPTION).is_file():
        return [], []
    scorer = load_pair_scorer(folder, default_device())
    tasks = [task for task in data.corpus.pair_tasks if task.name == scorer.task]
    if not tasks:
        return [], [f"its own pair head, for {scorer.task}, is not scored: there is no such pair task"]
    text, scores = data.corpus.sentences, []
    for split in SPLITS:
        if split not in tasks[0].splits:
            continue
        pairs = tasks[0].splits[split]
        left, right = ([text[int(row)] for row in side] for side in (pairs.left_P, pairs.right_P))
        scores += pair_scores(tasks[0], split, scorer.outputs(left, right))
    return scores, []


def cluster_retrieval(
    spec: EncoderSpec,
    data: EvaluationData,
    documents: Sequence[Documents],
    queries: Sequence[NDArray[np.float32]],
    clusters: int | None,
    threads: int,
) -> tuple[list[ClusterCost], list[str]]:
    """Retrieval within the query's own cluster (MCR2, table 1), in `clusters` clusters or as many as its own head has.

    By the encoder's own cluster head where it has one of that many, and by k-means on its vectors. Nothing where neither
    says how many; sets of more documents than `MOST_CLUSTERED` are left out, and noted, since k-means wants them in memory.

    Raises:
        InputError: its head cannot be read.
    """
    folder = spec.folder()
    head = load_cluster_head(folder) if folder is not None and (folder / FILE).is_file() else None
    wanted = clusters or (head.clusters if head else None)
    costs, notes = list[ClusterCost](), list[str]()
    if wanted is None:
        return costs, notes
    for own, vectors, queries_QD in zip(data.searches, documents, queries, strict=True):
        count = vectors.rows
        if not wanted <= count <= MOST_CLUSTERED:
            notes.append(f"{own.name} ({own.split}): {wanted} clusters of {count:,} documents are not measured")
            continue
        both_MD = np.concatenate([vectors.block(0, count), queries_QD]).astype(np.float32)
        task = RetrievalSet(own.name, own.split, count + np.arange(len(queries_QD)), np.arange(count), own.relevant)
        assign = None
        if head is not None and head.clusters == wanted:
            both = (own.documents, spec.prompt_before(DOCUMENT)), (own.queries, spec.prompt_before(QUERY))
            assign = _assigned(head, np.concatenate([head.states(list(texts), before) for texts, before in both]))
        costs += cluster_costs(both_MD.__getitem__, task, wanted, assign, threads)
    return costs, notes


def _assigned(head: ClusterHead, states_MD: NDArray[np.float32]) -> Callable[[Rows], NDArray[np.int64]]:
    return lambda rows: head.assign(states_MD[rows])
