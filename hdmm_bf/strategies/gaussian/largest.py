"""Gaussian noise: the strategy whose largest variance is least, with its proof, for any policy and any targets.

    primal   minimise max_g v_g(X^-1) * max_e d_e(X)
    dual     maximise f(lam, mu)^2 over weights lam on queries (or groups of them) and mu on edges, each with sum 1,
             f(lam, mu) = || diag(sqrt lam) W_G diag(sqrt mu) ||_* = tr (R L(mu) R^T)^(1/2),   V(lam) = R^T R

v(X) and d(X) at the minimiser X(lam, mu) of tr(V X^-1) + tr(L X) are twice the gradient of f: log f rises along their
logarithms (`secants`). f is close to its maximum long before the last query and the last edge are below f: `two_boxes`
rounds X(lam, mu) to a strategy that is nearer to it. Ranges and prefixes of a line start from the weights of half as
many cells (`coarse`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.dense import DualPoint, GramRoot, uniform
from hdmm_bf.objectives import limits
from hdmm_bf.problem.forms import EdgeForms, edge_forms
from hdmm_bf.problem.query_forms import QueryForms, query_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.ascent import LIGHTEST
from hdmm_bf.strategies.gaussian.coarse import halved, intervals, line, stretched
from hdmm_bf.strategies.gaussian.secants import Secants
from hdmm_bf.strategies.gaussian.two_boxes import Rounded, TwoBoxes
from hdmm_bf.strategies.search import Progress

_LIGHTEST_QUERY = 1e-11
"""Smallest weight of a query, against the largest: what has no weight at all would not be answered. Where the optimum
has none, the value stays above it by about the square root of this."""

_OVERSHOT = 0.97
"""A bound below this share of the best one means that the last step went too far."""

_STILL, _STILL_STEPS, _HALF_STEPS = 3e-5, 3, 60
"""A search on half as many cells ends when its bound rose by less than this share in so many steps, or after so many
steps in all."""


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


class Step(NamedTuple):
    """A step of the ascent: weights, X(lam, mu), and the best f^2 so far."""

    lam: RealVector
    mu: RealVector
    found: Found
    best: float


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
        v = np.full(lam.size, math.inf) if Y is None else self.variances(la.symmetric(Y))
        return Found(dual, X, v, self.distances(X))

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


def steps(problem: Problem, *, gap: float, start: Proof | None = None) -> Iterator[Progress[SquareMatrix, Proof]]:
    """Yield Gram matrices X = A^T A and weights (lam, mu), better and better, for a problem with edges.

    Args:
        problem: the workload under the policy, with a goal other than the total.
        gap: the proven gap aimed at; it decides how X is rounded.
        start: weights of an earlier search, to start from; by default those of the same problem on half as many cells,
            where there is one, else equal weights.
    """
    kernel = Kernel(query_forms(problem), edge_forms(problem.P))
    boxes = TwoBoxes(kernel, gap=gap)
    for lam, mu, found, best in _ascent(kernel, start or _from_half(problem)):
        v, d, bound = found.v, found.d, found.dual.root_sum**2
        made = boxes.rounded(Rounded(float(v.max() * d.max()), found.X), mu, best)
        yield Progress(made.error * kernel.scale, bound * kernel.scale, kernel.inside.grow(made.X), Proof(lam, mu))


def _ascent(kernel: Kernel, start: Proof | None) -> Iterator[Step]:
    """Raise f: yield weights, what they find, and the best f^2 so far."""
    m, e = kernel.queries.count, kernel.edges.num_edges
    blocks = (slice(0, m), slice(m, m + e))
    proof = np.concatenate(start or (uniform(m), uniform(e)))
    secants = Secants(proof, blocks=blocks, lightest=(_LIGHTEST_QUERY, math.exp(LIGHTEST)))
    best, safe = 0.0, proof
    while True:
        weights = secants.weights()
        lam, mu = weights[blocks[0]], weights[blocks[1]]
        found = kernel.at(lam, mu)
        v, d, bound = found.v, found.d, found.dual.root_sum**2
        if not bound > _OVERSHOT * best:
            secants.restart(safe)
            continue
        excess = np.concatenate([v / (lam @ v), d / (mu @ d)])
        if bound > best:
            best, safe = bound, weights * excess  # a step of power 1 does not go too far
        yield Step(lam, mu, found, best)
        secants.advance(weights, excess)


def _from_half(problem: Problem) -> Proof | None:
    """Return the weights of the same problem on half as many cells, stretched; None where there is no such problem."""
    shape = line(problem)
    if shape is None:
        return None
    half = halved(shape)
    kernel = Kernel(query_forms(half), edge_forms(half.P))
    bounds: list[float] = []
    proof = Proof(uniform(0), uniform(0))
    for lam, mu, found, best in _ascent(kernel, _from_half(half)):
        proof = Proof(lam, mu) if found.dual.root_sum**2 == best else proof
        bounds.append(best)
        still = len(bounds) > _STILL_STEPS and best < (1 + _STILL) * bounds[-1 - _STILL_STEPS]
        if still or len(bounds) == _HALF_STEPS or limits.ending():
            break
    own = intervals(half)
    assert own is not None, "half of a line is a line"
    lam = stretched(proof.queries, own.queries, shape.queries, shape.reach)
    return Proof(lam, stretched(proof.edges, own.edges, shape.edges, shape.reach))
