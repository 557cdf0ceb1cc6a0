"""Principal axes against scikit-learn's, and the artifact that keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from distilbench.data import sampling
from distilbench.prepare import pca as module
from distilbench.prepare.pca import Pca, fit_pca, load_pca, pca_artifact
from distilbench.storage.arrays import ShardedArray, save_array, shard_name, shard_ranges
from distilbench.storage.store import ArtifactStore

ROWS, WIDTH = 300, 12


def data(seed: int = 0, offset: float = 0.3) -> NDArray[np.float32]:
    """Correlated columns with a mean that is not zero and variances well apart, as float16 keeps them."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    points = rng.normal(size=(ROWS, WIDTH)) * 0.8 ** np.arange(WIDTH) @ rotation + offset * np.arange(WIDTH)
    return points.astype(np.float16).astype(np.float32)


def sharded(folder: Path, whole: NDArray[np.float32]) -> ShardedArray:
    for i, (start, stop) in enumerate(shard_ranges(len(whole), 64)):
        save_array(folder / shard_name(i), whole[start:stop].astype(np.float16))
    return ShardedArray(folder, len(whole), whole.shape[1], 64)


@pytest.fixture
def vectors(tmp_path: Path) -> ShardedArray:
    return sharded(tmp_path / "embeddings-one", data())


@pytest.mark.parametrize("chunk", [7, 64, 10_000])  # many chunks, one chunk
@pytest.mark.parametrize("d", [1, 5, WIDTH])
def test_projections_are_those_of_scikit_learn(
    vectors: ShardedArray, monkeypatch: pytest.MonkeyPatch, chunk: int, d: int
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    train, held_out = np.arange(0, 200), vectors.take(np.arange(200, ROWS))
    ours = fit_pca(vectors, train)
    theirs = PCA(WIDTH, svd_solver="full").fit(vectors.take(train).astype(np.float64))
    np.testing.assert_allclose(ours.mean_D, theirs.mean_, atol=1e-5)
    projected = ours.project(held_out, d)
    assert projected.shape == (100, d) and projected.dtype == np.float32
    wanted = theirs.transform(held_out.astype(np.float64))[:, :d]
    np.testing.assert_allclose(np.abs(projected), np.abs(wanted), atol=1e-5)
    # An axis may point either way, but the same way for every row.
    signs = np.sign(projected * wanted)
    assert ((signs == signs[0]) | (np.abs(wanted) < 1e-4)).all()


def test_the_largest_entry_of_every_axis_is_positive(vectors: ShardedArray) -> None:
    axes = fit_pca(vectors, np.arange(ROWS)).axes_DD
    assert (axes[np.abs(axes).argmax(axis=0), np.arange(WIDTH)] > 0).all()


def test_a_far_away_mean_costs_no_digits(tmp_path: Path) -> None:
    # Variances of 1 around a mean of 500: with sums of squares about zero, float32 would lose them.
    whole = np.random.default_rng(0).normal(size=(ROWS, WIDTH)) * (1 + np.arange(WIDTH)) + 500
    vectors = sharded(tmp_path / "far", whole.astype(np.float32))
    rows = np.arange(ROWS)
    ours, theirs = fit_pca(vectors, rows), PCA(WIDTH, svd_solver="full").fit(vectors.take(rows).astype(np.float64))
    np.testing.assert_allclose(np.abs(ours.axes_DD.T), np.abs(theirs.components_), atol=1e-5)


def test_fewer_sentences_than_dimensions(vectors: ShardedArray) -> None:
    pca = fit_pca(vectors, np.arange(4))
    assert np.isfinite(pca.axes_DD).all()
    np.testing.assert_allclose(pca.axes_DD.T @ pca.axes_DD, np.eye(WIDTH), atol=1e-6)
    assert pca.project(vectors.take(np.arange(4)), WIDTH)[:, 3:] == pytest.approx(0, abs=1e-4)


def artifact(vectors: ShardedArray, train: NDArray[np.int64], root: Path) -> tuple[Path, Pca]:
    path = pca_artifact(vectors, train, ArtifactStore(root))
    return path, load_pca(path)


def test_the_artifact_is_fitted_once_and_equal_wherever_it_is_fitted(
    vectors: ShardedArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = np.arange(ROWS)
    path, pca = artifact(vectors, train, tmp_path / "one")
    other, _ = artifact(vectors, train, tmp_path / "two")
    assert path.name == other.name
    for name in ("mean.npy", "axes.npy", "manifest.json"):
        assert (path / name).read_bytes() == (other / name).read_bytes()
    fitted = fit_pca(vectors, train)
    np.testing.assert_array_equal(pca.axes_DD, fitted.axes_DD)
    np.testing.assert_array_equal(pca.mean_D, fitted.mean_D)
    monkeypatch.setattr(module, "fit_pca", lambda *_: pytest.fail("fitted again"))
    assert artifact(vectors, train, tmp_path / "one")[0] == path


def test_axes_are_fitted_on_a_fixed_sample_of_the_training_rows_alone(
    vectors: ShardedArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "SAMPLE", 40)
    asked: list[NDArray[np.int64]] = []

    def remember(vectors: ShardedArray, rows: NDArray[np.int64]) -> Pca:
        asked.append(rows)
        return fit_pca(vectors, rows)

    monkeypatch.setattr(module, "fit_pca", remember)
    train = np.arange(0, ROWS, 2)
    for name in ("one", "two"):
        artifact(vectors, train, tmp_path / name)
    assert len(np.unique(asked[0])) == 40 and set(asked[0]) <= set(train)
    np.testing.assert_array_equal(asked[0], asked[1])
    artifact(vectors, train[:40], tmp_path / "three")
    np.testing.assert_array_equal(asked[2], train[:40])  # no more than the sample: all of them
