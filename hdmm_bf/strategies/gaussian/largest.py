"""Gaussian noise: the strategy whose largest variance is least, with its proof, for any policy and any targets.

    primal   minimise max_g v_g(X^-1) * max_e d_e(X)
    dual     maximise f(lam, mu)^2 over weights lam on queries (or groups of them) and mu on edges, each with sum 1,
             f(lam, mu) = || diag(sqrt lam) W_G diag(sqrt mu) ||_* = tr (R L(mu) R^T)^(1/2),   V(lam) = R^T R

v(X) and d(X) at the minimiser X(lam, mu) of tr(V X^-1) + tr(L X) are twice the gradient of f, so the joint ascent is
that of `ascent` on two blocks of weights. f is close to its maximum long before the last query and the last edge are
below f. So beside X(lam, mu) a running mean of these matrices is tried, with the edges that stick out moved down to
their average: in the mean the swings of the ascent cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.dense import DualPoint, GramRoot, uniform
from hdmm_bf.problem.forms import EdgeForms, edge_forms
from hdmm_bf.problem.query_forms import QueryForms, query_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.ascent import LIGHTEST, Momentum
from hdmm_bf.strategies.search import Progress

_LIGHTEST_QUERY = 1e-9
"""Smallest weight of a query, against the largest: what has no weight at all would not be answered."""

_OVERSHOT = 0.97
"""A bound below this share of the best one means that the last step went too far."""

_CLOSE = 30
"""The running mean is tried when X(lam, mu) itself is this many gaps from the bound."""

_NEWEST = 0.3
"""Share of the newest matrix in the running mean: 0.15 and 0.5 took more steps on six problems."""


class Proof(NamedTuple):
    """Weights that prove a bound on the largest variance."""

    queries: RealVector
    edges: RealVector


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


class Found(NamedTuple):
    """X(lam, mu) inside the range of the workload, and the values of its forms."""

    dual: DualPoint
    X: SquareMatrix
    v: RealVector
    d: RealVector


@final
class Kernel:
    """All that the search does with matrices."""

    def __init__(self, queries: QueryForms, edges: EdgeForms) -> None:
        self.queries, self.edges = queries, edges
        V = queries.gram(uniform(queries.count))
        self.scale = float(np.trace(V)) / max(len(V), 1)
        self.inside = Inside(V / self.scale)

    def at(self, lam: RealVector, mu: RealVector) -> Found:
        """Return X(lam, mu)."""
        root, dual = self._dual(lam, mu)
        X = la.symmetric(dual.X)
        Y = root.pseudo_inverse(dual)
        v = np.full(lam.size, math.inf) if Y is None else self._variances(la.symmetric(Y))
        return Found(dual, X, v, self._distances(X))

    def dual(self, lam: RealVector, mu: RealVector) -> DualPoint:
        """Return f(lam, mu), also for weights that leave queries out."""
        return self._dual(lam, mu)[1]

    def _dual(self, lam: RealVector, mu: RealVector) -> tuple[GramRoot, DualPoint]:
        root = GramRoot.of(self.inside.shrink(self.queries.gram(lam) / self.scale))
        L = self.edges.laplacian(mu) if self.inside.basis is None else la.symmetric(self.edges.laplacian(mu))
        return root, root.dual_point(self.inside.shrink(L))

    def moved(self, X: SquareMatrix, mu: RealVector) -> tuple[float, SquareMatrix]:
        """Move edges that stick out of the average down to it, and return the largest variance then, and X."""
        whole = np.asfortranarray(self.inside.grow(X))
        d = self.edges.distances(whole)
        self.edges.shift(whole, np.minimum(mu @ d - d, 0.0))
        X = self.inside.shrink(la.symmetric(whole))
        Y = la.inverse(X)
        if Y is None:
            return math.inf, X
        return float(self._variances(la.symmetric(Y)).max() * self._distances(X).max()), X

    def _variances(self, Y: SquareMatrix) -> RealVector:
        return self.queries.variances(self.inside.grow(Y)) / self.scale

    def _distances(self, X: SquareMatrix) -> RealVector:
        return self.edges.distances(np.asfortranarray(self.inside.grow(X)))


def steps(problem: Problem, *, gap: float, start: Proof | None = None) -> Iterator[Progress[SquareMatrix, Proof]]:
    """Yield Gram matrices X = A^T A and weights (lam, mu), better and better, for a problem with edges.

    Args:
        problem: the workload under the policy, with a goal other than the total.
        gap: the proven gap aimed at; it decides when the running mean is worth a look.
        start: weights of an earlier search, to start from.
    """
    kernel = Kernel(query_forms(problem), edge_forms(problem.P))
    m, e = kernel.queries.count, kernel.edges.num_edges
    first = Proof(uniform(m), uniform(e)) if start is None else start
    blocks = (slice(0, m), slice(m, m + e))
    momentum = Momentum(
        np.log(np.maximum(np.concatenate(first), math.exp(LIGHTEST))),
        blocks=blocks,
        lightest=(_LIGHTEST_QUERY, 0.0),
        least=1.0,
        trust=0.9,
        raising=True,
    )
    mean: SquareMatrix | None = None
    best, proof = 0.0, np.concatenate(first)
    while True:
        weights = momentum.weights()
        lam, mu = weights[blocks[0]], weights[blocks[1]]
        found = kernel.at(lam, mu)
        f, X, v, d = found.dual.root_sum, found.X, found.v, found.d
        if not f * f > _OVERSHOT * best:
            momentum.overshot(np.log(np.maximum(proof, math.exp(LIGHTEST))))
            continue
        if f * f > best:
            best, proof = f * f, weights
        mean = X / f if mean is None else (1 - _NEWEST) * mean + _NEWEST * X / f
        error, candidate = float(v.max() * d.max()), X
        if error < best * (1 + _CLOSE * gap):
            error, candidate = min((error, X), kernel.moved(mean, mu), key=lambda pair: pair[0])
        bound = f * f * kernel.scale
        yield Progress(error * kernel.scale, bound, kernel.inside.grow(candidate), Proof(lam, mu))
        momentum.advance(weights, np.concatenate([v / (lam @ v), d / (mu @ d)]))
