"""What a product code and its rotation start from: FAISS's OPQ of the vectors before training (Ge et al. 2013).

Axes: N sentences, d dimensions, M codebooks of K centroids, w = d / M.
"""

from __future__ import annotations

from typing import NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.faiss_codes import CENTROIDS, quick_clustering

ROUNDS = 4
"""Of OPQ, each a rotation and a few rounds of k-means; FAISS has 50."""


class ProductStart(NamedTuple):
    """z R is what is coded; `centroids_MKw` are its codebooks."""

    rotation_dd: NDArray[np.float32]
    centroids_MKw: NDArray[np.float32]


def product_start(vectors_Nd: NDArray[np.float32], codebooks: int) -> ProductStart:
    """Rotation and codebooks of unit vectors."""
    d = vectors_Nd.shape[1]
    if d % codebooks:
        raise ValueError(f"{codebooks} codebooks of {d} dimensions, expected a divisor")
    if len(vectors_Nd) < CENTROIDS:
        raise ValueError(f"{len(vectors_Nd)} vectors for {CENTROIDS} centroids, expected at least as many")
    vectors_Nd = np.ascontiguousarray(vectors_Nd)
    rotation, product = faiss.OPQMatrix(d, codebooks), faiss.ProductQuantizer(d, codebooks, 8)
    product.cp.min_points_per_centroid = 1  # below 39 FAISS warns on the terminal
    rotation.niter, rotation.pq = ROUNDS, product
    with quick_clustering():
        rotation.train(vectors_Nd)
        product.train(rotation.apply(vectors_Nd))
    turn_dd = faiss.vector_to_array(rotation.A).reshape(d, d).T
    centroids = faiss.vector_to_array(product.centroids).reshape(codebooks, CENTROIDS, d // codebooks)
    return ProductStart(np.ascontiguousarray(turn_dd), centroids.copy())
