"""Principal axes of the teacher's embeddings: one eigendecomposition, whose first d columns serve every d (HPD)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.data.sampling import sample
from distilbench.storage.arrays import ShardedArray, array_sha256, save_array
from distilbench.storage.store import ArtifactStore

CHUNK = 8192
STEP_VERSION = 1


@dataclass(frozen=True)
class Pca:
    """`mean_D` and orthonormal `axes_DD`, columns by falling variance; width D of the teacher."""

    mean_D: NDArray[np.float32]
    axes_DD: NDArray[np.float32]

    def project(self, vectors_ND: NDArray[np.float32], d: int) -> NDArray[np.float32]:
        """W_t^T (e - mean) with the first d axes, N x d (HPD, section 3)."""
        return np.asarray((vectors_ND - self.mean_D) @ self.axes_DD[:, :d], dtype=np.float32)


def fit_pca(vectors: ShardedArray, rows: NDArray[np.int64]) -> Pca:
    """Covariance of `rows` accumulated in float64 over chunks (memory D x D + one chunk), then `eigh`."""
    total_D = np.zeros(vectors.width)
    moment_DD = np.zeros((vectors.width, vectors.width))
    # Moments about a nearby point, so that subtracting n * mean^2 cancels no digits.
    origin_D = vectors.take(rows[:CHUNK]).astype(np.float64).mean(axis=0)
    for start in range(0, len(rows), CHUNK):
        chunk = vectors.take(rows[start : start + CHUNK]).astype(np.float64) - origin_D
        total_D += chunk.sum(axis=0)
        moment_DD += chunk.T @ chunk
    shift_D = total_D / len(rows)
    _, axes_DD = np.linalg.eigh(moment_DD / len(rows) - np.outer(shift_D, shift_D))
    axes_DD = axes_DD[:, ::-1]
    # An axis is defined up to its sign: make the largest entry positive, so that equal inputs give equal files.
    axes_DD = axes_DD * np.sign(axes_DD[np.abs(axes_DD).argmax(axis=0), np.arange(vectors.width)])
    return Pca((origin_D + shift_D).astype(np.float32), np.ascontiguousarray(axes_DD, dtype=np.float32))


def load_pca(folder: Path) -> Pca:
    """The axes kept in an artifact folder."""
    return Pca(*(np.load(folder / name, allow_pickle=False) for name in ("mean.npy", "axes.npy")))


def pca_artifact(vectors: ShardedArray, train: NDArray[np.int64], store: ArtifactStore) -> Path:
    """The folder with the axes of the training sentences (`sampling.sample` of them), fitted if not there."""
    rows = sample(train)
    parts = {"vectors": vectors.folder.name, "rows": array_sha256(rows), "step_version": STEP_VERSION}

    def make(folder: Path, missing: list[str]) -> None:
        pca = fit_pca(vectors, rows)
        save_array(folder / "mean.npy", pca.mean_D)
        save_array(folder / "axes.npy", pca.axes_DD)

    return store.build("pca", parts, ["mean.npy", "axes.npy"], make)
