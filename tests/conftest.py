"""Small real things that many tests share: an encoder of 2 layers, a data folder, one Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import make_data, make_encoder

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are so small that threads only wait for each other
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests may take longest begin first: what runs beside them ends with them."""
    limit: dict[Path, float] = {}
    for item in items:
        mark = item.get_closest_marker("timeout")
        limit[item.path] = max(limit.get(item.path, 0), mark.args[0] if mark else 0)
    items.sort(key=lambda item: -limit[item.path])


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder of width 32 and 4 layers."""
    return make_encoder(tmp_path_factory.mktemp("encoders") / "tiny")


@pytest.fixture(scope="session")
def narrow_encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder of width 16 and one layer, of the same vocabulary."""
    return make_encoder(tmp_path_factory.mktemp("encoders") / "narrow", width=16, layers=1, seed=5)


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data folder; copy it before changing it."""
    return make_data(tmp_path_factory.mktemp("data") / "small")


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The one Ray cluster of this test session, 2 CPUs."""
    from distilbench.cluster.resources import ray_cluster

    with ray_cluster(None, 2, dashboard=False):
        yield


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory, data_folder: Path, encoder_folder: Path) -> Path:
    """Prepared inputs of trials on the small data folder; `sentences.txt` holds the corpus rows, one a line."""
    from distilbench.data.folder import Limits, folder_corpus
    from distilbench.data.requirements import Requirements
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.prepare.encode import CorpusEncoding
    from distilbench.prepare.pca import pca_artifact
    from distilbench.prepare.prepared import Artifacts, StudentArtifacts
    from distilbench.prepare.tokens import tokens_artifact
    from distilbench.storage.store import ArtifactStore

    root = tmp_path_factory.mktemp("prepared")
    corpus = folder_corpus(data_folder, Limits(), Requirements(triplets=True))
    teacher, store = EncoderSpec(str(encoder_folder)), ArtifactStore(root / "store")
    vectors, _ = CorpusEncoding(teacher, store, "test", in_process=True).vectors(corpus.text)
    pca = pca_artifact(vectors, corpus.train, store)
    tokens = tokens_artifact(corpus.text, teacher, store)
    student = StudentArtifacts("layers:0,2", tokens=tokens)
    Artifacts(corpus, teacher, vectors, pca, student).save(root / "prepared")
    (root / "prepared" / "sentences.txt").write_text("\n".join(corpus.sentences))
    return root / "prepared"
