"""Quadratic forms over the policy's edges, in O(n^2 + e), never n x e.

With p_e the columns of P_G and the ground as vertex number n,

    L(mu) = sum_e mu_e p_e p_e^T     a weighted, grounded graph Laplacian
    d_e(X) = p_e^T X p_e             squared distances of the vertices in the metric X

Symmetric matrices are Fortran-ordered and hold their *lower triangle*; what stands above is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int
from scipy.linalg import blas

from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.matrix import Incidence


@final
@dataclass(frozen=True, eq=False)
class EdgeForms:
    """The two forms and their derivatives for one graph; make it with `edge_forms(P)`.

    Attributes:
        n: number of vertices, the ground not counted.
        inner, grounded: positions, in the edge list, of edges between two vertices and of edges to the ground.
        high, low: ends of the inner edges, high > low.
        foot: the one end of the grounded edges.
    """

    n: int
    inner: Int[np.ndarray, " i"]
    grounded: Int[np.ndarray, " g"]
    high: Int[np.ndarray, " i"]
    low: Int[np.ndarray, " i"]
    foot: Int[np.ndarray, " g"]
    below: Int[np.ndarray, " i"]

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(self.inner.size + self.grounded.size)

    def laplacian(self, mu: Float64[np.ndarray, " e"]) -> SquareMatrix:
        """Return L(mu)."""
        inner, grounded = mu[self.inner], mu[self.grounded]
        flat = np.zeros(self.n * self.n)
        flat[self.below] = -inner
        degrees = np.bincount(self.high, inner, self.n) + np.bincount(self.low, inner, self.n)
        flat[:: self.n + 1] += degrees + np.bincount(self.foot, grounded, self.n)
        return flat.reshape((self.n, self.n), order="F")

    def distances(self, X: SquareMatrix) -> RealVector:
        """Return d_e(X) for every edge."""
        flat = X.ravel(order="K")
        diagonal = flat[:: self.n + 1]
        between = diagonal[self.high] + diagonal[self.low] - 2 * flat[self.below]
        return self._merge(between, diagonal[self.foot])

    def shift(self, X: SquareMatrix, change: Float64[np.ndarray, " e"]) -> None:
        """Move d_e(X) by change_e, in place, keeping the distance of every pair that is not an edge.

        The distances of all pairs of the n + 1 vertices are a linear image of X, one to one; this is its inverse.
        """
        inner, grounded = change[self.inner], change[self.grounded]
        if grounded.size:
            half = np.bincount(self.foot, grounded / 2, self.n)
            X += half[:, None]
            X += half[None, :]
        X.ravel(order="K")[self.below] -= inner / 2

    def curvature(self, L: SquareMatrix, Y: SquareMatrix) -> RealVector:
        """Return the second derivatives of tr(V X^-1) along d_e, where X^-1 V X^-1 = L and Y = X^-1."""
        flat_L, flat_Y = L.ravel(order="K"), Y.ravel(order="K")
        diagonal_L, diagonal_Y = flat_L[:: self.n + 1], flat_Y[:: self.n + 1]
        crossed = diagonal_L[self.high] * diagonal_Y[self.low] + diagonal_L[self.low] * diagonal_Y[self.high]
        between = crossed / 2 + flat_L[self.below] * flat_Y[self.below]
        if not self.grounded.size:
            return self._merge(between, np.empty(0))
        sums_L, sums_Y, foot = row_sums(L), row_sums(Y), self.foot
        outer = diagonal_L[foot] * sums_Y.sum() + sums_L.sum() * diagonal_Y[foot]
        return self._merge(between, outer / 2 + sums_L[foot] * sums_Y[foot])

    def _merge(self, inner: RealVector, grounded: RealVector) -> RealVector:
        merged = np.empty(self.num_edges)
        merged[self.inner], merged[self.grounded] = inner, grounded
        return merged


def edge_forms(P: Incidence) -> EdgeForms:
    """Prepare the forms for a grounded incidence matrix without parallel edges."""
    n = P.num_vertices
    inner, grounded = np.flatnonzero(P.tail >= 0), np.flatnonzero(P.tail < 0)
    high = np.maximum(P.head[inner], P.tail[inner])
    low = np.minimum(P.head[inner], P.tail[inner])
    return EdgeForms(n, inner, grounded, high, low, P.head[grounded], low * n + high)


def row_sums(S: SquareMatrix) -> RealVector:
    """Row sums of a symmetric matrix held in its lower triangle."""
    return np.asarray(blas.dsymv(1.0, S, np.ones(len(S)), lower=1))
