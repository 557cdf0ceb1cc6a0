"""The nearest others of each sentence, and the artifact that keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distilbench.prepare import nearest
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.storage.store import ArtifactStore


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("exact", [True, False])
def test_the_nearest_others_are_found(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    """All of them among few sentences; among many nearly all."""
    if not exact:
        monkeypatch.setattr(nearest, "EXACT", 100)
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(40, 1, 16)) + 0.4 * rng.normal(size=(40, 50, 16))).reshape(-1, 16).astype(np.float32)
    vectors[1] = vectors[0]
    found = nearest.nearest_others(3 * vectors, 7)
    cosines = unit(vectors) @ unit(vectors).T
    np.fill_diagonal(cosines, -np.inf)
    best = np.sort(cosines, axis=1)[:, ::-1][:, :7]
    given = np.take_along_axis(cosines, found, axis=1)
    assert found.shape == (2000, 7) and found[0, 0] == 1 and found[1, 0] == 0
    assert (np.abs(given - best) < 1e-5).mean() > (0.999 if exact else 0.9)
    for count in (0, 2000):
        with pytest.raises(ValueError, match="expected 1 to 1999"):
            nearest.nearest_others(vectors, count)


def test_the_artifact_is_made_once_of_the_training_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float16)
    save_array(tmp_path / "vectors" / shard_name(0), values)
    vectors, train = ShardedArray(tmp_path / "vectors", 60, 5, 60), np.arange(10, 50)
    store = ArtifactStore(tmp_path / "store")
    found = nearest.load_nearest(nearest.nearest_artifact(vectors, train, 6, store))
    assert found.dtype == np.int32 and found.shape == (40, 6)
    np.testing.assert_array_equal(found, nearest.nearest_others(values[10:50].astype(np.float32), 6))
    made = nearest.nearest_artifact(vectors, train, 3, store), nearest.nearest_artifact(vectors, train[:30], 6, store)
    monkeypatch.setattr(nearest, "nearest_others", None)
    again = nearest.nearest_artifact(vectors, train, 3, store), nearest.nearest_artifact(vectors, train[:30], 6, store)
    assert made == again and nearest.load_nearest(made[0]).shape == (40, 3)
