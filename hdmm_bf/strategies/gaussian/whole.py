"""What the search for goals other than the total does with matrices, over the kept cells.

At weights lam on the queries and mu on the edges X(lam, mu) is the minimiser of tr(V X^-1) + tr(L X); `halves` does the
same for problems that look the same from both ends, in a quarter of the time.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, final, runtime_checkable

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.dense import DualPoint, GramRoot, uniform
from hdmm_bf.problem.forms import EdgeForms, edge_forms
from hdmm_bf.problem.query_forms import QueryForms, query_forms
from hdmm_bf.problem.transform import Problem


class Weights(NamedTuple):
    """Weights that prove a bound on the largest variance."""

    queries: RealVector
    edges: RealVector


class Found(NamedTuple):
    """X(lam, mu), the values of its forms, and f(lam, mu)."""

    root_sum: float
    X: SquareMatrix
    v: RealVector
    d: RealVector


@runtime_checkable
class Kernel(Protocol):
    """What a search asks of a problem; its matrices are in coordinates of the kernel's own."""

    scale: float
    """What variances, errors and bounds are to be multiplied by."""

    @property
    def counts(self) -> tuple[int, int]:
        """How many weights there are on queries and on edges."""

    def folded(self, weights: Weights) -> Weights:
        """Return the weights that the search works with."""

    def unfolded(self, lam: RealVector, mu: RealVector) -> Weights:
        """Return the weights of all queries, or groups, and of all edges."""

    def at(self, lam: RealVector, mu: RealVector) -> Found:
        """Return X(lam, mu)."""

    def distances(self, X: SquareMatrix) -> RealVector:
        """Return d_e(X)."""

    def variances(self, Y: SquareMatrix) -> RealVector:
        """Return v_i(Y)."""

    def move_distances(self, X: SquareMatrix, change: RealVector) -> SquareMatrix:
        """Return X with every d_e moved."""

    def move_variances(self, Y: SquareMatrix, change: RealVector) -> SquareMatrix | None:
        """Return Y with every v_i moved, where that is known."""

    def covariance(self, X: SquareMatrix) -> SquareMatrix | None:
        """Return X^-1, or None where X is not positive."""

    def metric(self, Y: SquareMatrix) -> SquareMatrix | None:
        """Return Y^-1, or None where Y is not positive."""

    def grounded(self, X: SquareMatrix) -> SquareMatrix:
        """Return X over the kept cells."""


@final
class Inside:
    """Coordinates of the range of the workload, the same for all weights; the kept cells themselves if it is full."""

    def __init__(self, V: SquareMatrix) -> None:
        root = GramRoot.of(V)
        self.basis: RealMatrix | None = root.basis

    def shrink(self, M: SquareMatrix) -> SquareMatrix:
        """Return U^T M U."""
        return M if self.basis is None else np.asarray(self.basis.T @ M @ self.basis)

    def grow(self, M: SquareMatrix) -> SquareMatrix:
        """Return U M U^T."""
        return M if self.basis is None else np.asarray(self.basis @ M @ self.basis.T)


@final
class Whole:
    """One block: all the kept cells, or the range of the workload."""

    def __init__(self, problem: Problem) -> None:
        self.queries: QueryForms = query_forms(problem)
        self.edges: EdgeForms = edge_forms(problem.P)
        V = self.queries.gram(uniform(self.queries.count))
        self.scale = float(np.trace(V)) / max(len(V), 1)
        self.inside = Inside(V / self.scale)

    @property
    def counts(self) -> tuple[int, int]:
        """How many weights there are on queries, or groups, and on edges."""
        return self.queries.count, self.edges.num_edges

    def folded(self, weights: Weights) -> Weights:
        """Return the weights as they are."""
        return weights

    def unfolded(self, lam: RealVector, mu: RealVector) -> Weights:
        """Return the weights as they are."""
        return Weights(lam, mu)

    def at(self, lam: RealVector, mu: RealVector) -> Found:
        """Return X(lam, mu)."""
        root, dual = self._dual(lam, mu)
        X = la.symmetric(dual.X)
        Y = root.pseudo_inverse(dual)
        v = np.full(lam.size, math.inf) if Y is None else self.variances(la.symmetric(Y))
        return Found(dual.root_sum, X, v, self.distances(X))

    def dual(self, lam: RealVector, mu: RealVector) -> DualPoint:
        """Return f(lam, mu), also for weights that leave queries out."""
        return self._dual(lam, mu)[1]

    def _dual(self, lam: RealVector, mu: RealVector) -> tuple[GramRoot, DualPoint]:
        root = GramRoot.of(self.inside.shrink(self.queries.gram(lam) / self.scale))
        L = self.edges.laplacian(mu) if self.inside.basis is None else la.symmetric(self.edges.laplacian(mu))
        return root, root.dual_point(self.inside.shrink(L))

    def distances(self, X: SquareMatrix) -> RealVector:
        """Return d_e of an X inside."""
        return self.edges.distances(np.asfortranarray(self.inside.grow(X)))

    def variances(self, Y: SquareMatrix) -> RealVector:
        """Return v_g of a covariance inside."""
        return self.queries.variances(self.inside.grow(Y)) / self.scale

    def move_distances(self, X: SquareMatrix, change: RealVector) -> SquareMatrix:
        """Return X with every d_e moved, as far as that is possible inside."""
        whole = np.array(self.inside.grow(X), order="F")
        self.edges.shift(whole, change)
        return self.inside.shrink(la.symmetric(whole))

    def move_variances(self, Y: SquareMatrix, change: RealVector) -> SquareMatrix | None:
        """Return Y with every v_g moved, where the workload has a closed form for it."""
        return None if self.inside.basis is not None else self.queries.shifted(Y, change * self.scale)

    def covariance(self, X: SquareMatrix) -> SquareMatrix | None:
        """Return X^-1, or None where X is not positive."""
        Y = la.inverse(X)
        return None if Y is None else la.symmetric(Y)

    metric = covariance

    def grounded(self, X: SquareMatrix) -> SquareMatrix:
        """Return X over the kept cells."""
        return self.inside.grow(X)
