"""Retrieval within clusters (benchmarks/clusters.py): known answers on blobs, brute force, the edges, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from distilbench.data.corpus import RetrievalSet, Rows
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits
from distilbench.evaluation.sts import Embed
from distilbench.methods.mcr2 import CLUSTER_HEAD

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from cluster_head import load_cluster_head

import clusters as module
from clusters import cluster_costs

BLOBS, PER_BLOB, WIDTH = 5, 12, 16
DOCUMENTS = BLOBS * PER_BLOB


def blobs(noise: float = 0.05) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """60 vectors in 5 tight orthogonal blobs of 12, in turn, then one query for each blob; and the blob of each row."""
    rng = np.random.default_rng(0)
    blob = np.concatenate([np.arange(DOCUMENTS) % BLOBS, np.arange(BLOBS)])
    vectors = np.eye(WIDTH)[blob] + noise * rng.standard_normal((len(blob), WIDTH))
    lengths = rng.uniform(0.5, 3, (len(blob), 1))  # which cosine does not see
    return (lengths * vectors).astype(np.float32), blob


def task(relevant: list[list[int]], queries: int = BLOBS, documents: int = DOCUMENTS) -> RetrievalSet:
    rows = np.arange(DOCUMENTS, DOCUMENTS + queries)
    return RetrievalSet("blobs", "test", rows, np.arange(documents), tuple(np.array(r) for r in relevant))


OWN_BLOB = [[q + BLOBS] for q in range(BLOBS)]
OTHER_BLOB = [[(q + 1) % BLOBS] for q in range(BLOBS)]


def embed_of(vectors: NDArray[np.float32]) -> Embed:
    return lambda rows: vectors[rows]


@pytest.mark.parametrize(
    ("relevant", "expected"),
    [
        (OWN_BLOB, 100),
        (OTHER_BLOB, 0),
        ([*OWN_BLOB[:2], *OTHER_BLOB[2:]], 40),
        ([[1, 2, 3, 0]] * BLOBS, 80),  # one of several relevant documents is enough; blob 4 has none
    ],
)
def test_blobs_have_the_known_answer(relevant: list[list[int]], expected: float) -> None:
    vectors, blob = blobs()
    implicit, kmeans = cluster_costs(embed_of(vectors), task(relevant), BLOBS, lambda rows: blob[rows])
    assert (implicit.kind, kmeans.kind) == ("implicit", "k-means")
    for cost in (implicit, kmeans):
        assert (cost.set, cost.split, cost.clusters, cost.used) == ("blobs", "test", BLOBS, BLOBS)
        assert (cost.documents, cost.queries, cost.threads) == (DOCUMENTS, BLOBS, 1)
        assert cost.accuracy == pytest.approx(expected)
        assert cost.searched == pytest.approx(100 / BLOBS)
        assert cost.assign_s > 0 and cost.search_s > 0
    assert implicit.fit_s == 0 and kmeans.fit_s > 0


def test_empty_clusters_and_queries_without_documents() -> None:
    """Cluster 7 holds a query alone, clusters 5, 6 and 8 to 9 nothing."""
    vectors, blob = blobs()
    blob[DOCUMENTS] = 7
    implicit, _ = cluster_costs(embed_of(vectors), task(OWN_BLOB), 10, lambda rows: blob[rows])
    assert (implicit.clusters, implicit.used) == (10, BLOBS)
    assert implicit.accuracy == pytest.approx(80)
    assert implicit.searched == pytest.approx(100 / BLOBS * 4 / 5)


def random_case(seed: int) -> tuple[NDArray[np.float32], RetrievalSet, Rows]:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((400, 8)).astype(np.float32)
    relevant = tuple(rng.choice(300, rng.integers(1, 4), replace=False) for _ in range(50))
    return vectors, RetrievalSet("r", "dev", np.arange(300, 350), np.arange(300), relevant), rng.integers(0, 9, 400)


@pytest.mark.parametrize("seed", [0, 1])
def test_figures_equal_brute_force(seed: int) -> None:
    vectors, case, cluster = random_case(seed)
    implicit, _ = cluster_costs(embed_of(vectors), case, 12, lambda rows: cluster[rows])
    hits, shares = [], []
    for query, wanted in zip(case.queries, case.relevant, strict=True):
        own = {int(d) for d in case.documents if cluster[d] == cluster[query]}
        hits.append(bool(own & {int(case.documents[w]) for w in wanted}))
        shares.append(len(own) / 300)
    assert implicit.accuracy == pytest.approx(100 * np.mean(hits))
    assert implicit.searched == pytest.approx(100 * np.mean(shares))


def test_the_command_measures_a_student_by_its_head_and_by_k_means(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Normalize

    torch.manual_seed(0)
    folder = tmp_path / "student"
    trunk = list(SentenceTransformer(str(encoder_folder), device="cpu"))[:2]
    modules = [*trunk, Dense(32, 16, activation_function=torch.nn.Identity()), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    save_file({**torch.nn.Linear(32, 5).state_dict(), "after": torch.tensor(2)}, folder / CLUSTER_HEAD)
    arguments = ["clusters.py", str(folder), "--data", str(data_folder), "--store", str(tmp_path / "store")]
    monkeypatch.setattr(sys, "argv", [*arguments, "--out", str(tmp_path / "out.json")])
    module.main()
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [(r["kind"], r["clusters"]) for r in rows[:2]] == [("implicit", 5), ("k-means", 5)]
    corpus = evaluation_corpus(data_folder, ("retrieval",), Limits())
    search = corpus.retrieval[0]
    head = load_cluster_head(folder)
    assert head is not None
    cluster = head.assign(head.states([corpus.sentences[row] for row in (*search.documents, *search.queries)]))
    inside = [cluster[len(search.documents) + i] in cluster[wanted] for i, wanted in enumerate(search.relevant)]
    assert rows[0]["accuracy"] == pytest.approx(100 * np.mean(inside))
    monkeypatch.setattr(sys, "argv", [*arguments[:1], str(encoder_folder), *arguments[2:]])
    with pytest.raises(SystemExit, match="no cluster head; expected --clusters"):
        module.main()
