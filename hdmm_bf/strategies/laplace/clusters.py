"""Like cells side by side: points for the cells of a workload, and clusters of them."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.cluster.vq import kmeans2

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, SquareMatrix


def embedding(V: SquareMatrix) -> RealMatrix:
    """Return V^(1/2): row i is column i of W, rotated, so that near rows are cells with like queries."""
    values, Q = la.eigen(V)
    return np.asarray((Q * np.sqrt(np.maximum(values, 0))) @ Q.T)


def clusters(points: RealMatrix, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return a cluster number for every point; some clusters may stay empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # k-means says so when a cluster is empty, which does no harm here
        return np.asarray(kmeans2(points, count, minit="++", rng=rng, iter=25)[1])
